"""Brokers side by side: a link to each, and publications that are sent to all of them.

The first confirm counts. A broker that is down, takes no publications, or owes the maximum of
confirms doesn't get a message: that is counted, and nothing waits for it. It gets messages again as
soon as it has room. A broker that hangs costs ``in_flight`` messages of memory, no time.

The decision that a reader may question: a publication isn't kept for a broker that has no room for
it. Its consumers get the message from another broker, or find it by its number; a kept message
would arrive late, and after its time.
"""

from __future__ import annotations

import asyncio
import collections
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from newsfabric import metrics
from newsfabric.amqp import ConfirmingPublisher, Consumer, Link, Links
from newsfabric.amqp.link import connect
from newsfabric.amqp.message import Message
from newsfabric.errors import LinkBusy, LinkClosed, LinkError, LinkRefused, PublishNacked
from newsfabric.settings import Credentials

SKIPPED: Final = metrics.counted(
    "amqp_skipped_publications",
    "Publications that a broker didn't get: it was down, full or silent",
    ["node"],
)
#: Seconds without a confirm after which a publication is given up, so that its caller retries, if a
#: broker that didn't get it would take it now.
PATIENCE: Final = 0.5
_LOOK_SECONDS: Final = PATIENCE / 2
# Seconds that the cancelling of consumers may take: a broker that hangs never replies.
_CANCEL_SECONDS: Final = 1.0


async def connect_each(
    brokers: Mapping[str, str], *, name: str, credentials: Credentials | None
) -> Links:
    """Return links to ``brokers``, AMQP URLs by the broker's name; to a single broker a plain link.

    See :func:`newsfabric.amqp.link.connect`.
    """
    links = {
        broker: await connect([url], name=name, credentials=credentials)
        for broker, url in brokers.items()
    }
    return SpreadLink(links) if len(links) > 1 else next(iter(links.values()))


class SpreadLink:
    """The :class:`newsfabric.amqp.Links` over ``members``, links by their broker's name."""

    def __init__(self, members: Mapping[str, Link]) -> None:
        self._members = dict(members)

    @property
    def members(self) -> Sequence[Link]:
        """See :attr:`newsfabric.amqp.Links.members`."""
        return tuple(self._members.values())

    @property
    def connected(self) -> bool:
        """True if at least one link is up."""
        return any(member.connected for member in self._members.values())

    @property
    def established(self) -> bool:
        """True if at least one link is established: a service works as long as one broker does.

        :data:`SKIPPED` shows which broker doesn't.
        """
        return any(member.established for member in self._members.values())

    async def publisher(self, *, in_flight: int = 1000) -> SpreadPublisher:
        """See :meth:`newsfabric.amqp.Links.publisher`; ``in_flight`` is per broker."""
        made = await asyncio.gather(
            *(member.publisher(in_flight=in_flight) for member in self._members.values())
        )
        return SpreadPublisher(dict(zip(self._members, made, strict=True)))

    async def close(self) -> None:
        """Close all links, at the same time."""
        await asyncio.gather(*(member.close() for member in self._members.values()))


class _Member:
    """The publisher to one broker."""

    __slots__ = ("name", "publisher", "skipped")

    def __init__(self, name: str, publisher: ConfirmingPublisher) -> None:
        self.name = name
        self.publisher = publisher
        self.skipped = SKIPPED.labels(name).inc


class _Sending:
    """A publication until a broker has confirmed it, or all have failed."""

    __slots__ = ("at", "confirm", "error", "open", "settled", "without")

    def __init__(self, confirm: asyncio.Future[None]) -> None:
        self.confirm = confirm
        # Number of brokers that owe a confirm, and the brokers that don't have the message.
        self.open = 0
        self.without: list[_Member] = []
        self.at = 0.0
        self.settled = False
        self.error: LinkError | None = None


