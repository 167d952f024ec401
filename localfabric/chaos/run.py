"""A chaos run: readers first, then publishers and faults together, then the account.

It needs a world that is up, and heals it at the end. The decisions are elsewhere: faults and their
times come from ``schedule``, the promises from ``delivery_record``.
"""

from __future__ import annotations

import asyncio
import dataclasses
import secrets
import time
from collections.abc import Callable, Mapping
from typing import IO, Final

from localfabric.chaos.delivery_record import DeliveryRecord
from localfabric.chaos.devices import USERS, make_devices
from localfabric.chaos.message_traces import MessageTraces
from localfabric.chaos.publishing import TOPICS, Publishing
from localfabric.chaos.reader_process import ReaderProcess
from localfabric.chaos.reading import make_plans
from localfabric.chaos.schedule import Fault, make_outages, make_schedule
from localfabric.world.faults import LINK, Faults
from localfabric.world.issuer import issue
from localfabric.world.layout import WorldLayout
from localfabric.world.parts import (
    FEED_PART,
    STORE_PART,
    WorldPart,
    box_name,
    find_parts,
    link_parts,
    links,
    parts,
)
from localfabric.world.queues import WorldQueue, queues
from newsfabric.errors import NewsfabricError
from newsfabric.topics import TopicClass, load_topics

# The time without an arrival after which the rest is lost: as long as a box's queue keeps a
# message, and a repair. A backlog on a slow machine is late, not lost.
_SILENT_FOR: Final = 90.0
_SETTLE_WITHIN: Final = 600.0
# The latency of a wide ocean.
_LATENCY_MS: Final = 120
_JITTER_MS: Final = 30
# Time for which tokens are valid beside the run: until all are connected, and all has arrived.
_MORE_THAN_A_RUN: Final = 3600.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ChaosOptions:
    """The options of the command. ``rate`` is in messages a second, over all regions; ``outages``:
    no other faults (schedule.py)."""

    minutes: float
    seed: int
    rate: float
    readers: int
    outages: bool = False


@dataclasses.dataclass(slots=True, kw_only=True)
class InjectedFault:
    """A fault as it was carried out; times as in the record."""

    fault: Fault
    began: float
    healed: float | None = None
    error: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ChaosOutcome:
    """The data of a report. ``settled_after``: seconds from the last message; None: never.

    ``traces`` are by message number, of messages lost or doubled and perhaps others.
    """

    run: str
    started_at: float
    options: ChaosOptions
    seconds: float
    record: DeliveryRecord
    faults: tuple[InjectedFault, ...]
    settled_after: float | None
    faulty: tuple[str, ...]
    traces: Mapping[int, str]


async def run_chaos(
    layout: WorldLayout, options: ChaosOptions, print_line: Callable[[str], None], *, log: IO[str]
) -> ChaosOutcome:
    """Run it. WorldError if it can't begin, or the readers' process dies.

    ``log`` gets all events of readers, in the lines of
    :class:`localfabric.chaos.reading.EventWriter`.
    """
    run = secrets.token_hex(4)
    seconds = options.minutes * 60
    endpoints = [region.endpoints_url for region in layout.regions]
    plans = make_plans(
        list(TOPICS),
        endpoints,
        count=options.readers,
        seed=options.seed,
        minutes=options.minutes,
    )
    users = [f"chaos-{run}-{n}" for n in range(USERS)]
    tokens = {user: issue(layout.paths, user, (), seconds + _MORE_THAN_A_RUN) for user in users}
    devices = make_devices(tokens, endpoints, seed=options.seed)
    topics: dict[str, TopicClass] = {**TOPICS, **{f"user.{user}": "gold" for user in users}}
    make = make_outages if options.outages else make_schedule
    queues_there = queues(layout, load_topics(layout.paths.topics))
    schedule = make(kinds(layout, queues_there), seconds=seconds, seed=options.seed)
    everyone = [*plans, *devices]
    record = DeliveryRecord(plan.reader() for plan in everyone)
    urls = {region.name: [b.amqp_url for b in region.client] for region in layout.regions}
    print_line(f"{options.readers} readers and {len(devices)} devices of {USERS} users connect")
    message_traces = MessageTraces(layout, record, run=run)
    async with ReaderProcess.start(everyone, record, log, run=run, seed=options.seed) as readers:
        await readers.ready()
        began = time.time()
        readers.begin(began)
        print_line(
            f"{options.rate:g} messages a second for {seconds:.0f} s, {len(schedule)} faults"
        )
        breaker = _Breaker(layout, queues_there, began, print_line)
        async with Publishing(
            urls, record, run=run, began=began, seed=options.seed, topics=topics
        ) as publishing:
            try:
                async with message_traces.watching(began), asyncio.TaskGroup() as group:
                    group.create_task(publishing.publish(rate=options.rate, seconds=seconds))
                    group.create_task(breaker.carry_out(schedule))
            finally:
                # Even after Ctrl-C: the world is healed.
                await breaker.heal_all()
            readers.call_back()
            settled_after = await settle(record, print_line)
        readers.check()
        await message_traces.trace_wrong()
    return ChaosOutcome(
        run=run,
        started_at=began,
        options=options,
        seconds=seconds,
        record=record,
        faults=tuple(breaker.done),
        settled_after=settled_after,
        faulty=tuple(f"{done.fault.name}: {done.error}" for done in breaker.done if done.error),
        traces=message_traces.traces,
    )


