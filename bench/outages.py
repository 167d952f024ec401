"""The wait of publishers for receipts while one broker of their region is down, and returns.

A world of one region with two client nodes and three core nodes; forty publishers of the library
send gold, silver and bronze in turn. A node is killed, or stopped (its sockets stay open, and it is
silent), and continues half a minute later. A wait is counted from the publisher's first try to the
receipt, of all messages from the outage until the node has been back for a while.

``python -m bench.outages`` prints the whole table only. All processes of the world share the
machine: a node that boots takes both cores from the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import math
import random
import sys
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from bench.rows import BenchRow
from bench.world import running_world
from localfabric.world.faults import Faults, Signal
from localfabric.world.layout import RegionLayout, WorldLayout
from localfabric.world.parts import find_parts
from localfabric.world.state import read_running
from newsfabric.errors import PublishError, Rejected
from newsfabric.publish import AsyncPublisher
from newsfabric.topics import TopicClass

TOPICS: Final[dict[str, TopicClass]] = {
    "live.bench-outages": "gold",
    "news.bench-outages": "silver",
    "markets.bench-outages": "bronze",
}
WORLD: Final = ("--regions", "oregon", "--client-nodes", "2", "--core-nodes", "3")
PUBLISHERS: Final = 40
LIMIT: Final = 1.5
# Of each publisher: forty messages a second in all.
_PAUSE: Final = 1.0
_QUIET: Final = 15.0
_AWAY: Final = 30.0
# With the node back: the cost of its return belongs to the outage.
_BACK: Final = 20.0
_WELL_WITHIN: Final = 120.0
_RECENT: Final = 5.0
_DONE: Final[dict[Signal, str]] = {"kill": "killed", "stop": "stopped"}


@dataclasses.dataclass(slots=True, kw_only=True)
class Sent:
    """A message: its send time, its class, and the wait for its receipt (None: none yet)."""

    at: float
    klass: TopicClass
    waited: float | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The messages of one class during one outage, with the seconds they waited for receipts."""

    outage: str
    klass: TopicClass
    messages: int
    receipts: int
    p50: float
    p99: float
    worst: float

    @property
    def unanswered(self) -> int:
        """The number of messages without a receipt."""
        return self.messages - self.receipts


def figures(outage: str, sent: Iterable[Sent]) -> list[Figures]:
    """Return the figures of each class in ``sent``; none for a class that was not sent."""
    found = []
    listed = list(sent)
    for klass in TOPICS.values():
        of_class = [one for one in listed if one.klass == klass]
        waits = sorted(one.waited for one in of_class if one.waited is not None)
        if of_class:
            found.append(
                Figures(
                    outage=outage,
                    klass=klass,
                    messages=len(of_class),
                    receipts=len(waits),
                    p50=quantile(waits, 0.5),
                    p99=quantile(waits, 0.99),
                    worst=quantile(waits, 1.0),
                )
            )
    return found


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest of sorted ``values`` that ``share`` of them don't exceed, or infinity."""
    return values[max(0, math.ceil(share * len(values)) - 1)] if values else math.inf


def measure() -> list[BenchRow]:
    """Return two rows for each outage and class; the whole table is printed to stderr."""
    found = _measured()
    _print(found)
    rows = []
    for one in found:
        name = f"{one.outage}: {one.klass}"
        rows += [
            BenchRow(
                f"{name}, the worst wait of {one.receipts}", one.worst, "s", digits=2, at_most=LIMIT
            ),
            BenchRow(f"{name}, without a receipt", one.unanswered, "messages", digits=0, at_most=0),
        ]
    return rows


def _measured() -> list[Figures]:
    # Otherwise each publisher would log the loss of each broker.
    logging.getLogger("newsfabric.amqp").setLevel(logging.ERROR)
    with running_world(*WORLD) as (status, _):
        layout, _ = read_running(Path(status["state"]))
        return asyncio.run(_measure_world(layout))