class SpreadPublisher:
    """A :class:`newsfabric.amqp.ConfirmingPublisher` over one publisher per broker.

    A publication has failed when it has failed at every broker that got it. Of several errors the
    one with the best chance of a retry is raised: LinkClosed, then PublishNacked, then LinkRefused.
    So LinkRefused means that each broker refused it. LinkClosed also means that these don't
    confirm, while another broker would take it now. A ``mandatory`` one is returned if no broker
    had a queue for it.

    ``in_flight`` counts publications without any confirm. ``now`` is monotonic, in seconds.
    """

    def __init__(
        self,
        members: Mapping[str, ConfirmingPublisher],
        *,
        now: Callable[[], float] | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._now = now or self._loop.time
        self._members = [_Member(name, publisher) for name, publisher in members.items()]
        self._in_flight = 0
        # Publications that a broker doesn't have, the oldest first; some may be settled.
        self._partial: collections.deque[_Sending] = collections.deque()
        self._look: asyncio.TimerHandle | None = None
        self._changed = asyncio.Event()
        self.watch(self._changed.set)

    @property
    def in_flight(self) -> int:
        """The number of publications that no broker has confirmed."""
        return self._in_flight

    @property
    def is_ready(self) -> bool:
        """True if at least one broker would take a message now."""
        return any(member.publisher.is_ready for member in self._members)

    async def ready(self) -> None:
        """Return as soon as at least one broker would take a message."""
        while not self.is_ready:
            await self._wait()

    def watch(self, changed: Callable[[], None]) -> None:
        """See :meth:`newsfabric.amqp.ConfirmingPublisher.watch`."""
        for member in self._members:
            member.publisher.watch(changed)

    async def publish(self, exchange: str, message: Message, *, mandatory: bool = False) -> None:
        """See :meth:`newsfabric.amqp.ConfirmingPublisher.publish`."""
        while True:
            try:
                confirm = self.publish_nowait(exchange, message, mandatory=mandatory)
            except LinkBusy:
                await self._wait()
            else:
                await confirm
                return

    def publish_nowait(
        self, exchange: str, message: Message, *, mandatory: bool = False
    ) -> asyncio.Future[None]:
        """See :meth:`newsfabric.amqp.ConfirmingPublisher.publish_nowait`.

        LinkBusy if at least one broker is up and none has room; LinkClosed if none is up.
        """
        confirm: asyncio.Future[None] = self._loop.create_future()
        sending = _Sending(confirm)
        reasons: list[LinkError] = []
        for member in self._members:
            try:
                answer = member.publisher.publish_nowait(exchange, message, mandatory=mandatory)
            except (LinkBusy, LinkClosed) as exc:
                reasons.append(exc)
                sending.without.append(member)
            else:
                sending.open += 1
                answer.add_done_callback(functools.partial(self._answered, sending, member))
        if not sending.open:
            busy = [reason for reason in reasons if isinstance(reason, LinkBusy)]
            raise (busy or reasons)[0]
        self._in_flight += 1
        for member in sending.without:
            member.skipped()
        if sending.without:
            self._note_partial(sending)
        return confirm

    def give_up_late(self) -> None:
        """Fail publications that have waited for a confirm for :data:`PATIENCE`, if a broker that
        doesn't have them would take them now. Runs by a timer while there are any."""
        late = self._now() - PATIENCE
        for sending in self._partial:
            if sending.settled or sending.at > late:
                continue
            if any(member.publisher.is_ready for member in sending.without):
                self._settle(sending, LinkClosed("no confirm in time; another broker has room"))
        self._partial = collections.deque(each for each in self._partial if not each.settled)

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _note_partial(self, sending: _Sending) -> None:
        while self._partial and self._partial[0].settled:
            self._partial.popleft()
        sending.at = self._now()
        self._partial.append(sending)
        if self._look is None:
            self._look = self._loop.call_later(_LOOK_SECONDS, self._look_again)

    def _look_again(self) -> None:
        self._look = None
        self.give_up_late()
        if self._partial:
            self._look = self._loop.call_later(_LOOK_SECONDS, self._look_again)

    def _answered(self, sending: _Sending, member: _Member, answer: asyncio.Future[None]) -> None:
        sending.open -= 1
        if sending.settled:
            return
        error = answer.exception()
        if error is None:
            self._settle(sending, None)
            return
        assert isinstance(error, LinkError)
        if sending.error is None or _promise(error) > _promise(sending.error):
            sending.error = error
        if not sending.open:
            self._settle(sending, sending.error)
            return
        sending.without.append(member)
        self._note_partial(sending)

    def _settle(self, sending: _Sending, error: LinkError | None) -> None:
        sending.settled = True
        self._in_flight -= 1
        if sending.confirm.done():
            # The waiting caller was cancelled.
            return
        if error is None:
            sending.confirm.set_result(None)
        else:
            sending.confirm.set_exception(error)
            # Marks the error as retrieved: no "never retrieved" for a pipeline that awaits none.
            sending.confirm.exception()


def _promise(error: LinkError) -> int:
    """Return a rank of how much a retry may help."""
    if isinstance(error, LinkRefused):
        return 0
    return 1 if isinstance(error, PublishNacked) else 2


async def cancel_all(consumers: Sequence[Consumer]) -> None:
    """Cancel ``consumers``: all stop taking deliveries.

    Waits at most a second for a broker that hangs.
    """
    if not consumers:
        return
    cancelling = [asyncio.create_task(consumer.cancel()) for consumer in consumers]
    try:
        await asyncio.wait(cancelling, timeout=_CANCEL_SECONDS)
    finally:
        for task in cancelling:
            task.cancel()
        await asyncio.gather(*cancelling, return_exceptions=True)
