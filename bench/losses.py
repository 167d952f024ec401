"""The loss of one part of each kind: the longest wait of any reader for a gold message.

A whole world with three core nodes and three Cassandra nodes a region carries gold from publishers
of both regions to readers of both. A part of the world is killed, and started again five seconds
later; systemd would be sooner. The next loss waits until all is well. A wait is counted from the
publisher's first try to a reader's first copy. One core node a region, with SQLite, is measured for
comparison.

``python -m bench.losses`` also reports the messages that waited longest, and the path of those that
waited too long. With the folder of a running world as argument it uses that world; names of losses
after the folder select these. Some forty processes share the machine: a broker or a Cassandra node
that boots takes both cores from the others.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import io
import math
import secrets
import sys
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from bench.rows import BenchRow
from bench.world import running_world
from localfabric.chaos.delivery_record import DeliveryRecord, RecordedMessage
from localfabric.chaos.publishing import Publishing
from localfabric.chaos.reader_process import ReaderProcess
from localfabric.chaos.reading import ReaderPlan
from localfabric.chaos.run import settle
from localfabric.world import broker, cassandra
from localfabric.world.faults import Faults
from localfabric.world.finding import world_of
from localfabric.world.layout import WorldLayout
from localfabric.world.parts import find_parts
from localfabric.world.state import read_running
from newsfabric.brokers.management import Management
from newsfabric.errors import SetupError
from newsfabric.settings import Credentials
from newsfabric.topics import TopicClass
from operations.cli.trace import describe

TOPICS: Final[dict[str, TopicClass]] = {f"live.bench-{n}": "gold" for n in range(6)}
RATE: Final = 20.0
READERS: Final = 20
LIMIT: Final = 3.0
# Seconds without a loss, for comparison.
_QUIET: Final = 10.0
# Long enough to separate the cost of the loss from that of the start that follows.
_DOWN: Final = 5.0
# After all is well again, before the next loss.
_REST: Final = 3.0
_WELL_WITHIN: Final = 90.0
_LOOK_AGAIN: Final = 0.25
_BEFORE: Final = 1.0
_SEED: Final = 1
# Longer than any measurement: publishing is cancelled before.
_LONG: Final = 86_400.0
_SHOWN: Final = 4
_TRACED: Final = 2


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A loss: parts that are killed, and a shovel of ``region``'s core that is deleted."""

    name: str
    parts: tuple[str, ...] = ()
    region: str = ""
    shovel: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A loss that was carried out; times as in the record. ``healed``: the time of the restart."""

    loss: Loss
    at: float
    healed: float
    well: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The messages sent from one loss until the next; before the first loss ``done`` is None.

    ``longest``: infinite if a reader never received one of them. ``longest_away``: of the messages
    sent before the lost part was started again.
    """

    done: Done | None
    messages: tuple[RecordedMessage, ...]
    longest: float
    longest_away: float
    p50: float
    deliveries: int
    wrong: int

    @property
    def name(self) -> str:
        """The name of the loss, or ``nothing``."""
        return "nothing" if self.done is None else self.done.loss.name


def losses(layout: WorldLayout) -> tuple[Loss, ...]:
    """Return the losses of a world, one after another, all in its first region."""
    region = layout.regions[0]
    # The shovel that carries all messages from publishers to the region's routers.
    shovel = f"publish.{region.name}.1"
    core = region.core[0].name
    found = [Loss(name="a core node", parts=(core,))]
    if len(region.core) > 1:
        second = region.core[1].name
        found += [
            Loss(name="another core node", parts=(second,)),
            Loss(name="a router", parts=(region.named("router").name,)),
            Loss(name="a shovel", region=region.name, shovel=shovel),
            Loss(
                name="a shovel and its keeper",
                parts=(region.named("keeper").name,),
                region=region.name,
                shovel=shovel,
            ),
        ]
    if len(region.store_nodes) > 1:
        found.append(Loss(name="a store node", parts=(region.store_nodes[0].name,)))
    return tuple(found)


def measure() -> list[BenchRow]:
    """Return the rows of both worlds; SetupError without RabbitMQ, Java or Cassandra."""
    rows: list[BenchRow] = []
    big = ("--core-nodes", "3", "--store", "cassandra", "--store-nodes", "3", "--timeout", "600")
    for options, limit, where in ((big, LIMIT, ""), ((), None, ", one core node a region")):
        with running_world(*options) as (status, _):
            layout, _ = read_running(Path(status["state"]))
            windows = asyncio.run(lose_each(layout, _print_line))
        rows += [row for window in windows for row in _rows(window, limit, where)]
    return rows


