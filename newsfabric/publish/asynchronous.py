"""The asynchronous publisher: sends, waits, and retries until the outcome is known.

A broker's confirm only means "taken"; the receipt reports "stored and routed", or why not. Without
a reply in time the message is sent again with the same ``message_id``, by which the fabric knows a
repeat. The repeat is sent through another broker: a broker can take messages and be unable to route
them. The pauses grow: repeats would only slow a fabric with a backlog.

The brokers of a region stand side by side, and there is a connection to each of them. With several
regions the first is the nearest: messages are sent through its brokers while one of them is
connected and replies, otherwise through the next region's. :mod:`newsfabric.publish.choice` makes
this choice.
"""

from __future__ import annotations

import asyncio
import functools
import random
import secrets
import time
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any, Final, Self, Unpack
from urllib.parse import urlsplit

from newsfabric.amqp import Link, Message
from newsfabric.amqp.link import connect
from newsfabric.backoff import Backoff
from newsfabric.errors import (
    AccessRefused,
    ConfigError,
    LinkBusy,
    LinkClosed,
    LinkError,
    LinkRefused,
    PublishReturned,
    Rejected,
    Returned,
    Unanswered,
)
from newsfabric.messages.control import Receipt
from newsfabric.publish.choice import SEND_AGAIN, SEND_AGAIN_AT_LAST, Choice, Course
from newsfabric.publish.entrance import Entrance, cancel, first_of
from newsfabric.publish.message import (
    Options,
    Published,
    check_limits,
    make_message,
    pauses,
    published,
)
from newsfabric.publish.refusals import is_final_refusal, is_no_entrance, refused
from newsfabric.topology import PUBLISH, TO_QUEUES

TIMEOUT: Final = 30.0
WINDOW: Final = 1000
# Seconds that the nearest region is waited for at first, before the next one is used.
FIRST_SECONDS: Final = 1.0