def kinds(layout: WorldLayout, there: Mapping[str, WorldQueue]) -> dict[str, list[str]]:
    """Return the names of all breakable parts of a world, by kind; ``there`` are its queues."""
    pieces = list(link_parts(layout))
    found: dict[str, list[str]] = {
        "box": [box_name(box) for box in layout.boxes()],
        LINK: list(links(layout)),
        "store link": [name for name in pieces if name.endswith(STORE_PART)],
        "feed link": [name for name in pieces if name.endswith(FEED_PART)],
    }
    named: list[WorldPart | WorldQueue] = [*parts(layout).values(), *there.values()]
    for each in named:
        found.setdefault(each.kind, []).append(each.name)
    return found


class _Breaker:
    """Carries out a schedule."""

    def __init__(
        self,
        layout: WorldLayout,
        queues: Mapping[str, WorldQueue],
        began: float,
        print_line: Callable[[str], None],
    ) -> None:
        self._layout = layout
        self._queues = queues
        self._began = began
        self._print_line = print_line
        self._faults = Faults(layout.paths.state)
        self.done: list[InjectedFault] = []

    async def carry_out(self, schedule: tuple[Fault, ...]) -> None:
        """Break and heal each in its time; faults may overlap."""
        async with asyncio.TaskGroup() as group:
            for fault in schedule:
                group.create_task(self._carry_out(fault))

    async def _carry_out(self, fault: Fault) -> None:
        await self._until(fault.at)
        done = InjectedFault(fault=fault, began=self._now())
        self.done.append(done)
        try:
            await asyncio.to_thread(self._break, fault)
            self._report(f"{fault.verb} {fault.name}")
            await self._until(done.began + fault.lasts)
            await asyncio.to_thread(self._heal, fault)
        except NewsfabricError as exc:
            done.error = str(exc)
            self._report(f"{fault.verb} {fault.name}: {exc}")
        done.healed = self._now()

    async def heal_all(self) -> None:
        """Heal everything that is still broken."""

        def heal() -> None:
            self._faults.heal(self._faults.unwell(list(parts(self._layout).values())))
            if ill := self._faults.ill_links():
                self._faults.heal_links(ill)

        await asyncio.to_thread(heal)

    def _break(self, fault: Fault) -> None:
        match fault.verb:
            case "cut":
                self._faults.cut([fault.name])
            case "slow":
                self._faults.slow([fault.name], latency_ms=_LATENCY_MS, jitter_ms=_JITTER_MS)
            case "lose":
                self._faults.lose([self._queues[fault.name]])
            case verb:
                self._faults.apply(verb, find_parts(self._layout, [fault.name]))

    def _heal(self, fault: Fault) -> None:
        match fault.verb:
            case "cut" | "slow":
                self._faults.heal_links([fault.name])
            case "lose":
                # The queue's owner declares it again.
                pass
            case _:
                self._faults.heal(find_parts(self._layout, [fault.name]))

    def _now(self) -> float:
        return time.time() - self._began

    async def _until(self, at: float) -> None:
        await asyncio.sleep(max(0.0, at - self._now()))

    def _report(self, text: str) -> None:
        self._print_line(f"{self._now():6.1f} s  {text}")


async def settle(record: DeliveryRecord, print_line: Callable[[str], None]) -> float | None:
    """Wait until everything has arrived; return the seconds it took, None if it never did."""
    began = moved = time.monotonic()
    seen = record.arrivals, len(record.unheard)
    print_line("the last message is sent; waiting for messages on their way")
    while not record.settled():
        now = time.monotonic()
        if (found := (record.arrivals, len(record.unheard))) != seen:
            seen, moved = found, now
        if now > min(moved + _SILENT_FOR, began + _SETTLE_WITHIN):
            return None
        await asyncio.sleep(0.5)
    return time.monotonic() - began