def _rows(window: Window, limit: float | None, where: str) -> Iterator[BenchRow]:
    yield BenchRow(
        f"{window.name} lost{where}: longest wait for gold",
        window.longest,
        "s",
        at_most=None if window.done is None else limit,
        digits=2,
    )
    if window.done is not None:
        yield BenchRow(
            "… of what was sent before it was started again", window.longest_away, "s", digits=2
        )
    yield BenchRow(
        f"… lost or doubled, of {window.deliveries:,} deliveries",
        window.wrong,
        "",
        digits=0,
        at_most=0,
    )


async def lose_each(
    layout: WorldLayout, print_line: Callable[[str], None], only: Sequence[str] = ()
) -> list[Window]:
    """Carry out each loss in turn under steady publishing; the first window has no loss.

    ``only``: names of losses, if not all are wanted.
    """
    run = secrets.token_hex(4)
    plans = _plans(layout)
    record = DeliveryRecord(plan.reader() for plan in plans)
    urls = {region.name: [b.amqp_url for b in region.client] for region in layout.regions}
    conduct = _Conduct(layout, print_line)
    await conduct.until_well()
    async with ReaderProcess.start(plans, record, io.StringIO(), run=run, seed=_SEED) as readers:
        await readers.ready()
        began = conduct.began = time.time()
        readers.begin(began)
        async with Publishing(
            urls, record, run=run, began=began, seed=_SEED, topics=TOPICS
        ) as publishing:
            sending = asyncio.create_task(publishing.publish(rate=RATE, seconds=_LONG))
            try:
                await asyncio.sleep(_QUIET)
                for loss in losses(layout):
                    if not only or loss.name in only:
                        await conduct.lose(loss)
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
                await conduct.heal_all()
            await settle(record, print_line)
        readers.check()
    found = windows(record, conduct.done)
    for window in found:
        for line in explain(window, record):
            print_line(line)
        for message in _slowest(window, record)[:_TRACED]:
            if _wait(message, record) > LIMIT:
                text = await describe(f"{run}-{message.n}", world_of(layout), topic=message.topic)
                print_line(text)
    return found


def _plans(layout: WorldLayout) -> list[ReaderPlan]:
    """Return plans of readers of all regions that stay, each with two of the topics."""
    topics, regions = list(TOPICS), [region.endpoints_url for region in layout.regions]
    return [
        ReaderPlan(
            name=f"{layout.regions[n % len(regions)].name}-{n}",
            habit="staying",
            topics=(topics[n % len(topics)], topics[(n + 1) % len(topics)]),
            regions=(regions[n % len(regions)], *regions),
            transport="websocket",
            stays=None,
        )
        for n in range(READERS)
    ]


class _Conduct:
    """Breaks parts, heals them, and waits until all is well."""

    def __init__(self, layout: WorldLayout, print_line: Callable[[str], None]) -> None:
        self._layout = layout
        self._print_line = print_line
        self._faults = Faults(layout.paths.state)
        self.began = 0.0
        self.done: list[Done] = []

    async def lose(self, loss: Loss) -> None:
        """Break the parts, start them again, and return when all is as before."""
        parts = find_parts(self._layout, loss.parts)
        at = self._now()
        self._print_line(
            f"{at:6.1f} s  {loss.name} is lost: {', '.join(loss.parts) or loss.shovel}"
        )
        await asyncio.to_thread(self._faults.apply, "kill", parts)
        if loss.shovel is not None:
            await self._delete_shovel(loss.region, loss.shovel)
        await asyncio.sleep(_DOWN)
        await asyncio.to_thread(self._faults.heal, parts)
        healed = self._now()
        await self.until_well()
        well = self._now()
        self._print_line(f"{well:6.1f} s  all is well")
        self.done.append(Done(loss=loss, at=at, healed=healed, well=well))
        await asyncio.sleep(_REST)

    async def heal_all(self) -> None:
        """Start the parts that are still dead, should a loss have ended early."""
        names = [name for loss in losses(self._layout) for name in loss.parts]
        await asyncio.to_thread(self._faults.heal, find_parts(self._layout, names))

    async def until_well(self) -> None:
        """Return when every node replies and every service is ready, or after 90 seconds."""
        layout, port = self._layout, 0
        wanted = [
            *((broker.answers, each.amqp_port) for each in layout.brokers()),
            *((cassandra.answers, each.cql_port) for each in layout.store_nodes()),
            *((_ready, port) for port in _health_ports(layout)),
        ]
        try:
            async with asyncio.timeout(_WELL_WITHIN):
                for is_well, port in wanted:
                    await _until(functools.partial(is_well, port))
        except TimeoutError:
            self._print_line(f"{port} isn't well after {_WELL_WITHIN:g} s; going on nevertheless")

    async def _delete_shovel(self, region: str, shovel: str) -> None:
        node = self._layout.region(region).core[-1]
        async with Management(node.management_url, Credentials()) as management:
            await management.delete_shovel(shovel)

    def _now(self) -> float:
        return time.time() - self.began


