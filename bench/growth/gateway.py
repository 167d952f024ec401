"""A gateway with ever more readers, and with ever more topics.

Readers are measured beside a floor of bare ``send()`` calls, as in :mod:`bench.delivery`. The floor
has 10,000 at all sizes: a send to fewer costs less, since caches hold their sockets. The gateway
has six I/O threads, each with a descriptor table: one table may have 20,000 (:mod:`bench.crowd`).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import math
import time
from collections.abc import Sequence
from typing import Any, Final

from bench.box import TOPIC, BenchBox, Spent, running_box, subscribe_verb
from bench.crowd import THREADS
from bench.delivery import in_turn
from bench.growth.table import Figure, Growth
from bench.meter import processor_seconds
from bench.programs import BareCrowd, Program, running_crowd, running_floor
from localfabric.nodes.ports import free_ports
from newsfabric.errors import SetupError

_FLOOR_READERS: Final = 10_000
_A_CROWD: Final = 15_000
# The memory of a gateway with this many readers is subtracted: it is needed once, not per reader.
_FIRST: Final = 100
_SETTLE_SECONDS: Final = 2.0
# Of a round: enough to be measured, and done in a second with 100,000 readers.
_DELIVERIES: Final = 200_000
_MOST_MESSAGES: Final = 50
# Twice the time of a delivery on a slow machine; and the time of a message without readers.
_DELIVERY_SECONDS: Final = 25e-6
_MESSAGE_SECONDS: Final = 0.02
_PUBLISHED_TOPICS: Final = 1_000


async def readers(sizes: Sequence[int], pairs: int, idle: float) -> Growth:
    """Measure the processor time of a delivery and the cost of an idle reader, all on one topic.

    Readers are idle for ``idle`` seconds; that cost (heartbeats) is subtracted from a delivery's.
    """
    steps = []
    (port,) = free_ports(1)
    floored = min(_FLOOR_READERS, sizes[-1])
    async with contextlib.AsyncExitStack() as stack:
        box = await stack.enter_async_context(running_box("native", threads=THREADS))
        floor = await stack.enter_async_context(running_floor(port=port, connections=floored))
        crowd = await stack.enter_async_context(running_crowd(port, floored, source="127.0.100.2"))
        for program in (floor, crowd):
            await program.next_reply()
        bare = _Floor(floor, crowd, floored)
        crowds: dict[BareCrowd, int] = {}
        empty = 0
        for size in (_FIRST, *sizes):
            while (missing := size - sum(crowds.values())) > 0:
                more = min(missing, _A_CROWD)
                crowds[await _come(stack, box, len(crowds), more)] = more
            await asyncio.sleep(_SETTLE_SECONDS)
            if size == _FIRST:
                await box.publish()
                await _all_got(crowds, 1)
                empty = box.resident()
                continue
            each = (box.resident() - empty) / (size - _FIRST)
            gateway = _Gateway(box, crowds, await _waiting(box, idle))
            least, found = await in_turn(pairs, bare.round, gateway.round)
            waiting = gateway.idle.total / size
            steps.append((size, (found, found / least, gateway.control, waiting, each)))
    return Growth(
        "Readers of one gateway",
        "readers",
        (
            Figure("a delivery", "CPU µs"),
            Figure("× floor of 10,000", ""),
            Figure("… by the control plane", "CPU µs", 3),
            Figure("a second of waiting", "CPU µs", 3),
            Figure("a reader", "bytes", 0),
        ),
        tuple(steps),
    )


class _Floor:
    def __init__(self, floor: Program, crowd: BareCrowd, readers: int) -> None:
        self._floor, self._crowd, self._readers = floor, crowd, readers

    async def round(self) -> float:
        """Return µs of processor time for a bare write."""
        writes = _messages(self._readers)
        before = processor_seconds(self._floor.pid)
        gap_ms = _gap(self._readers) * 1000
        await self._floor.send_command(f"{writes} 1 {gap_ms:.0f}")
        spent = processor_seconds(self._floor.pid) - before
        await self._crowd.has_got(writes * self._readers)
        await self._crowd.send_command("report")
        return spent * 1e6 / (writes * self._readers)


class _Gateway:
    def __init__(self, box: BenchBox, crowds: dict[BareCrowd, int], idle: Spent) -> None:
        self._box, self._crowds = box, crowds
        self._readers = sum(crowds.values())
        #: µs a second.
        self.idle = idle
        #: µs for a delivery, in the last round.
        self.control = 0.0

    async def round(self) -> float:
        """Return µs of processor time of both processes for a delivery."""
        messages = _messages(self._readers)
        before, start = self._box.spent(), time.monotonic()
        for _ in range(messages):
            due = time.monotonic() + _gap(self._readers)
            await self._box.publish()
            await asyncio.sleep(due - time.monotonic())
        await _all_got(self._crowds, messages)
        count = messages * self._readers
        each = _each(self._box.spent() - before, count)
        seconds = (time.monotonic() - start) / count
        self.control = each.control - self.idle.control * seconds
        return each.total - self.idle.total * seconds


async def _waiting(box: BenchBox, seconds: float) -> Spent:
    """Return the µs that both processes take in a second without messages."""
    before = box.spent()
    await asyncio.sleep(seconds)
    return _each(box.spent() - before, seconds)


def _messages(readers: int) -> int:
    return max(2, min(_MOST_MESSAGES, _DELIVERIES // readers))


def _gap(readers: int) -> float:
    return _MESSAGE_SECONDS + readers * _DELIVERY_SECONDS


def _each(spent: Spent, count: float) -> Spent:
    """Return the µs of one of ``count``."""
    return Spent(spent.control * 1e6 / count, spent.data * 1e6 / count)


async def _come(
    stack: contextlib.AsyncExitStack,
    box: BenchBox,
    number: int,
    readers: int,
    **topics: Any,
) -> BareCrowd:
    """Connect readers of one topic, or of ``topics`` (the crowd's ``topics`` and ``say``)."""
    crowd = await stack.enter_async_context(
        running_crowd(
            box.port, readers, source=f"127.0.{number}.12", **topics or {"say": subscribe_verb()}
        )
    )
    await crowd.next_reply()
    return crowd


async def _all_got(crowds: dict[BareCrowd, int], messages: int) -> None:
    """Return when each reader has each message; SetupError if some are missing."""
    for crowd, readers in crowds.items():
        complete = await crowd.has_got(messages * readers)
        await crowd.send_command("report")
        if not complete:
            raise SetupError(f"{readers:,} readers didn't get all of {messages} messages")


@dataclasses.dataclass(frozen=True, slots=True)
class _Spread:
    """Shares of ``readers`` in ``topics``: several readers per topic, or topics per reader."""

    topics: int
    readers: int

    @property
    def each(self) -> int:
        """Topics of a reader."""
        return max(1, self.topics // self.readers)

    @property
    def on_each(self) -> int:
        """Readers of a topic."""
        return max(1, self.readers // self.topics)

    def name(self, number: int | str, nth: int) -> str:
        """Return the ``nth`` topic of the readers whose topics have this ``number``."""
        return f"{TOPIC}.{number}.{nth}"


async def topics(sizes: Sequence[int], count: int) -> Growth:
    """Measure a subscription and a message where ``count`` readers share each number of topics."""
    steps = [(size, await _with_topics(_Spread(size, count))) for size in sizes]
    return Growth(
        f"Topics of one gateway, shared by {count:,} readers",
        "topics",
        (
            Figure("a subscription", "bytes", 0),
            Figure("a reader who comes", "CPU µs", 1),
            Figure("a message, control", "CPU µs", 1),
            Figure("a message, data", "CPU µs", 1),
            Figure("deliveries a message", "", 0),
        ),
        tuple(steps),
    )


async def _with_topics(spread: _Spread) -> tuple[float, ...]:
    say = "\n".join(subscribe_verb(spread.name("%t", nth)) for nth in range(spread.each))
    numbers = min(spread.topics, spread.readers)
    async with running_box("native", threads=THREADS) as box:
        empty, before = box.resident(), box.spent()
        async with running_crowd(
            box.port, spread.readers, source="127.0.0.12", topics=numbers, say=say
        ) as crowd:
            await crowd.next_reply()
            coming = _each(box.spent() - before, spread.readers)
            await asyncio.sleep(_SETTLE_SECONDS)
            memory = (box.resident() - empty) / (spread.readers * spread.each)
            waiting = await _waiting(box, _SETTLE_SECONDS)
            messages = max(_messages(spread.readers), min(_PUBLISHED_TOPICS, spread.topics))
            before, start = box.spent(), time.monotonic()
            for n in range(messages):
                topic = spread.name(n * numbers // messages, n % spread.each)
                due = time.monotonic() + _gap(spread.on_each)
                await box.publish(topic)
                await asyncio.sleep(due - time.monotonic())
            # If readers share topics unevenly, some topics have one reader more or one less.
            await crowd.has_got(messages * spread.on_each)
            deliveries = (await crowd.send_command("report"))["frames"]
            spent, each = _each(box.spent() - before, messages), time.monotonic() - start
            each /= messages
    control, data = spent.control - waiting.control * each, spent.data - waiting.data * each
    return memory, coming.total, control, data, deliveries / messages


async def mixed(size: int, topics: int, rate: int, seconds: float) -> Growth:
    """Measure a gateway whose ``size`` readers share ``topics`` and get ``rate`` messages a second.

    No other part measures such a gateway: :mod:`bench.growth.model` predicts it from those.
    """
    crowds = max(1, math.ceil(size / _A_CROWD))
    each = size // crowds
    async with contextlib.AsyncExitStack() as stack:
        box = await stack.enter_async_context(running_box("native", threads=THREADS))
        say = {"topics": topics, "say": subscribe_verb(f"{TOPIC}.%t")}
        here = {
            await _come(stack, box, number, each, **say): each // topics for number in range(crowds)
        }
        await asyncio.sleep(_SETTLE_SECONDS)
        messages = round(rate * seconds)
        before, start = box.spent(), time.monotonic()
        for number in range(messages):
            await box.publish(f"{TOPIC}.{number % topics}")
            await asyncio.sleep(start + (number + 1) / rate - time.monotonic())
        await _all_got(here, messages)
        took = time.monotonic() - start
        busy = (box.spent() - before).total / took
        came = messages / took
    return Growth(
        "A gateway whose readers share some topics",
        "readers",
        (
            Figure("topics", "", 0),
            Figure("messages", "a second", 1),
            Figure("it takes", "of a core", 3),
        ),
        ((size, (topics, came, busy)),),
    )