async def _measure_world(layout: WorldLayout) -> list[Figures]:
    region = layout.regions[0]
    faults = Faults(layout.paths.state)
    sent: list[Sent] = []
    began = {"nothing is broken": time.monotonic()}
    async with _publishing(region, sent):
        await asyncio.sleep(_QUIET)
        for kind, node in (("core", region.core[0].name), ("client", region.client[0].name)):
            for verb, done in _DONE.items():
                print(f"  {node} is {done} …", file=sys.stderr)
                began[f"a {kind} node is {done}"] = time.monotonic()
                await _outage(layout, faults, node, verb)
                # Messages that wait longer belong to this outage, not to the next one.
                await _until_answered(sent)
    times = [*began.values(), math.inf]
    return [
        each
        for n, outage in enumerate(began)
        for each in figures(outage, (one for one in sent if times[n] <= one.at < times[n + 1]))
    ]


async def _outage(layout: WorldLayout, faults: Faults, node: str, verb: Signal) -> None:
    """Break ``node``, heal it after a while, and return when it has been back for a while."""
    parts = find_parts(layout, [node])
    await asyncio.to_thread(faults.apply, verb, parts)
    await asyncio.sleep(_AWAY)
    await asyncio.to_thread(faults.heal, parts)
    async with asyncio.timeout(_WELL_WITHIN):
        while await asyncio.to_thread(faults.unwell, parts):  # noqa: ASYNC110 - nothing to wait on
            await asyncio.sleep(0.5)
    await asyncio.sleep(_BACK)


async def _until_answered(sent: Sequence[Sent]) -> None:
    """Return when all sent 1.5 to 6.5 s ago has a receipt or rejection, or after two minutes."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_WELL_WITHIN):
            while True:
                until = time.monotonic() - LIMIT
                late = [one for one in sent if until - _RECENT <= one.at < until]
                if late and all(one.waited is not None for one in late):
                    return
                await asyncio.sleep(0.5)


@contextlib.asynccontextmanager
async def _publishing(region: RegionLayout, sent: list[Sent]) -> AsyncIterator[None]:
    """Run forty publishers until the end of the block; then wait for the reply to each message."""
    urls = ",".join(broker.amqp_url for broker in region.client)
    stop = asyncio.Event()
    async with contextlib.AsyncExitStack() as stack:
        publishers = [
            await stack.enter_async_context(await AsyncPublisher.open([urls], app_id="bench"))
            for _ in range(PUBLISHERS)
        ]
        async with asyncio.TaskGroup() as group:
            for publisher in publishers:
                group.create_task(_publish(publisher, sent, stop))
            try:
                yield
            finally:
                stop.set()


async def _publish(publisher: AsyncPublisher, sent: list[Sent], stop: asyncio.Event) -> None:
    """Send each message when it is due, whether or not earlier ones have a reply."""
    topics = list(TOPICS.items())
    due = time.monotonic() + random.uniform(0.0, _PAUSE)
    turn = random.randrange(len(topics))
    async with asyncio.TaskGroup() as group:
        while not stop.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, due - time.monotonic())):
                    await stop.wait()
                    return
            topic, klass = topics[turn % len(topics)]
            one = Sent(at=time.monotonic(), klass=klass)
            sent.append(one)
            group.create_task(_answered(publisher, topic, one))
            due, turn = due + _PAUSE, turn + 1


async def _answered(publisher: AsyncPublisher, topic: str, one: Sent) -> None:
    try:
        await publisher.publish(topic, {"at": time.time()})
    except Rejected:
        # A reply too: bronze under overload.
        pass
    except PublishError:
        return
    one.waited = time.monotonic() - one.at


def _print(found: Iterable[Figures]) -> None:
    table = Table(title=f"{PUBLISHERS} publishers, one message a second each")
    for column in ("", "class", "messages", "receipts", "unanswered", "p50", "p99", "worst"):
        table.add_column(column, justify="right" if column not in ("", "class") else "left")
    for one in found:
        counts = (one.messages, one.receipts, one.unanswered)
        seconds = (one.p50, one.p99, one.worst)
        table.add_row(
            one.outage, one.klass, *map(str, counts), *(f"{value:.3f} s" for value in seconds)
        )
    Console(stderr=True, width=120).print(table)


if __name__ == "__main__":
    _print(_measured())
