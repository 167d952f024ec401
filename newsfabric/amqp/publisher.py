"""A publisher with confirms, with bounded publications in flight, over a link that reconnects.

Nothing is queued here: a publication that the broker can't take now is refused, or its caller
waits. Unconfirmed publications fail when the channel is lost. Callers that need them publish again,
and receivers drop copies by identity.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from newsfabric.amqp.channel import Channel
from newsfabric.amqp.confirms import Confirms
from newsfabric.amqp.connection import BrokerConnection
from newsfabric.amqp.message import Message
from newsfabric.amqp.retry import Retry
from newsfabric.amqp.wire import ReturnReason, WireError, encode_address, encode_content
from newsfabric.errors import (
    LinkBusy,
    LinkClosed,
    LinkError,
    LinkRefused,
    PublishNacked,
    PublishReturned,
)

logger = logging.getLogger(__name__)


class LinkPublisher:
    """A :class:`newsfabric.amqp.ConfirmingPublisher` on a channel of its own.

    ValueError for ``in_flight`` below 1.
    """

    def __init__(self, name: str, in_flight: int) -> None:
        if in_flight < 1:
            raise ValueError("in_flight must be at least 1")
        self._name = name
        self._bound = in_flight
        self._loop = asyncio.get_running_loop()
        self._channel: Channel | None = None
        self._frame_max = 0
        # The last message, and its frames on this channel.
        self._encoded: Message | None = None
        self._content = b""
        self._confirms: Confirms[asyncio.Future[None]] = Confirms()
        # Set while a publication would be taken, and while none is unconfirmed.
        self._open = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._watchers: list[Callable[[], None]] = []

    @property
    def established(self) -> bool:
        """Always True: a publisher needs only a channel. Missing rights show on publishing."""
        return True

    @property
    def in_flight(self) -> int:
        """The number of unconfirmed publications."""
        return len(self._confirms)

    async def ready(self) -> None:
        """See :meth:`newsfabric.amqp.ConfirmingPublisher.ready`."""
        while not self._update():
            await self._open.wait()

    @property
    def is_ready(self) -> bool:
        """See :attr:`newsfabric.amqp.ConfirmingPublisher.is_ready`."""
        return self._update()

    def watch(self, changed: Callable[[], None]) -> None:
        """See :meth:`newsfabric.amqp.ConfirmingPublisher.watch`."""
        self._watchers.append(changed)

    async def idle(self) -> None:
        """Return when no publication is unconfirmed."""
        await self._idle.wait()

    async def publish(self, exchange: str, message: Message, *, mandatory: bool = False) -> None:
        """See :meth:`newsfabric.amqp.ConfirmingPublisher.publish`."""
        while self._usable() and not self._update():
            await self._open.wait()
        await self.publish_nowait(exchange, message, mandatory=mandatory)

    def publish_nowait(
        self, exchange: str, message: Message, *, mandatory: bool = False
    ) -> asyncio.Future[None]:
        """See :meth:`newsfabric.amqp.ConfirmingPublisher.publish_nowait`."""
        channel = self._channel
        if channel is None or not channel.is_open:
            raise LinkClosed(f"{self._name}: no link to publish on")
        if len(self._confirms) >= self._bound or channel.connection.blocked:
            raise LinkBusy(f"{self._name}: {len(self._confirms)} unconfirmed publications")
        number = channel.number
        if message is not self._encoded:
            # Most of the work, and a router publishes each message to two exchanges in sequence.
            self._content = encode_content(number, message, frame_max=self._frame_max)
            self._encoded = message
        address = encode_address(number, exchange, message.topic, mandatory=mandatory)
        channel.connection.send(address + self._content)
        confirmed: asyncio.Future[None] = self._loop.create_future()
        tag = self._confirms.sent(confirmed)
        if mandatory:
            self._confirms.expect_return(tag, exchange, message)
        self._idle.clear()
        return confirmed

    def _usable(self) -> bool:
        return self._channel is not None and self._channel.is_open

    def _update(self) -> bool:
        """Return whether a publication would be taken now; wake the waiting callers if so."""
        channel = self._channel
        good = (
            channel is not None
            and channel.is_open
            and not channel.connection.blocked
            and len(self._confirms) < self._bound
        )
        if good:
            self._open.set()
        else:
            self._open.clear()
        return good

    def _update_watchers(self) -> None:
        self._update()
        for changed in self._watchers:
            changed()

    async def serve(self, connection: BrokerConnection, attempted: Callable[[], None]) -> None:
        """Keep a channel open on ``connection`` until it is closed."""
        retry = Retry(f"{self._name}: publisher")
        while not connection.closed.done():
            try:
                error = await self._use_channel(connection, attempted, retry)
            except LinkError as exc:
                error = exc
            attempted()
            if not connection.closed.done():
                await retry.failed(error)

    async def _use_channel(
        self, connection: BrokerConnection, attempted: Callable[[], None], retry: Retry
    ) -> LinkError:
        channel = await Channel.open(connection)
        # Only pika needs the callback: confirms bypass pika.
        await channel.request("confirm_delivery", ack_nack_callback=lambda _frame: None)
        connection.owners.attach(channel.number, self)
        self._frame_max = connection.frame_max
        self._encoded = None
        self._channel = channel
        retry.succeeded()
        self._update_watchers()
        attempted()
        reason = LinkError("the link is closed")
        try:
            reason = await channel.closed()
        finally:
            connection.owners.detach(channel.number, self)
            self._lose(reason)
        return reason

    def _lose(self, reason: LinkError) -> None:
        self._channel = None
        # If one publication was refused, whichever it was, a retry doesn't help.
        kind = LinkRefused if isinstance(reason, LinkRefused) else LinkClosed
        for future in self._confirms.clear():
            _fail(future, kind(f"{self._name}: {reason}"))
        self._confirms = Confirms()
        self._idle.set()
        self._update_watchers()
        # Callers that wait in publish() must notice that the link is down.
        self._open.set()

    def on_confirm(self, tag: int, multiple: bool, taken: bool) -> None:
        """Settle publication ``tag``, taken or not; with ``multiple`` all up to it."""
        for future, returned in self._confirms.settled(tag, multiple=multiple):
            if not taken:
                _fail(future, PublishNacked(f"{self._name}: the broker refused the message"))
            elif returned is not None:
                _fail(future, PublishReturned(f"{self._name}: returned: {returned}"))
            elif not future.done():
                future.set_result(None)
        if not self._confirms:
            self._idle.set()
        self._update_watchers()

    def on_return(self, reason: ReturnReason, message: Message) -> None:
        """Note a mandatory message that the broker returned; its confirm follows."""
        text = f"{reason.code} {reason.text}, exchange {reason.exchange!r}, key {message.topic!r}"
        if not self._confirms.returned(reason.exchange, message, text):
            logger.warning("%s: the broker returned an unknown message: %s", self._name, text)

    def on_unblocked(self) -> None:
        """Note that the broker reads again."""
        self._update_watchers()

    def on_deliver(self, tag: int, redelivered: bool, message: Message) -> None:
        """Raise WireError, which ends the connection: a publisher's channel has no consumer."""
        raise WireError(f"delivery {tag} on a publisher's channel")


def _fail(future: asyncio.Future[None], error: LinkError) -> None:
    if not future.done():
        future.set_exception(error)
        # Marks the error as retrieved: no "never retrieved" for a pipeline that awaits none.
        future.exception()
