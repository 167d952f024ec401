"""A gateway that has just begun, for tests of its memory and its reads of its topics' past."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest
from envelopes import START_MS, envelope
from gateways import until

from gateway.logs.logs import Logs
from gateway.memory.hub import Hub, HubLimits
from gateway.past.archive import Archive
from gateway.past.replay import Question, Replay
from gateway.past.rewind import Rewinds
from gateway.process.settings import GatewaySettings
from gateway.process.tasks import Tasks
from gateway.wire.protocol import Rewind
from gateway.wire.publication import Publication
from newsfabric.errors import StoreError
from newsfabric.messages.envelope import Envelope
from newsfabric.metrics import REGISTRY
from newsfabric.store.logs import DirectoryRow, Log
from newsfabric.store.memory import MemoryStore
from newsfabric.topics import TopicPolicy, TopicTable

TABLE = TopicTable(
    [
        TopicPolicy(pattern="news.latest", keep=3, latest=True),
        TopicPolicy(pattern="news.*", keep=3),
    ]
)
TOPIC = "news.a"
OREGON = Log("oregon", "oregon-router-1", START_MS)
# The routing time of number 0; one more number was routed each second.
BEGAN = START_MS / 1000
# The time at which the gateway began. All numbers up to 90 are past.
NOW = BEGAN + 600
LOW = 90


class GatedStore(MemoryStore):
    """A store that counts reads. Each read finds its rows at once, and then waits for ``gate``."""

    def __init__(self) -> None:
        super().__init__(TABLE, now_ms=lambda: int(NOW * 1000))
        self.reads = 0
        self.error: StoreError | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def history(self, *args: Any, **kwargs: Any) -> list[Envelope]:
        self.reads += 1
        return await self._answer(await super().history(*args, **kwargs))

    async def latest(self, *args: Any, **kwargs: Any) -> list[Envelope]:
        return await self._answer(await super().latest(*args, **kwargs))

    async def _answer(self, found: list[Envelope]) -> list[Envelope]:
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return found


class BegunBox:
    """A gateway that has just begun."""

    def __init__(self, limits: HubLimits | None = None) -> None:
        self.now = NOW
        logs = Logs(int(NOW * 1000))
        logs.begin([DirectoryRow(OREGON, low=LOW)], now=NOW)
        self.hub = Hub(TABLE, logs, limits)
        self.store = GatedStore()
        self.tasks = Tasks()
        settings = GatewaySettings(name="box", region="oregon")
        self.rewinds = Rewinds(
            hub=self.hub,
            archive=Archive(self.store, settings),
            settings=settings,
            spawn=self.tasks.spawn,
            now=lambda: self.now,
        )

    def comes(self, *envelopes: Envelope) -> None:
        """Offer ``envelopes`` to the hub as the feed does; none of them may be a copy."""
        for one in envelopes:
            assert self.hub.offer(one, self.now) is not None

    def from_memory(self, question: Question, now: float | None = None) -> Replay | None:
        return self.rewinds.answer_from_memory(question._replace(asked_at=now or self.now))

    async def from_store(self, question: Question, now: float | None = None) -> Replay:
        return await self.rewinds.answer_from_store(question._replace(asked_at=now or self.now))

    async def waiting(self, *questions: Question) -> list[asyncio.Task[Replay]]:
        """Ask the store; return the tasks once one of them waits for it."""
        self.store.gate.clear()
        before = self.store.reads
        tasks = [asyncio.create_task(self.from_store(question)) for question in questions]
        await until(lambda: self.store.reads > before)
        return tasks


@pytest.fixture
async def box() -> AsyncIterator[BegunBox]:
    box = BegunBox()
    yield box
    await box.tasks.close()


def message(number: int, **fields: Any) -> Envelope:
    """Return number ``number``, routed ``number`` seconds after number 0."""
    return envelope(number, **{"at": number * 1_000, "topic": TOPIC, **fields})


def messages(*numbers: int, **fields: Any) -> list[Envelope]:
    return [message(number, **fields) for number in numbers]


def last(count: int, topic: str = TOPIC) -> Question:
    return Question(topic, NOW, rewind=Rewind(count=count))


def seconds(ago: float, topic: str = TOPIC) -> Question:
    return Question(topic, NOW, rewind=Rewind(seconds=ago))


def newest(topic: str = "news.latest") -> Question:
    return Question(topic, NOW)


def seqs(found: Replay | None) -> list[int]:
    assert found is not None
    return [one.envelope.seq for one in found.publications]


def numbers(publications: Iterable[Publication]) -> list[int]:
    return [one.envelope.seq for one in publications]


def failures() -> float:
    return REGISTRY.get_sample_value("newsfabric_gateway_store_failures_total") or 0.0