async def _until(check: Callable[[], bool]) -> None:
    while not await asyncio.to_thread(check):  # noqa: ASYNC110 - another process is looked at
        await asyncio.sleep(_LOOK_AGAIN)


def _health_ports(layout: WorldLayout) -> Iterator[int]:
    for region in layout.regions:
        yield from (router.port for router in region.of("router"))
        yield region.named("keeper").port
        yield from (port for box in region.boxes for port in (box.agent_port, box.admin_port))


def _ready(port: int) -> bool:
    url = f"http://{broker.HOST}:{port}/healthz/ready"
    try:
        with urllib.request.urlopen(url, timeout=2.0) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def windows(record: DeliveryRecord, done: Sequence[Done]) -> list[Window]:
    """Return one window before the first loss and one from each loss on. Pure.

    A message sent in the last second before a loss may suffer from it, so it counts with that loss.
    """
    begins = [0.0, *(each.at - _BEFORE for each in done), math.inf]
    account = record.account()
    found = []
    for since, until, each in zip(begins, begins[1:], [None, *done], strict=False):
        messages = [m for m in record.messages.values() if since <= m.sent < until]
        numbers = {m.n for m in messages}
        waits = sorted(record.delays(since=since, until=until))
        away = [m for m in messages if each is not None and m.sent < each.healed]
        found.append(
            Window(
                done=each,
                messages=tuple(messages),
                longest=_longest(record, messages),
                longest_away=_longest(record, away),
                p50=waits[len(waits) // 2] if waits else math.inf,
                deliveries=len(waits),
                wrong=sum(len(w.readers) for w in account.wrong if w.n in numbers),
            )
        )
    return found


def _longest(record: DeliveryRecord, messages: Iterable[RecordedMessage]) -> float:
    """Return the longest wait in seconds; 0 without messages, infinite if a delivery is missing."""
    longest = 0.0
    for message in messages:
        arrived = record.first[message.n].values()
        if len(arrived) < len(record.readers_of(message.topic)):
            return math.inf
        longest = max(longest, max(arrived, default=message.sent) - message.sent)
    return longest


def explain(window: Window, record: DeliveryRecord) -> Iterator[str]:
    """Yield lines that explain the window to a person: the messages that waited longest."""
    at = 0.0 if window.done is None else window.done.at
    yield (
        f"{window.name} lost: p50 {window.p50 * 1000:.0f} ms, longest {window.longest:.2f} s, "
        f"{window.deliveries} deliveries, {window.wrong} wrong"
    )
    if window.done is not None:
        healed, well = window.done.healed - at, window.done.well - at
        yield (
            f"  started again after {healed:.1f} s, all well after {well:.1f} s; longest of what "
            f"was sent before it was started {window.longest_away:.2f} s"
        )
    for message in _slowest(window, record)[:_SHOWN]:
        waits: dict[str, list[float]] = {}
        for reader, arrived in record.first[message.n].items():
            waits.setdefault(reader.partition("-")[0], []).append(arrived - message.sent)
        readers = "; ".join(
            f"readers of {region} {min(found):.2f} to {max(found):.2f} s"
            for region, found in sorted(waits.items())
        )
        receipt = message.receipted
        after = "never" if receipt is None else f"after {receipt - message.sent:.2f} s"
        yield (
            f"  {message.n} sent {message.sent - at:+.2f} s in {message.region}: {readers}; "
            f"receipt {after}, {message.router}"
        )


def _slowest(window: Window, record: DeliveryRecord) -> list[RecordedMessage]:
    return sorted(window.messages, key=lambda message: _wait(message, record), reverse=True)


def _wait(message: RecordedMessage, record: DeliveryRecord) -> float:
    """Return the longest wait of the readers that received ``message``; infinite if none did."""
    arrived = record.first[message.n].values()
    return max(arrived) - message.sent if arrived else math.inf


def _print_line(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str]) -> None:
    """Measure in worlds of its own, or in the one whose folder is the first argument."""
    if arguments:
        layout, _ = read_running(Path(arguments[0]).resolve())
        asyncio.run(lose_each(layout, _print_line, arguments[1:]))
        return
    try:
        measure()
    except SetupError as exc:
        sys.exit(f"error: {exc}")


if __name__ == "__main__":
    main(sys.argv[1:])
