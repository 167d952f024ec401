"""A mailbox service over a broker and a store in memory: user marks in, announcements out."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from clusters import sent_by_box
from core_cluster import EPOCH, CoreCluster, running, until
from envelopes import START_MS, envelope
from metric_values import value

from newsfabric import metrics, topology
from newsfabric.amqp import Message, Properties
from newsfabric.errors import LinkRefused, StoreError, StoreUnavailable
from newsfabric.messages.envelope import Envelope
from newsfabric.messages.mailbox import MARK, MARK_KEY, KeptMessage, MarkKind, UserMark, encode_mark
from newsfabric.store import Store
from newsfabric.store.memory import MemoryStore
from wholesale.common.source import QueueSource
from wholesale.mailbox import counters
from wholesale.mailbox.marking import Marking

LETTER = envelope(1, topic="user.42", app_id="billing", message_id="bill-7")
NOW_MS = EPOCH + 60_000


class FailingStore(MemoryStore):
    """A store in which each entry of ``fails`` makes one call of that name fail."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.fails: list[tuple[str, Exception]] = []

    def _fail(self, call: str) -> None:
        if self.fails and self.fails[0][0] == call:
            raise self.fails.pop(0)[1]

    async def kept(self, topic: str, id: str) -> KeptMessage | None:
        self._fail("kept")
        return await super().kept(topic, id)

    async def mark(self, marks: Sequence[UserMark]) -> None:
        self._fail("mark")
        await super().mark(marks)

    async def check(self) -> None:
        self._fail("check")


@pytest.fixture
async def core(core: CoreCluster) -> CoreCluster:
    """Return a core with a letter in the store, and a tap on messages published to its routers."""
    core.store = FailingStore(core.topics, now_ms=lambda: EPOCH)
    await core.store.write([LETTER])
    core.taps["intake"] = core.broker.tap("intake")
    core.seen["intake"] = []
    return core


@contextlib.asynccontextmanager
async def marking(core: CoreCluster, *, store: Store | None = None) -> AsyncIterator[Marking]:
    link = core.broker.connect()
    made = Marking(
        store=store or core.store,
        topics=core.topics,
        publisher=await link.publisher(),
        now_ms=lambda: NOW_MS,
    )
    source = QueueSource()
    consumer = await link.consumer("mailbox", functools.partial(made.take_delivery, source))
    source.attach(consumer)
    task = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await link.close()


def marked(kind: MarkKind = "read", at: int = 10, letter: Envelope = LETTER) -> UserMark:
    return UserMark(topic=letter.topic, id=letter.id, kind=kind, at_ms=START_MS + at)


def send(core: CoreCluster, *marks: UserMark | Message) -> None:
    for each in marks:
        message = encode_mark(each) if isinstance(each, UserMark) else each
        core.broker.publish(topology.UPSTREAM, sent_by_box(message))


async def settled(core: CoreCluster, made: Marking) -> None:
    await until(lambda: core.broker.depth("mailbox") == 0)
    async with asyncio.timeout(60):
        await made.settled()


async def test_a_mark_is_written_and_announced_to_devices_and_to_the_publishers_tools(
    core: CoreCluster,
):
    async with marking(core) as made:
        send(core, marked())
        await settled(core, made)
    assert await core.store.kept("user.42", LETTER.id) == KeptMessage(LETTER, (marked(),))
    messages, noted = core.arrived("intake")
    assert messages.topic == "user.42"
    assert messages.properties.type == "_fabric.mark"
    fields = {"id": LETTER.id, "mark": "read", "at": START_MS + 10}
    assert json.loads(messages.body) == fields
    assert noted.topic == "marks.billing"
    assert noted.properties.type is None
    assert json.loads(noted.body) == fields | {"user": "42", "message_id": "bill-7"}


async def test_what_waits_is_reported_while_the_store_doesnt_answer(core: CoreCluster):
    assert isinstance(core.store, FailingStore)
    core.store.fails = [("mark", StoreUnavailable("away"))] * 1000
    async with marking(core):
        send(core, marked())
        # The first one is being processed.
        await until(lambda: len(core.store.fails) < 1000)  # type: ignore[attr-defined]
        send(core, *[marked("dismiss")] * 5)
        await until(lambda: waiting() == 5)


