"""A chaos run: readers first, then publishers and faults together, then the account.

It needs a world that is up and leaves it well. The world decides nothing here: what breaks
when comes from ``schedule``, what was promised from ``books``.
"""

from __future__ import annotations

import asyncio
import dataclasses
import secrets
import sys
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import IO, Final

import orjson

from newsfabric.chaos.books import Books, Class
from newsfabric.chaos.devices import USERS, make_devices
from newsfabric.chaos.message_traces import MessageTraces
from newsfabric.chaos.publishing import TOPICS, Publishing
from newsfabric.chaos.reading import Plan, make_plans, read_line
from newsfabric.chaos.schedule import Fault, make_outages, make_schedule
from newsfabric.errors import NewsfabricError, WorldError
from newsfabric.world.faults import LINK, Faults
from newsfabric.world.issuer import issue
from newsfabric.world.layout import WorldLayout
from newsfabric.world.parts import box_name, find_parts, links, parts

_READY_WITHIN: Final = 90.0
# After the last message: as long as a box's queue keeps a message, and a repair on top, without
# anything arriving. A backlog on a slow machine is late and not lost.
_SILENT_FOR: Final = 90.0
_SETTLE_WITHIN: Final = 600.0
# A wide ocean.
_LATENCY_MS: Final = 120
_JITTER_MS: Final = 30
_LINE_LIMIT: Final = 1 << 20
# For which the tokens are good besides: until all are connected, and until all has arrived.
_MORE_THAN_A_RUN: Final = 3600.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ChaosOptions:
    """What was asked for. ``rate`` is in messages a second, over all regions; ``outages`` last for
    minutes (schedule.py)."""

    minutes: float
    seed: int
    rate: float
    readers: int
    outages: bool = False


@dataclasses.dataclass(slots=True, kw_only=True)
class Done:
    """A fault as it was carried out; times as in the books."""

    fault: Fault
    began: float
    healed: float | None = None
    error: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """All that a report needs. ``settled_after``: seconds from the last message; None: never.

    ``traces`` are of messages by number, of those that are lost or doubled and perhaps others.
    """

    run: str
    started_at: float
    options: ChaosOptions
    seconds: float
    books: Books
    faults: tuple[Done, ...]
    settled_after: float | None
    faulty: tuple[str, ...]
    traces: Mapping[int, str]


async def run_chaos(
    layout: WorldLayout, options: ChaosOptions, say: Callable[[str], None], *, log: IO[str]
) -> Outcome:
    """Run it. WorldError if it can't begin, or the readers don't live through it.

    ``log`` gets all that happens to readers, in the lines of :class:`newsfabric.chaos.reading.Log`.
    """
    run = secrets.token_hex(4)
    seconds = options.minutes * 60
    endpoints = [region.endpoints_url for region in layout.regions]
    plans = make_plans(list(TOPICS), endpoints, count=options.readers, seed=options.seed)
    users = [f"chaos-{run}-{n}" for n in range(USERS)]
    tokens = {user: issue(layout.paths, user, (), seconds + _MORE_THAN_A_RUN) for user in users}
    devices = make_devices(tokens, endpoints, seed=options.seed)
    topics: dict[str, Class] = {**TOPICS, **{f"user.{user}": "gold" for user in users}}
    make = make_outages if options.outages else make_schedule
    schedule = make(kinds(layout), seconds=seconds, seed=options.seed)
    everyone = [*plans, *devices]
    books = Books(plan.reader() for plan in everyone)
    urls = {region.name: [b.amqp_url for b in region.client] for region in layout.regions}
    say(f"{options.readers} readers and {len(devices)} devices of {USERS} users connect")
    message_traces = MessageTraces(layout, books, run=run)
    async with Readers.start(everyone, books, log, run=run, seed=options.seed) as readers:
        await readers.ready()
        began = readers.began = time.time()
        say(f"{options.rate:g} messages a second for {seconds:.0f} s, {len(schedule)} faults")
        breaker = _Breaker(layout, began, say)
        async with Publishing(
            urls, books, run=run, began=began, seed=options.seed, topics=topics
        ) as publishing:
            try:
                async with message_traces.watching(began), asyncio.TaskGroup() as group:
                    group.create_task(publishing.publish(rate=options.rate, seconds=seconds))
                    group.create_task(breaker.carry_out(schedule))
            finally:
                # Also after Ctrl-C: the world is left well.
                await breaker.heal_all()
            settled_after = await settle(books, say)
        readers.check()
        await message_traces.trace_wrong()
    return Outcome(
        run=run,
        started_at=began,
        options=options,
        seconds=seconds,
        books=books,
        faults=tuple(breaker.done),
        settled_after=settled_after,
        faulty=tuple(f"{done.fault.name}: {done.error}" for done in breaker.done if done.error),
        traces=message_traces.traces,
    )