class AsyncPublisher:
    """A publisher through one broker of ``regions``, or another one if that doesn't reply.

    A region is the AMQP URLs of its brokers, separated by commas; the nearest region is first.
    Messages of one publisher are sent through the same broker as long as it replies: so their order
    is kept, and many publishers are spread over all brokers. Made by :meth:`open`; close it.

    ``receipt`` and ``copies`` are the defaults of :class:`~newsfabric.publish.Options`. A reply is
    waited for ``timeout`` seconds in all (None: for ever), and ``send_again`` seconds before the
    message is sent again the first time; at most ``window`` messages are in flight.
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
        self._clock = asyncio.get_running_loop().time
        # In each region's order; a broker's number is its place.
        self._entrances: list[Entrance] = []
        self._choice = Choice([], rng=random.Random())  # noqa: S311 - spread, not secret
        #: The region of the last reply, as a place in ``regions``.
        self.answered_by: int | None = None
        self._waiting: dict[str, _Sending] = {}
        # Tries whose message has a reply: their broker may still confirm or close the channel.
        self._left: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(cls, regions: Sequence[str], *, app_id: str, **settings: Any) -> Self:
        """Return a publisher to ``regions``; ConfigError for a bad URL.

        It returns when connected, or after a second: then it continues to connect.
        """
        if not regions:
            raise ConfigError("a publisher needs the AMQP URLs of one region at least")
        listed = [[url.strip() for url in region.split(",")] for region in regions]
        users = {urlsplit(url).username for urls in listed for url in urls}
        async with AsyncExitStack() as stack:
            links: list[list[Link]] = []
            for urls in listed:
                links.append([])
                for url in urls:
                    link = await connect([url], name=f"publisher {app_id}", credentials=None)
                    stack.push_async_callback(link.close)
                    links[-1].append(link)
            # With ``user_id`` set, the broker vouches for it, and routers needn't trust the app_id.
            user_id = app_id if users == {app_id} else None
            publisher = await cls.over(links, app_id=app_id, user_id=user_id, **settings)
            with suppress(TimeoutError):
                async with asyncio.timeout(FIRST_SECONDS):
                    await publisher._nearest_known([len(each) for each in links])
            stack.pop_all()
            return publisher

    @classmethod
    async def over(
        cls,
        regions: Iterable[Link | Sequence[Link]],
        *,
        app_id: str,
        user_id: str | None = None,
        exchange: str = PUBLISH,
        receipts: str = TO_QUEUES,
        arguments: dict[str, Any] | None = None,
        **settings: Any,
    ) -> Self:
        """Return a publisher over links, one to each broker of each region, which it closes.

        ``arguments`` are those of its queues for receipts. On core brokers, where an operator
        publishes, these are bound to exchange ``receipts``; elsewhere shovels bring receipts.
        """
        publisher = cls(app_id, **settings)
        listed = [[one] if not isinstance(one, Sequence) else list(one) for one in regions]
        for number, link in enumerate(link for links in listed for link in links):
            entrance = Entrance(
                link,
                on_receipt=functools.partial(publisher._on_answer, number),
                user_id=user_id,
                exchange=exchange,
                receipts=receipts,
                arguments=arguments,
            )
            # Copies and repeats beyond the window.
            publisher._entrances.append(await entrance.open(window=2 * publisher._window))
        publisher._choice = Choice(
            [len(links) for links in listed],
            send_again=publisher._send_again,
            rng=random.Random(),  # noqa: S311 - spread, not secret
        )
        return publisher

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the links. Messages in flight get no reply: await their results before."""
        for entrance in self._entrances:
            await entrance.close()
        await cancel([*self._left])

    @property
    def connected(self) -> bool:
        """True if a broker would take a message now."""
        return any(entrance.connected for entrance in self._entrances)

    async def publish(self, topic: str, body: Any, **options: Unpack[Options]) -> Published:
        """Publish, and return when the message is known to be routed (``receipt=False``: taken).

        ``body`` as text or bytes is taken for JSON as it is; any other value is written as JSON.
        Raises Rejected, Returned, AccessRefused or Unanswered. After Unanswered the message may
        have been routed, unless ``sent`` is False: send it again with the error's ``message_id``.
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
        """Publish as :meth:`publish`, for a ``message`` with a ``message_id``; return the receipt,
        also a router's rejection."""
        receipt = await self._send(message, receipt=True, copies=self._copies)
        assert receipt is not None
        return receipt

    async def _send(self, message: Message, *, receipt: bool, copies: int) -> Receipt | None:
        message_id = message.properties.message_id
        assert message_id is not None
        check_limits(message)
        # Not the message_id: a stranger who can guess it could send a receipt like a router.
        key = secrets.token_hex(16)
        sending = _Sending(message, receipt=receipt)
        try:
            async with asyncio.timeout(self._timeout), self._room:
                self._waiting[key] = sending
                try:
                    return await self._until_answered(key, sending, copies)
                finally:
                    del self._waiting[key]
                    self._leave(*sending.tries)
        except TimeoutError as exc:
            trouble = "; ".join(filter(None, (self.troubles(), sending.trouble)))
            sent = bool(sending.course.handed)
            raise Unanswered(message_id, self._timeout or 0, trouble, sent=sent) from exc

    async def _until_answered(self, key: str, sending: _Sending, copies: int) -> Receipt | None:
        backoff = Backoff(base=0.1, cap=2.0)
        waits = pauses(self._choice.patience, SEND_AGAIN_AT_LAST)
        wait, failed = next(waits), False
        while not sending.answer.done():
            if failed and len(sending.course.handed) > copies:
                # A broker that refuses at once isn't asked again at once, for ever.
                await asyncio.sleep(backoff.failed(0.0))
            first = not sending.course.handed
            usable = await self._usable(sending, patient=not first)
            for number in self._choice.among(usable, sending.course, copies):
                sending.course.handed.append((number, self._clock()))
                sending.tries[self._try(number, key, sending)] = number
            if first:
                for number in self._choice.probed(usable, sending.course, key, self._clock()):
                    self._leave(self._try(number, key, sending))
            if not (failed := await sending.wait(wait)):
                wait = next(waits)
        return sending.answer.result()

    def _try(self, number: int, key: str, sending: _Sending) -> asyncio.Task[None]:
        async def hand_over() -> None:
            await self._entrances[number].publish(sending.message, key)
            if not sending.receipt:
                self._on_answer(number, key, None)

        return asyncio.create_task(hand_over())

    def _leave(self, *tries: asyncio.Task[None]) -> None:
        """Leave ``tries``, which no task awaits any more, to end with their broker's confirm."""
        for task in tries:
            self._left.add(task)
            task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._left.discard(task)
        if not task.cancelled():
            # Marks the error as retrieved.
            task.exception()

    async def _usable(self, sending: _Sending, *, patient: bool) -> list[int]:
        """Return the connected brokers that didn't return the message. Waits while there is none,
        unless the message has a reply: a broker that takes no more messages still brings receipts.

        Raises Returned if each region returned it, and AccessRefused as soon as all brokers refuse
        us, unless ``patient``.
        """
        while not sending.answer.done():
            asked = [n for n in range(len(self._entrances)) if n not in sending.returned]
            if usable := [number for number in asked if self._entrances[number].connected]:
                return usable
            if self._choice.in_each_region(sending.returned):
                raise Returned("; ".join(sending.returned.values()))
            waits = [self._entrances[number].ready() for number in asked]
            refusal = [] if patient else [self._refused()]
            await first_of(asyncio.wait([sending.answer]), *waits, *refusal)
        return []

    async def _refused(self) -> None:
        """Raise AccessRefused as soon as all brokers refuse us."""
        await _all_refuse(self._entrances)
        raise AccessRefused(self.troubles())

    async def _nearest_known(self, regions: Sequence[int]) -> None:
        """Return when it is known whether the nearest of ``regions`` can be published to."""
        entrances = iter(self._entrances)
        for brokers in [[next(entrances) for _ in range(count)] for count in regions][
            : self._copies
        ]:
            await first_of(*(broker.ready() for broker in brokers), _all_refuse(brokers))

    def troubles(self) -> str:
        """Return why there is no connection, for each broker without one; else an empty text."""
        return "; ".join(str(e.trouble) for e in self._entrances if e.trouble is not None)

    def _on_answer(self, number: int, key: str, receipt: Receipt | None) -> None:
        """Note the reply of broker ``number`` to message ``key``: a receipt, or its own confirm."""
        now = self._clock()
        self._choice.note_reply(number, key, now)
        sending = self._waiting.get(key)
        # Several receipts may arrive for one message (R3): the first counts.
        if sending is not None and not sending.answer.done():
            self._choice.answered(number, sending.course, now)
            self.answered_by = self._choice.region_of(number)
            sending.answer.set_result(receipt)