def waiting() -> float | None:
    """Return this process's value of the metric."""
    return metrics.REGISTRY.get_sample_value("newsfabric_mailbox_waiting_marks")


async def test_a_router_takes_both_and_neither_hides_the_other(core: CoreCluster):
    async with running(core) as router, marking(core) as made:
        send(core, marked("read"), marked("dismiss"))
        await settled(core, made)
        await core.none_owed(router)
        assert [(e.topic, e.type) for e in core.envelopes()] == [
            ("user.42", "_fabric.mark"),
            ("marks.billing", None),
            ("user.42", "_fabric.mark"),
            ("marks.billing", None),
        ]


async def test_an_announcement_ends_with_the_message(core: CoreCluster):
    ttl_ms = 7 * 86_400_000
    soon = envelope(2, at=1, topic="user.42", app_id="billing", expires_ms=NOW_MS + 5_000)
    await core.store.write([soon])
    async with marking(core) as made:
        send(core, marked(at=10), marked(at=20, letter=soon))
        await settled(core, made)
    found = [message.properties.expiration for message in core.arrived("intake")]
    assert found == [str(ttl_ms - (NOW_MS - EPOCH))] * 2 + ["5000"] * 2


async def test_a_mark_that_is_there_is_announced_again_as_it_was_made(core: CoreCluster):
    repeated = value(counters.REPEATED)
    async with marking(core) as made:
        send(core, marked(at=10))
        await settled(core, made)
        send(core, marked(at=5_000))
        await settled(core, made)
    messages = core.arrived("intake")
    assert messages[:2] == messages[2:]
    assert (await core.store.kept("user.42", LETTER.id)) == KeptMessage(LETTER, (marked(at=10),))
    assert value(counters.REPEATED) == repeated + 1


async def test_two_services_do_a_mark_twice_and_readers_see_it_once(core: CoreCluster):
    async with running(core) as router:
        for _ in range(2):
            async with marking(core) as made:
                send(core, marked())
                await settled(core, made)
        await core.none_owed(router)
        assert len(core.envelopes()) == 2


async def test_the_earlier_of_two_marks_stands_though_it_comes_later(core: CoreCluster):
    async with marking(core) as made:
        send(core, marked(at=5_000))
        await settled(core, made)
        send(core, marked(at=10))
        await settled(core, made)
    assert (await core.store.kept("user.42", LETTER.id)) == KeptMessage(LETTER, (marked(at=10),))


async def test_a_gateway_whose_clock_is_ahead_marks_nothing_in_the_future(core: CoreCluster):
    async with marking(core) as made:
        send(core, marked(at=3_600_000))
        await settled(core, made)
    kept = await core.store.kept("user.42", LETTER.id)
    assert kept is not None
    assert [mark.at_ms for mark in kept.marks] == [NOW_MS]


@pytest.mark.parametrize(
    ("app_id", "text"),
    [
        ("billing", ["user.42", "marks.billing"]),
        ("paywall.eu", ["user.42", "marks.paywall.eu"]),
        (None, ["user.42"]),
        ("billing system", ["user.42"]),
        ("#", ["user.42"]),
        ("x" * 255, ["user.42"]),
    ],
)
async def test_the_note_goes_to_the_topic_of_its_publisher_if_that_can_be_one(
    core: CoreCluster, app_id: str | None, text: list[str]
):
    letter = envelope(3, topic="user.42", app_id=app_id)
    await core.store.write([letter])
    async with marking(core) as made:
        send(core, marked(letter=letter))
        await settled(core, made)
    assert [message.topic for message in core.arrived("intake")] == text


