"""Resuming at a control plane that has just begun, while its data plane and readers live on."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Coroutine
from typing import Any

from envelopes import envelope

from gateway.archive import Archive
from gateway.hub import Hub
from gateway.position import encode, entry, stream_hash
from gateway.protocol import Gap
from gateway.publication import Publication
from gateway.resume import Resumer
from gateway.settings import GatewaySettings
from gateway.streams import Streams
from newsfabric.envelope import Envelope, id_of
from newsfabric.store.memory import MemoryStore
from newsfabric.topics import TopicPolicy, TopicTable

TABLE = TopicTable([TopicPolicy(pattern="live.*", keep=20, topic_class="gold")])
TOPIC, ROUTER = "live.blog", "oregon-router-1"


class GatedStore(MemoryStore):
    """Gives what it has found when it is let."""

    def __init__(self) -> None:
        super().__init__(TABLE)
        self.asked = asyncio.Event()
        self.gates = [asyncio.Event(), asyncio.Event()]

    async def since(self, topic: str, *, from_ms: int, limit: int) -> list[Envelope]:
        gate = self.gates.pop(0)
        found = await super().since(topic, from_ms=from_ms, limit=limit)
        self.asked.set()
        await gate.wait()
        return found


class Restarted:
    """A gateway that took over two seconds ago from one that had followed a router for a minute."""

    def __init__(self) -> None:
        self.now = time.time()
        self.epoch = self._ms(60)
        streams = Streams(self.now - 2)
        # Router and gateways had begun together, as they do in a world.
        streams.listened_since(self.epoch + 500, known_ms=self.epoch + 500)
        streams.resume(ROUTER, self.epoch, 90, routed_ms=self._ms(6))
        self.hub = Hub(TABLE, streams)
        self.store = GatedStore()
        self.published: list[Publication] = []
        self._tasks: set[asyncio.Task[None]] = set()
        told = GatewaySettings(name="box", region="oregon", resume_bytes=1 << 20)
        self.resumer = Resumer(
            hub=self.hub,
            archive=Archive(self.store, told),
            told=told,
            spawn=self._spawn,
            publish=self.published.append,
        )

    def message(self, number: int) -> Envelope:
        made = envelope(number, topic=TOPIC, epoch=self.epoch)
        ms = self._ms(60 - number * 0.6)
        return dataclasses.replace(made, id=id_of(ms, made.identity))

    def position(self, seq: int, *, ago: float) -> str:
        """Of a reader who has all up to ``seq``, at a gateway with a hole ``ago`` seconds old."""
        ms = self._ms(ago)
        return encode(ms - 600_000, ms, [entry(stream_hash(ROUTER, self.epoch), seq)])

    def _ms(self, ago: float) -> int:
        return int((self.now - ago) * 1000)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        return task


async def test_readers_whose_positions_differ_in_age_are_all_told_that_nothing_is_missing() -> None:
    box = Restarted()
    sent = [box.message(number) for number in range(1, 101)]
    await box.store.write(sent)
    for live in sent[90:]:
        box.hub.offer(live, box.now)
    gates = list(box.store.gates)
    first = asyncio.create_task(box.resumer.recover(TOPIC, box.position(88, ago=8)))
    await box.store.asked.wait()
    # A read that begins later and reaches further back.
    box.store.asked.clear()
    second = asyncio.create_task(box.resumer.recover(TOPIC, box.position(85, ago=600)))
    await box.store.asked.wait()
    for gate in gates:
        gate.set()
    for recalled, seen in ((await first, 88), (await second, 85)):
        assert recalled.gap is None
        assert [one.envelope.seq for one in recalled.publications] == [*range(seen + 1, 101)]
    # What the gateway before had published is no news to those who are connected.
    assert box.published == []


async def test_what_is_kept_of_reads_is_bounded_in_bytes_and_what_was_too_much_is_told() -> None:
    box = Restarted()
    box.store.gates = [asyncio.Event() for _ in range(20)]
    for gate in box.store.gates:
        gate.set()
    large = b'"' + b"x" * 50_000 + b'"'
    topics = [f"live.{n}" for n in range(10)]
    for topic in topics:
        for n in range(1, 51):
            fields = {"topic": topic, "router": f"router of {topic}", "body": large}
            await box.store.write([dataclasses.replace(box.message(n), **fields)])
    for topic in topics:
        recalled = await box.resumer.recover(topic, box.position(0, ago=600))
        assert recalled.gap is Gap.TOO_MANY
        # The newest that fit into one MiB.
        assert [one.envelope.seq for one in recalled.publications] == [*range(31, 51)]
    # Windows and answers, each four MiB and what one weighs more: bodies count twice.
    assert box.resumer.kept_bytes <= 2 * (4 << 20)
    assert box.resumer.kept_bytes > 1 << 20


async def test_a_message_that_the_store_has_spoilt_is_a_gap_that_is_told() -> None:
    box = Restarted()
    box.store.gates[0].set()
    sent = [box.message(number) for number in range(1, 11)]
    sent[4] = dataclasses.replace(sent[4], body=b'{"cut off')
    await box.store.write(sent)
    recalled = await box.resumer.recover(TOPIC, box.position(2, ago=600))
    assert recalled.gap is Gap.STORE
    assert [one.envelope.seq for one in recalled.publications] == [3, 4, 6, 7, 8, 9, 10]


async def test_who_lacks_what_was_given_up_is_told() -> None:
    box = Restarted()
    box.store.gates[0].set()
    box.hub.streams.ticked(ROUTER, box.epoch, 92, void=(), sent_ms=int(box.now * 1000), now=box.now)
    box.hub.streams.give_up((ROUTER, box.epoch), 91, 92, at_ms=int(box.now * 1000))
    recalled = await box.resumer.recover(TOPIC, box.position(90, ago=6))
    assert recalled.gap is Gap.GIVEN_UP
    recalled = await box.resumer.recover(TOPIC, box.position(92, ago=6))
    assert recalled.gap is None
