"""The asynchronous publisher: sends, waits, sends again until it knows.

A broker's confirm only says "taken"; the receipt says stored and routed, or why not. Without an
answer in time the message is sent again with the same ``message_id``, which the fabric knows for
the same message, and by the next region that is connected: a region can take messages and be unable
to route them. Each time it waits longer: a fabric that is behind is only set back by repeats.

With several regions the first is the nearest: messages go there while it is connected, otherwise to
the next, and again to the first as soon as it is back.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any, Final, Self, Unpack
from urllib.parse import urlsplit

from newsfabric.amqp import Link, Message
from newsfabric.amqp.link import connect
from newsfabric.backoff import Backoff
from newsfabric.control import PUBLISHER_NOT_ALLOWED, Receipt
from newsfabric.errors import (
    AccessRefused,
    ConfigError,
    LinkClosed,
    LinkError,
    LinkRefused,
    PublishReturned,
    Rejected,
    Returned,
    Unanswered,
)
from newsfabric.publish.entrance import Entrance, cancel, first_of
from newsfabric.publish.message import (
    SEND_AGAIN,
    SEND_AGAIN_AT_LAST,
    Options,
    Published,
    make_message,
    pauses,
    published,
)
from newsfabric.topology import PUBLISH

TIMEOUT: Final = 30.0
WINDOW: Final = 1000
# How long the nearest region is waited for at first, before the next one is used.
FIRST_SECONDS: Final = 1.0


class AsyncPublisher:
    """Publishes to the first of ``regions`` that answers. Made by :meth:`open`; close it.

    A region is the AMQP URLs of its client cluster, with commas between them; the nearest comes
    first. ``receipt`` and ``copies`` are the defaults of :class:`~newsfabric.publish.Options`; an
    answer is waited for ``timeout`` seconds in all (None: for ever); at most ``window`` messages
    are under way.
    """

    def __init__(
        self,
        app_id: str,
        *,
        receipt: bool = True,
        copies: int = 1,
        timeout: float | None = TIMEOUT,
        window: int = WINDOW,
        send_again: float = SEND_AGAIN,
    ) -> None:
        self._app_id = app_id
        self._receipt = receipt
        self._copies = copies
        self._timeout = timeout
        self._window = window
        self._send_again = send_again
        self._room = asyncio.Semaphore(window)
        self._entrances: list[Entrance] = []
        self._waiting: dict[str, _Sending] = {}

    @classmethod
    async def open(cls, regions: Sequence[str], *, app_id: str, **settings: Any) -> Self:
        """A publisher to ``regions``; ConfigError for a bad URL.

        It returns connected, or after a second: then it goes on connecting.
        """
        if not regions:
            raise ConfigError("a publisher needs the AMQP URLs of one region at least")
        listed = [[url.strip() for url in region.split(",")] for region in regions]
        users = {urlsplit(url).username for urls in listed for url in urls}
        async with AsyncExitStack() as stack:
            links = []
            for urls in listed:
                link = await connect(urls, name=f"publisher {app_id}", credentials=None)
                stack.push_async_callback(link.close)
                links.append(link)
            # Said, a broker vouches for it, and routers needn't take the app_id's word.
            said = app_id if users == {app_id} else None
            publisher = await cls.over(links, app_id=app_id, user_id=said, **settings)
            nearest = publisher._entrances[: publisher._copies]
            with suppress(TimeoutError):
                async with asyncio.timeout(FIRST_SECONDS):
                    await asyncio.gather(*(first_of(e.ready(), e.refused()) for e in nearest))
            stack.pop_all()
            return publisher

    @classmethod
    async def over(
        cls,
        links: Iterable[Link],
        *,
        app_id: str,
        user_id: str | None = None,
        exchange: str = PUBLISH,
        **settings: Any,
    ) -> Self:
        """A publisher over ``links``, one to each region, which it closes."""
        publisher = cls(app_id, **settings)
        for link in links:
            entrance = Entrance(
                link,
                app_id=app_id,
                on_receipt=publisher._on_receipt,
                user_id=user_id,
                exchange=exchange,
            )
            # Copies and repeats beside what the window lets in.
            publisher._entrances.append(await entrance.open(window=2 * publisher._window))
        return publisher

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the links. What is under way stays unanswered: await it before."""
        for entrance in self._entrances:
            await entrance.close()

    async def publish(self, topic: str, body: Any, **options: Unpack[Options]) -> Published:
        """Publish, and return when it is known to be routed (``receipt=False``: taken).

        ``body`` as text or bytes is taken for JSON as it is; anything else is written as JSON.
        Raises Rejected, Returned, AccessRefused or Unanswered; after Unanswered the message may
        have been routed: send it again with the error's ``message_id``.
        """
        now_ms = time.time_ns() // 1_000_000
        message = make_message(topic, body, options, app_id=self._app_id, now_ms=now_ms)
        receipt = await self._send(
            message,
            receipt=options.get("receipt", self._receipt),
            copies=options.get("copies", self._copies),
        )
        return published(receipt, message.properties.message_id or "")

    async def send(self, message: Message) -> Receipt:
        """As :meth:`publish`, for a ``message`` with a ``message_id``; a rejection is an answer."""
        receipt = await self._send(message, receipt=True, copies=self._copies)
        assert receipt is not None
        return receipt

    async def _send(self, message: Message, *, receipt: bool, copies: int) -> Receipt | None:
        message_id = message.properties.message_id
        assert message_id is not None
        try:
            async with asyncio.timeout(self._timeout), self._room:
                if message_id in self._waiting:
                    raise ValueError(f"message_id {message_id!r} is under way already")
                sending = self._waiting[message_id] = _Sending(message, receipt=receipt)
                try:
                    return await self._until_answered(sending, copies)
                finally:
                    del self._waiting[message_id]
                    await sending.cancel()
        except TimeoutError as exc:
            raise Unanswered(message_id, self._timeout or 0, self.troubles()) from exc

    async def _until_answered(self, sending: _Sending, copies: int) -> Receipt | None:
        backoff = Backoff(base=0.1, cap=2.0)
        waits = pauses(self._send_again, SEND_AGAIN_AT_LAST)
        for turn in itertools.count():
            usable = await self._usable(sending, patient=turn > 0)
            # Each time it begins with the next, so that no region is relied on.
            for n in range(min(copies, len(usable))):
                sending.start(usable[(turn + n) % len(usable)])
            failed = await sending.wait(next(waits))
            if sending.answer.done():
                break
            if len(sending.returned) == len(self._entrances):
                raise Returned("; ".join(sending.returned.values()))
            if failed and turn:
                # A broker that refuses at once isn't asked again at once, for ever.
                await asyncio.sleep(backoff.failed(0.0))
        return sending.answer.result()

    async def _usable(self, sending: _Sending, *, patient: bool) -> list[Entrance]:
        """Entrances that are connected, nearest first; waits while none is.

        AccessRefused as soon as none can be, unless it is ``patient``.
        """
        open_ones = [e for e in self._entrances if e not in sending.returned]
        while not (usable := [e for e in open_ones if e.connected]):
            waits = [e.ready() for e in open_ones]
            await first_of(*waits, *([] if patient else [self._refused()]))
        return usable

    async def _refused(self) -> None:
        """Raise AccessRefused as soon as no region will have us."""
        await asyncio.gather(*(entrance.refused() for entrance in self._entrances))
        raise AccessRefused(self.troubles())

    def troubles(self) -> str:
        """Why there is no connection, of each region that has none; empty if there is nothing."""
        return "; ".join(str(e.trouble) for e in self._entrances if e.trouble is not None)

    def _on_receipt(self, correlation_id: str, receipt: Receipt) -> None:
        # More than one may come for one message (R3): the first counts.
        if (sending := self._waiting.get(correlation_id)) is not None:
            sending.settle(receipt)