GOOD = {"topic": "user.42", "id": LETTER.id, "mark": "read", "at": START_MS}
BAD = {
    "no JSON": b"{",
    "no object": b"[]",
    "nothing": b"{}",
    "no topic": {**GOOD, "topic": None},
    "another topic": {**GOOD, "topic": "news.world"},
    "a topic that isn't there": {**GOOD, "topic": "nobody.42"},
    "a pattern": {**GOOD, "topic": "user.*"},
    "empty words": {**GOOD, "topic": "user..42"},
    "no user": {**GOOD, "topic": "user." + "x" * 65},
    "a giant topic": {**GOOD, "topic": "a." * 120 + "b"},
    "no id": {**GOOD, "id": "7"},
    "another id": {**GOOD, "id": LETTER.id.upper()},
    "a number for an id": {**GOOD, "id": 7},
    "another mark": {**GOOD, "mark": "undo"},
    "no text for a mark": {**GOOD, "mark": ["read"]},
    "no time": {**GOOD, "at": "now"},
    "a time before time": {**GOOD, "at": -1},
    "a time after time": {**GOOD, "at": 2**48},
    "true": {**GOOD, "at": True},
    "half a millisecond": {**GOOD, "at": 1.5},
    "surrogates": b'{"topic": "\\ud800"}',
}


@pytest.mark.parametrize("body", BAD.values(), ids=BAD.keys())
async def test_what_is_no_mark_is_counted_and_dropped(core: CoreCluster, body: Any):
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    bad = value(counters.BAD)
    async with marking(core) as made:
        send(core, Message(MARK_KEY, raw, Properties(type=MARK)), marked("ack"))
        await settled(core, made)
    assert value(counters.BAD) == bad + 1
    assert [json.loads(m.body)["mark"] for m in core.arrived("intake")] == ["ack", "ack"]


async def test_a_message_that_says_it_is_something_else_is_no_mark(core: CoreCluster):
    stranger = dataclasses.replace(encode_mark(marked()), properties=Properties(type="load"))
    async with marking(core) as made:
        send(core, stranger, marked("ack"))
        await settled(core, made)
    assert len(core.arrived("intake")) == 2


@pytest.mark.parametrize("login", [None, "", "frontdesk.oregon", "router.oregon", "boxes", "cms"])
async def test_a_mark_that_no_box_has_sent_is_forged(core: CoreCluster, login: str | None):
    mark = encode_mark(marked())
    forged = dataclasses.replace(mark.properties, user_id=login)
    before = value(counters.FORGED)
    async with marking(core) as made:
        core.broker.publish(topology.UPSTREAM, dataclasses.replace(mark, properties=forged))
        send(core, marked("ack"))
        await settled(core, made)
    assert value(counters.FORGED) == before + 1
    assert [json.loads(m.body)["mark"] for m in core.arrived("intake")] == ["ack", "ack"]


async def test_a_mark_on_what_comes_a_little_later_is_carried_out_then(core: CoreCluster):
    late = envelope(9, topic="user.42", app_id="billing")
    later = value(counters.LATER)
    async with marking(core) as made:
        send(core, marked(letter=late), marked("ack"))
        await until(lambda: value(counters.LATER) > later)
        # Others don't wait for it.
        await until(lambda: len(core.arrived("intake")) == 2)
        await core.store.write([late])
        await settled(core, made)
    assert await core.store.kept("user.42", late.id) == KeptMessage(late, (marked(letter=late),))
    assert len(core.arrived("intake")) == 4