def kinds(layout: WorldLayout) -> dict[str, list[str]]:
    """What there is to break in a world, by kind."""
    boxes = [box_name(box) for box in layout.boxes()]
    found: dict[str, list[str]] = {"box": boxes, LINK: list(links(layout))}
    for part in parts(layout).values():
        found.setdefault(part.kind, []).append(part.name)
    return found


def _plan(run: str, seed: int, plans: Sequence[Plan]) -> bytes:
    document = {"run": run, "seed": seed, "plans": [dataclasses.asdict(plan) for plan in plans]}
    return orjson.dumps(document) + b"\n"


class Readers:
    """The readers' process, and what it says entered into the books."""

    def __init__(self, process: asyncio.subprocess.Process, books: Books, log: IO[str]) -> None:
        self._process = process
        self._books = books
        self._log = log
        self._ready = asyncio.Event()
        self._ended = False
        self.began = 0.0

    @classmethod
    @asynccontextmanager
    async def start(
        cls, plans: Sequence[Plan], books: Books, log: IO[str], *, run: str, seed: int
    ) -> AsyncGenerator[Readers]:
        """Start it; it is ended with the block."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "newsfabric.chaos.crowd"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_LINE_LIMIT,
            # A Ctrl-C is for us: they end with their stdin.
            start_new_session=True,
        )
        assert process.stdin is not None
        process.stdin.write(_plan(run, seed, plans))
        readers = cls(process, books, log)
        taking = asyncio.create_task(readers._take())
        try:
            yield readers
        finally:
            process.stdin.close()
            await process.wait()
            await taking

    async def ready(self) -> None:
        """Return when every reader is subscribed."""
        try:
            async with asyncio.timeout(_READY_WITHIN):
                await self._ready.wait()
        except TimeoutError as exc:
            raise WorldError(
                f"not all readers were subscribed within {_READY_WITHIN:.0f} s"
            ) from exc

    def check(self) -> None:
        """WorldError if they have died: then nothing that is missing says anything."""
        if self._ended:
            raise WorldError("the process of the readers has died")

    async def _take(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            if b"\tready\t" in line:
                self._ready.set()
            text = line.decode()
            self._log.write(text)
            read_line(text, self._books, self.began)
        self._ended = True


class _Breaker:
    """Carries a schedule out."""

    def __init__(self, layout: WorldLayout, began: float, say: Callable[[str], None]) -> None:
        self._layout = layout
        self._began = began
        self._say = say
        self._faults = Faults(layout.paths.state)
        self.done: list[Done] = []

    async def carry_out(self, schedule: tuple[Fault, ...]) -> None:
        """Break and heal each in its time; some may last while others come."""
        async with asyncio.TaskGroup() as group:
            for fault in schedule:
                group.create_task(self._carry_out(fault))

    async def _carry_out(self, fault: Fault) -> None:
        await self._until(fault.at)
        done = Done(fault=fault, began=self._now())
        self.done.append(done)
        try:
            await asyncio.to_thread(self._break, fault)
            self._tell(f"{fault.verb} {fault.name}")
            await self._until(done.began + fault.lasts)
            await asyncio.to_thread(self._heal, fault)
        except NewsfabricError as exc:
            done.error = str(exc)
            self._tell(f"{fault.verb} {fault.name}: {exc}")
        done.healed = self._now()

    async def heal_all(self) -> None:
        """Whatever is unwell yet is healed."""

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
            case verb:
                self._faults.apply(verb, find_parts(self._layout, [fault.name]))

    def _heal(self, fault: Fault) -> None:
        if fault.kind == LINK:
            self._faults.heal_links([fault.name])
        else:
            self._faults.heal(find_parts(self._layout, [fault.name]))

    def _now(self) -> float:
        return time.time() - self._began

    async def _until(self, at: float) -> None:
        await asyncio.sleep(max(0.0, at - self._now()))

    def _tell(self, text: str) -> None:
        self._say(f"{self._now():6.1f} s  {text}")


async def settle(books: Books, say: Callable[[str], None]) -> float | None:
    """Wait until everything has arrived; how long that took, None if it never did."""
    began = moved = time.monotonic()
    seen = books.arrivals, len(books.unheard)
    say("the last message is sent; waiting for what is under way")
    while not books.settled():
        now = time.monotonic()
        if (found := (books.arrivals, len(books.unheard))) != seen:
            seen, moved = found, now
        if now > min(moved + _SILENT_FOR, began + _SETTLE_WITHIN):
            return None
        await asyncio.sleep(0.5)
    return time.monotonic() - began