class _Sending:
    """A message in flight: its tries, and the result, set by the first receipt or confirm."""

    def __init__(self, message: Message, *, receipt: bool) -> None:
        self.message = message
        self.receipt = receipt
        self.answer: asyncio.Future[Receipt | None] = asyncio.get_running_loop().create_future()
        self.course = Course()
        # By broker, the reason for which it returned the message.
        self.returned: dict[int, str] = {}
        # The words with which a broker last closed the channel that it was in flight on.
        self.trouble = ""
        self.tries: dict[asyncio.Task[None], int] = {}

    async def wait(self, seconds: float) -> bool:
        """Return when there is a reply, after ``seconds``, or, with True, when a try has failed."""
        loop = asyncio.get_running_loop()
        due = loop.time() + seconds
        while not self.answer.done() and (left := due - loop.time()) > 0:
            waited_for: set[asyncio.Future[Any]] = {self.answer, *self.tries}
            await asyncio.wait(waited_for, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if self._settle_tries() and not self.answer.done():
                return True
        return False

    def _settle_tries(self) -> bool:
        """Handle the tries that ended; return whether a failed one should be repeated at once."""
        again = False
        for task in [task for task in self.tries if task.done()]:
            number = self.tries.pop(task)
            error = task.exception()
            if isinstance(error, PublishReturned):
                self.returned[number] = str(error)
                again = True
            elif isinstance(error, LinkBusy):
                again = True
            elif isinstance(error, LinkClosed | LinkRefused):
                self._lost(number, str(error))
                again = True
            elif error is not None and not isinstance(error, LinkError):
                raise error
        return again

    def _lost(self, number: int, words: str) -> None:
        """Handle the close of broker ``number``'s channel; Rejected if the message caused it."""
        if reason := refused(words, self.message):
            raise Rejected(reason, words)
        if is_no_entrance(words):
            self.returned[number] = words
        if is_final_refusal(words):
            self.trouble = words


async def _all_refuse(entrances: Iterable[Entrance]) -> None:
    await asyncio.gather(*(entrance.refused() for entrance in entrances))
