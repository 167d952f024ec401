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
from typing import Any, Final, Self, Unpack
from urllib.parse import urlsplit

from newsfabric.amqp import Link, Message
from newsfabric.amqp.link import connect
from newsfabric.backoff import Backoff
from newsfabric.control import PUBLISHER_NOT_ALLOWED, Receipt
from newsfabric.errors import (
    ConfigError,
    LinkClosed,
    LinkError,
    PublishReturned,
    Rejected,
    Returned,
    Unanswered,
)
from newsfabric.publish.entrance import Entrance
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
    answer is waited for ``timeout`` seconds in all; at most ``window`` messages are under way.
    """

    def __init__(
        self,
        app_id: str,
        *,
        receipt: bool = True,
        copies: int = 1,
        timeout: float = TIMEOUT,
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
        # Those who wait for an answer, by correlation_id, which is the message_id.
        self._waiting: dict[str, asyncio.Future[Receipt | None]] = {}

    @classmethod
    async def open(cls, regions: Sequence[str], *, app_id: str, **settings: Any) -> Self:
        """A publisher to ``regions``; ConfigError for a bad URL.

        It returns connected, or after a second: then it goes on connecting.
        """
        if not regions:
            raise ConfigError("a publisher needs the AMQP URLs of one region at least")
        links: list[Link] = []
        try:
            users = []
            for region in regions:
                urls = [url.strip() for url in region.split(",")]
                links.append(await connect(urls, name=f"publisher {app_id}", credentials=None))
                users.append({urlsplit(url).username for url in urls})
            # Said, a broker vouches for it, and routers needn't take the app_id's word.
            said = app_id if all(user == {app_id} for user in users) else None
            publisher = await cls.over(links, app_id=app_id, user_id=said, **settings)
            await publisher._wait_for_the_nearest()
            return publisher
        except BaseException:
            for link in links:
                await link.close()
            raise

    @classmethod
    async def over(
        cls, links: Iterable[Link], *, app_id: str, user_id: str | None = None, **settings: Any
    ) -> Self:
        """A publisher over ``links``, one to each region, which it closes."""
        publisher = cls(app_id, **settings)
        for link in links:
            entrance = await Entrance.over(
                link,
                app_id=app_id,
                # Copies and repeats beside what the window lets in.
                window=2 * publisher._window,
                on_receipt=publisher._on_receipt,
                user_id=user_id,
            )
            publisher._entrances.append(entrance)
        return publisher

    async def _wait_for_the_nearest(self) -> None:
        nearest = [asyncio.create_task(e.ready()) for e in self._entrances[: self._copies]]
        try:
            await asyncio.wait(nearest, timeout=FIRST_SECONDS)
        finally:
            await _cancel(nearest)

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
        Raises Rejected, Returned or Unanswered; after Unanswered the message may have been routed:
        send it again with the error's ``message_id``.
        """
        message = make_message(
            topic, body, options, app_id=self._app_id, now_ms=time.time_ns() // 1_000_000
        )
        return await self.send(
            message,
            receipt=options.get("receipt", self._receipt),
            copies=options.get("copies", self._copies),
        )

    async def send(self, message: Message, *, receipt: bool = True, copies: int = 1) -> Published:
        """As :meth:`publish`, for a ``message`` whose ``correlation_id`` is its ``message_id``."""
        message_id = message.properties.message_id
        assert message_id is not None
        assert message_id == message.properties.correlation_id
        try:
            async with asyncio.timeout(self._timeout), self._room:
                if message_id in self._waiting:
                    raise ValueError(f"message_id {message_id!r} is under way already")
                return await self._answered(message, message_id, receipt=receipt, copies=copies)
        except TimeoutError as exc:
            raise Unanswered(message_id, self._timeout) from exc

    async def _answered(
        self, message: Message, message_id: str, *, receipt: bool, copies: int
    ) -> Published:
        answer: asyncio.Future[Receipt | None] = asyncio.get_running_loop().create_future()
        self._waiting[message_id] = answer
        sending = _Sending(message, answer, receipt=receipt)
        try:
            await self._send_until_answered(sending, copies)
        finally:
            del self._waiting[message_id]
            await sending.cancel()
        found = answer.result()
        if found is None:
            return Published(message_id=message_id, routed=False)
        return published(found, message_id)

    async def _send_until_answered(self, sending: _Sending, copies: int) -> None:
        backoff = Backoff(base=0.1, cap=2.0)
        waits = pauses(self._send_again, SEND_AGAIN_AT_LAST)
        for turn in itertools.count():
            usable = await self._usable(sending)
            # Each time it begins with the next, so that no region is relied on.
            for n in range(min(copies, len(usable))):
                sending.start(usable[(turn + n) % len(usable)])
            failed = await sending.wait(next(waits))
            if sending.answer.done():
                return
            if len(sending.returned) == len(self._entrances):
                raise Returned(str(next(iter(sending.returned.values()))))
            if failed and turn:
                # A broker that refuses at once isn't asked again at once, for ever.
                await asyncio.sleep(backoff.failed(0.0))

    async def _usable(self, sending: _Sending) -> list[Entrance]:
        """Entrances that are connected, nearest first; waits while none is."""
        open_ones = [e for e in self._entrances if e not in sending.returned]
        while not (usable := [e for e in open_ones if e.connected]):
            tasks = [asyncio.create_task(e.ready()) for e in open_ones]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await _cancel(tasks)
        return usable

    def _on_receipt(self, correlation_id: str, receipt: Receipt) -> None:
        # More than one may come for one message (R3): the first counts.
        answer = self._waiting.get(correlation_id)
        if answer is not None and not answer.done():
            answer.set_result(receipt)


class _Sending:
    """One message under way: its tries, and the answer that the first receipt or confirm gives."""

    def __init__(
        self, message: Message, answer: asyncio.Future[Receipt | None], *, receipt: bool
    ) -> None:
        self.answer = answer
        self.returned: dict[Entrance, PublishReturned] = {}
        self._message = message
        self._receipt = receipt
        self._tries: dict[asyncio.Task[None], Entrance] = {}

    def start(self, entrance: Entrance) -> None:
        """Begin a try by ``entrance``."""
        self._tries[asyncio.create_task(entrance.publish(self._message))] = entrance

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
                self.returned[entrance] = error
                again = True
            elif isinstance(error, LinkClosed):
                if _refuses(str(error), self._message.topic):
                    raise Rejected(PUBLISHER_NOT_ALLOWED, str(error))
                again = True
            elif error is not None and not isinstance(error, LinkError):
                raise error
            elif error is None and not self._receipt and not self.answer.done():
                self.answer.set_result(None)
        return again

    async def cancel(self) -> None:
        """End the tries that nobody waits for any more."""
        await _cancel(self._tries)


def _refuses(error: str, topic: str) -> bool:
    """Whether a broker that knows rights closed the channel for ``topic``; it says for which."""
    return "ACCESS_REFUSED" in error and (
        f"topic '{topic}'" in error or f"access to exchange '{PUBLISH}'" in error
    )


async def _cancel(tasks: Iterable[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