class _Sending:
    """One message under way: its tries, and the answer that the first receipt or confirm gives."""

    def __init__(self, message: Message, *, receipt: bool) -> None:
        self.answer: asyncio.Future[Receipt | None] = asyncio.get_running_loop().create_future()
        self.returned: dict[Entrance, str] = {}
        self._message = message
        self._receipt = receipt
        self._tries: dict[asyncio.Task[None], Entrance] = {}

    def start(self, entrance: Entrance) -> None:
        """Begin a try by ``entrance``."""
        self._tries[asyncio.create_task(entrance.publish(self._message))] = entrance

    def settle(self, answer: Receipt | None) -> None:
        """The first answer is it."""
        if not self.answer.done():
            self.answer.set_result(answer)

    async def wait(self, seconds: float) -> bool:
        """Return when answered, after ``seconds``, or, with True, when a try came to nothing."""
        loop = asyncio.get_running_loop()
        due = loop.time() + seconds
        while not self.answer.done() and (left := due - loop.time()) > 0:
            waited_for: set[asyncio.Future[Any]] = {self.answer, *self._tries}
            await asyncio.wait(waited_for, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if self._settle_tries() and not self.answer.done():
                return True
        return False

    def _settle_tries(self) -> bool:
        """Take note of the tries that ended; whether one of them shall be made again at once."""
        again = False
        for task in [task for task in self._tries if task.done()]:
            entrance = self._tries.pop(task)
            error = task.exception()
            if isinstance(error, PublishReturned):
                self.returned[entrance] = str(error)
                again = True
            elif isinstance(error, LinkClosed | LinkRefused):
                if _refuses(str(error), self._message.topic):
                    raise Rejected(PUBLISHER_NOT_ALLOWED, str(error))
                again = True
            elif error is not None and not isinstance(error, LinkError):
                raise error
            elif error is None and not self._receipt:
                self.settle(None)
        return again

    async def cancel(self) -> None:
        """End the tries that nobody waits for any more."""
        await cancel([*self._tries])


def _refuses(error: str, topic: str) -> bool:
    """Whether a broker that knows rights closed the channel for ``topic``; it says for which."""
    return "ACCESS_REFUSED" in error and (
        f"topic '{topic}'" in error or f"access to exchange '{PUBLISH}'" in error
    )
