"""Whole runs between two fabrics in one process: stub brokers, real gateways, a router of three
lines, which loses the messages that a test chooses."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from frontdesks import Frontdesk
from gateways import Box, opened_box, until

from newsfabric.amqp.message import Delivery, Message
from newsfabric.amqp.stub import StubBroker, StubLink
from newsfabric.messages.envelope import encode, receive, routed
from newsfabric.settings import Credentials
from newsfabric.topics import TopicPolicy, TopicTable
from operations.mirror.place import MirroredFabric
from operations.mirror.report import failures, live_line, rows
from operations.mirror.run import Mirror, MirrorOptions, run_mirror
from operations.mirror.share_record import SETTLED

TABLE = TopicTable(
    [
        TopicPolicy(pattern="news.*", topic_class="gold"),
        TopicPolicy(pattern="video.*", topic_class="bronze"),
        TopicPolicy(pattern="user.*", access="owner"),
    ]
)
TOPIC = "news.breaking"


class Stage:
    """Both fabrics and the mirror between them."""

    def __init__(self, here: Box, there: Box, frontdesks: list[Frontdesk], mirror: Mirror) -> None:
        self.here, self.there, self.frontdesks, self.mirror = here, there, frontdesks, mirror
        self.original: StubLink = here.broker.connect()
        self.client = StubBroker()
        self.client.declare_exchange("publish")
        self.other: StubLink = self.client.connect()
        self.stop, self.hurry = asyncio.Event(), asyncio.Event()
        self.lines: list[str] = []
        self.loses: Callable[[Message], bool] = lambda _: False
        self.later = 0.0
        self.close_gateway_there: Callable[[], Awaitable[None]]
        self._seq = itertools.count(1)
        self._epoch = time.time_ns() // 1_000_000

    async def route(self) -> None:
        """Route messages that are published in the other fabric to its gateway."""
        link = self.client.connect()
        consumer = await link.consumer(self.client.tap("publish"), lambda d: self._take(d))
        self._ack = consumer.ack

    def _take(self, delivery: Delivery) -> None:
        self._ack(delivery)
        if self.loses(delivery.message):
            return
        now_ms = time.time_ns() // 1_000_000
        made = routed(
            receive(delivery.message, now_ms=now_ms), now_ms=now_ms, origin="oregon",
            router="oregon-router-1", epoch=self._epoch, seq=next(self._seq),
        )  # fmt: skip
        self.there.send(encode(made))

    def class_sums(self, name: Any = "gold") -> dict[str, Any]:
        return self.mirror.record.by_class[name].class_document()

    async def watched(self, topic: str = TOPIC) -> None:
        """Wait until both observers watch ``topic``."""
        self.here.publish(topic)
        for observer in self.mirror.observers.values():
            await until(lambda watching=observer: topic in watching._since)
        self.later += SETTLED

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[dict[str, Any]]]:
        task = asyncio.create_task(
            run_mirror(
                self.mirror, self.original, self.other,
                stop=self.stop, hurry=self.hurry, print_line=self.lines.append,
            )
        )  # fmt: skip
        try:
            # Two queues: the gateway's and the mirror's.
            await until(lambda: len(self.here.broker.route("postoffice", TOPIC)) == 2)
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            for link in (self.original, self.other):
                await link.close()

    async def end(self, task: asyncio.Task[dict[str, Any]]) -> dict[str, Any]:
        """Stop without any further wait, and return the document."""
        self.stop.set()
        self.hurry.set()
        return await task


def place(frontdesk: Frontdesk) -> MirroredFabric:
    return MirroredFabric(
        region="oregon", core_urls=(), client_urls=(), endpoints_urls=(frontdesk.url,),
        board_url="http://127.0.0.1:1/board.json", credentials=Credentials(), topics=TABLE,
    )  # fmt: skip


@contextlib.asynccontextmanager
async def staged(**options: Any) -> AsyncIterator[Stage]:
    frontdesks = [Frontdesk(), Frontdesk()]
    stage: Stage | None = None

    def clock() -> float:
        return time.time() + (0.0 if stage is None else stage.later)

    settings = MirrorOptions(**{"share": 1.0, "max_readers": 0, "every": 0.5, **options})
    async with opened_box(table=TABLE) as here, contextlib.AsyncExitStack() as gateway_there:
        there = await gateway_there.enter_async_context(opened_box(table=TABLE))
        frontdesks[0].boxes, frontdesks[1].boxes = [here], [there]
        mirror = Mirror(place(frontdesks[0]), place(frontdesks[1]), settings, clock=clock)
        stage = Stage(here, there, frontdesks, mirror)
        stage.close_gateway_there = gateway_there.aclose
        await stage.route()
        yield stage
    for frontdesk in frontdesks:
        await frontdesk.close()


async def test_what_is_routed_here_is_seen_there_and_both_are_compared() -> None:
    async with staged() as stage, stage.running() as task:
        await stage.watched()
        await stage.watched("video.feed")
        for _ in range(5):
            stage.here.publish()
            stage.here.publish("video.feed")
        delays = [stage.mirror.record.by_class[c].sides["there"].delays for c in ("gold", "bronze")]
        await until(lambda: [each.count for each in delays] == [5, 5])
        await until(lambda: stage.lines)
        document = await stage.end(task)
    for name in ("gold", "bronze"):
        for side in ("here", "there"):
            found = document["classes"][name][side]
            assert (found["watched"], found["delivered"], found["missing"]) == (5, 5, 0)
    assert document["messages"]["outcomes"] == {"taken": 12}
    assert document["troubles"] == {}
    assert failures(document, fail_on_loss=True, fail_over_delay=1e9) == []
    assert [row[:3] for row in rows(document)] == [
        ("gold", "here", "5"), ("gold", "there", "5"),
        ("bronze", "here", "5"), ("bronze", "there", "5"),
    ]  # fmt: skip
    assert stage.lines[-1].startswith("heard ")


async def test_what_the_other_loses_is_missing_there_alone() -> None:
    async with staged() as stage, stage.running() as task:
        await stage.watched()
        stage.loses = lambda message: message.body == b'{"n": 1}'
        for n in range(3):
            stage.here.publish(body={"n": n})
        await until(lambda: stage.mirror.record.by_class["gold"].sides["there"].delays.count == 2)
        document = await stage.end(task)
    gold = document["classes"]["gold"]
    assert gold["here"]["missing"] == 0
    assert gold["there"]["missing_by_outcome"] == {"taken": 1}
    assert failures(document, fail_on_loss=True, fail_over_delay=None) == [
        "gold: 1 messages missing there (1 taken)"
    ]
    assert failures(document, fail_on_loss=False, fail_over_delay=None) == []


async def test_an_other_fabric_that_is_away_costs_the_original_nothing() -> None:
    async with staged() as stage:
        stage.client.cut()
        stage.frontdesks[1].boxes = []
        async with stage.running() as task:
            stage.here.publish()
            here = stage.mirror.observers["here"]
            await until(lambda: here.connected)
            stage.later += SETTLED
            for _ in range(3):
                stage.here.publish()
            delays = stage.mirror.record.by_class["gold"].sides["here"].delays
            await until(lambda: delays.count == 3)
            document = await stage.end(task)
    gold = document["classes"]["gold"]
    assert (gold["here"]["delivered"], gold["here"]["missing"]) == (3, 0)
    assert gold["there"]["watched"] == 0
    assert document["messages"]["outcomes"] == {"waiting": 4}
    assert "no gateway in oregon is ready" in document["troubles"]["the observer there"]
    assert failures(document, fail_on_loss=True, fail_over_delay=None) == [
        "nothing was compared: no message was watched in the other fabric"
    ]


async def test_an_other_fabric_that_refuses_everything_is_reported() -> None:
    async with staged() as stage, stage.running() as task:
        await stage.watched()
        stage.client.nacks = True
        stage.here.publish()
        await until(lambda: stage.class_sums()["outcomes"].get("refused") == 1)
        assert "refused 1" in live_line(stage.mirror.mirror_document(), stage.mirror.record)
        document = await stage.end(task)
    assert document["classes"]["gold"]["there"]["missing_by_outcome"] == {"refused": 1}
    assert "refused" in document["messages"]["last_refusal"]


async def test_a_gateway_there_that_dies_in_the_middle_is_reported_as_that_and_not_as_a_loss() -> (
    None
):
    async with staged() as stage, stage.running() as task:
        await stage.watched()
        stage.loses = lambda _: True
        stage.here.publish()
        await until(lambda: stage.class_sums()["outcomes"].get("taken") == 2)
        observer = stage.mirror.observers["there"]
        stage.frontdesks[1].boxes = []
        await stage.close_gateway_there()
        await until(lambda: observer.cut_off == 1)
        await until(lambda: "no gateway" in observer.trouble)
        document = await stage.end(task)
    assert document["classes"]["gold"]["there"]["watched"] == 0
    assert document["observers"]["there"] == {"connected": False, "cut_off": 1, "refused": []}


async def test_private_messages_stay_and_with_private_they_go_unwatched() -> None:
    async with staged() as stage, stage.running() as task:
        stage.here.publish("user.42")
        await stage.watched()
        document = await stage.end(task)
        assert document["messages"]["heard"] == 1
    async with staged(with_private=True) as stage, stage.running() as task:
        stage.here.publish("user.42")
        await until(lambda: stage.class_sums("silver")["outcomes"].get("taken") == 1)
        document = await stage.end(task)
        assert stage.mirror.observers["here"]._wanted == {}
        assert document["classes"]["silver"]["there"]["watched"] == 0


async def test_it_ends_by_itself_after_its_seconds_and_its_patience() -> None:
    async with staged(seconds=0.2, patience=0.2) as stage, stage.running() as task:
        stage.here.publish()
        document = await task
    assert document["messages"]["waiting"] == 0