async def test_a_mark_on_what_isnt_there_comes_to_nothing(
    core: CoreCluster, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("wholesale.mailbox.waiting.DELAYS", (0.0, 0.0))
    unknown = value(counters.UNKNOWN)
    theirs = envelope(5, topic="user.43")
    await core.store.write([theirs])
    async with marking(core) as made:
        # A message that never existed, and another user's.
        send(core, marked(letter=envelope(9, topic="user.42")))
        send(core, marked(letter=dataclasses.replace(theirs, topic="user.42")))
        await settled(core, made)
    assert value(counters.UNKNOWN) == unknown + 2
    assert core.arrived("intake") == []
    assert await core.store.mailboxes(["user.43"], limit=9) == [[KeptMessage(theirs)]]


@pytest.mark.parametrize("problem", [StoreError("garbage"), RecursionError("garbage")])
@pytest.mark.parametrize(("call", "times"), [("kept", 3), ("mark", 1)])
async def test_one_that_the_store_cant_do_or_we_cant_doesnt_hold_up_the_others(
    core: CoreCluster, call: str, times: int, problem: Exception, caplog: pytest.LogCaptureFixture
):
    assert isinstance(core.store, FailingStore)
    # One error for the batch, and the rest for the first mark alone.
    core.store.fails = [(call, problem)] * (times + 1)
    failed = value(counters.FAILED)
    async with marking(core) as made:
        send(core, marked("read"), marked("dismiss"), marked("ack"))
        await settled(core, made)
    assert value(counters.FAILED) == failed + 1
    assert [json.loads(m.body)["mark"] for m in core.arrived("intake")[::2]] == ["dismiss", "ack"]
    assert "garbage" in caplog.text


async def test_a_store_that_is_ill_is_waited_for_whatever_it_says(core: CoreCluster):
    assert isinstance(core.store, FailingStore)
    core.store.fails = [("kept", StoreError("no such table")), ("check", StoreError("ill"))]
    async with marking(core) as made:
        send(core, marked())
        await settled(core, made)
    assert len(core.arrived("intake")) == 2


@pytest.mark.parametrize("call", ["kept", "mark"])
async def test_while_the_store_is_away_marks_wait(core: CoreCluster, call: str):
    assert isinstance(core.store, FailingStore)
    core.store.fails = [(call, StoreUnavailable("away"))] * 2
    async with marking(core) as made:
        send(core, marked())
        await settled(core, made)
        assert made.store_answers
    assert len(core.arrived("intake")) == 2


async def test_what_a_dead_service_had_begun_another_does_again(core: CoreCluster):
    assert isinstance(core.store, FailingStore)
    core.store.fails = [("mark", StoreUnavailable("away"))] * 50
    async with marking(core) as made:
        send(core, marked(), marked("dismiss"))
        await until(lambda: not made.store_answers)
    core.store.fails = []
    assert core.broker.depth("mailbox") == 2
    async with marking(core) as other:
        await settled(core, other)
    assert await core.store.mailboxes(["user.42"], limit=9) == [[]]


async def test_announcements_are_sent_again_until_the_broker_has_them(core: CoreCluster):
    async with marking(core) as made:
        send(core, marked())
        await settled(core, made)
        core.broker.cut()
        send(core, marked("dismiss"))
        await core.broker.heal()
        await settled(core, made)
    kinds = {json.loads(message.body)["mark"] for message in core.arrived("intake")}
    assert kinds == {"read", "dismiss"}


class Forbidding:
    """A publisher that may not publish to one topic: other messages in flight are lost with it."""

    def __init__(self, publisher: Any, topic: str) -> None:
        self._publisher, self._topic = publisher, topic
        self._refused = asyncio.Event()

    def publish_nowait(self, exchange: str, message: Message) -> asyncio.Future[None]:
        confirmed = asyncio.ensure_future(self._publish(exchange, message))
        confirmed.add_done_callback(asyncio.Task.exception)
        return confirmed

    async def _publish(self, exchange: str, message: Message) -> None:
        loop = asyncio.get_running_loop()
        if message.topic == self._topic:
            loop.call_soon(self._refused.set)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                await self._refused.wait()
                loop.call_soon(self._refused.clear)
                raise LinkRefused("403 ACCESS_REFUSED")
        await self._publisher.publish(exchange, message)

    async def ready(self) -> None:
        await self._publisher.ready()


async def test_what_may_not_be_announced_is_given_up_and_holds_nobody_back(core: CoreCluster):
    failed = value(counters.FAILED)
    others = [envelope(n, topic=f"user.{n}", app_id="billing") for n in range(3, 6)]
    await core.store.write(others)
    link = core.broker.connect()
    made = Marking(
        store=core.store,
        topics=core.topics,
        publisher=Forbidding(await link.publisher(), "user.42"),
        now_ms=lambda: NOW_MS,
    )
    source = QueueSource()
    consumer = await link.consumer("mailbox", functools.partial(made.take_delivery, source))
    source.attach(consumer)
    send(core, marked(), *(marked(letter=other) for other in others))
    task = asyncio.create_task(made.run())
    await settled(core, made)
    task.cancel()
    await link.close()
    messages = {message.topic for message in core.arrived("intake")}
    assert messages >= {"user.3", "user.4", "user.5"}
    assert "user.42" not in messages
    # It is in the store all the same.
    assert await core.store.kept("user.42", LETTER.id) == KeptMessage(LETTER, (marked(),))
    assert value(counters.FAILED) == failed + 1
