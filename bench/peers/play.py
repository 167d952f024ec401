"""A run of one peer, and rounds of all of them."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import enum
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from http.client import HTTPException
from typing import Any, Final

from bench.meter import processor_seconds
from bench.peers.catalogue import Peer
from bench.peers.servers import Server
from bench.programs import BareCrowd, running_crowd, running_floor
from localfabric.nodes.ports import free_ports
from newsfabric.errors import NewsfabricError

FLOOR: Final = "floor"
_SOURCE: Final = "127.0.0.2"
# A crowd has an address for each 8,192 readers, and two crowds may be connected at a time.
_SOURCE_OF_OTHERS: Final = "127.0.0.10"
_SOURCE_OF_RETURNED: Final = "127.0.0.20"
# One of this many readers is measured; all of them if there are few.
_SAMPLE: Final = 4
_WARM_UP: Final = 2
# One of this many readers stalls.
_STALLED: Final = 100
# One of this many readers stays in a reconnect storm, and is measured.
_STAYS: Final = 10


class Under(enum.StrEnum):
    """A condition that makes a comparison harder."""

    NOTHING = ""
    #: Messages are compressed (RFC 7692).
    DEFLATE = "deflate"
    #: One reader of a hundred reads nothing.
    STALLED = "stalled"
    #: Nine readers of ten are cut off and connect anew, all at once.
    STORM = "storm"


_CONDITIONS: Final = {
    Under.DEFLATE: ", compressed",
    Under.STALLED: ", 1 % of the readers read nothing",
    Under.STORM: ", 90 % of the readers reconnect at once",
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """``readers``, evenly on ``topics``; each receives ``messages`` with ``size`` bytes of payload
    within ``seconds``."""

    readers: int = 5_000
    topics: int = 1
    size: int = 200
    messages: int = 20
    seconds: float = 5.0
    under: Under = Under.NOTHING

    @property
    def title(self) -> str:
        """The differences between plans, as text."""
        topics = "one topic" if self.topics == 1 else f"{self.topics} topics"
        harder = _CONDITIONS.get(self.under, "")
        return f"{self.readers:,} readers, {topics}, {self.size:,} bytes{harder}"

    @property
    def reading(self) -> int:
        """The number of readers that are measured."""
        match self.under:
            case Under.STALLED:
                return self.readers - -(-self.readers // _STALLED)
            case Under.STORM:
                return -(-self.readers // _STAYS)
        return self.readers


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The result of one run. ``cpu_us`` is processor time of the server in µs: for one delivery, or
    in a storm for one reader that reconnects. ``handshakes`` are readers accepted per second.
    ``bytes_each`` is the server's memory for one reader, ``bytes_stalled`` the additional memory
    for one that reads nothing. Delays are from the time when a message was due until a reader had
    it, in ms; None for the floor, whose messages have no send time."""

    cpu_us: float
    handshakes: float
    bytes_each: float | None = None
    bytes_stalled: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    p999_ms: float | None = None
    worst_ms: float | None = None
    missing: int = 0


async def play(peer: Peer, plan: Plan) -> Run:
    """Start the peer, connect its readers, publish to them. ConnectionError if some were refused,
    ValueError if no message was compressed in a compressed run."""
    async with peer.running(plan.under is Under.DEFLATE) as server:
        if plan.under is Under.STORM:
            return await _play_storm(peer, server, plan)
        before = server.resident()
        async with _connected(peer, server, plan, plan.readers) as (crowd, came):
            idle = server.resident()
            await _warm_up(server, crowd, plan)
            report, cpu = await _measured(server, crowd, plan)
            grown = server.resident() - idle
    if plan.under is Under.DEFLATE and not report["compressed"]:
        raise ValueError("no message came compressed")
    return _found(
        report,
        plan,
        cpu_us=cpu * 1e6 / (plan.reading * plan.messages),
        handshakes=came["connections"] / came["seconds"],
        bytes_each=(idle - before) / plan.readers,
        bytes_stalled=(
            grown / (plan.readers - plan.reading) if plan.under is Under.STALLED else None
        ),
    )


async def _play_storm(peer: Peer, server: Server, plan: Plan) -> Run:
    """Measure one reader of ten, which stays, while the others are cut off and reconnect."""
    returning = plan.readers - plan.reading
    async with (
        _connected(peer, server, plan, plan.reading) as (crowd, _),
        contextlib.AsyncExitStack() as cut,
    ):
        await cut.enter_async_context(_connected(peer, server, plan, returning, _SOURCE_OF_OTHERS))
        await _warm_up(server, crowd, plan)
        measuring = asyncio.create_task(_measured(server, crowd, plan))
        try:
            # The storm happens in the middle of the publishing.
            await asyncio.sleep(plan.seconds / 4)
            before = server.spent()
            await cut.aclose()
            back = _connected(peer, server, plan, returning, _SOURCE_OF_RETURNED)
            async with back as (_, came):
                cpu = server.spent() - before
                report, _ = await measuring
        finally:
            measuring.cancel()
            await asyncio.wait([measuring])
    return _found(
        report, plan, cpu_us=cpu * 1e6 / returning, handshakes=returning / came["seconds"]
    )


@contextlib.asynccontextmanager
async def _connected(
    peer: Peer, server: Server, plan: Plan, readers: int, source: str = _SOURCE
) -> AsyncIterator[tuple[BareCrowd, Mapping[str, Any]]]:
    """Connect ``readers``; yield the crowd and its first line, with the connection times."""
    async with running_crowd(
        server.port,
        readers,
        source=source,
        path=peer.path,
        say=peer.say,
        topics=plan.topics,
        sample=_SAMPLE if readers > 1_000 else 1,
        deflate=int(plan.under is Under.DEFLATE),
        stalled=_STALLED if plan.under is Under.STALLED else 0,
        events=int(peer.events),
        answers=peer.answers,
    ) as crowd:
        came = await crowd.next_reply()
        if came["connections"] < readers:
            raise ConnectionError(f"{readers - came['connections']} of {readers} didn't get in")
        yield crowd, came


async def _warm_up(server: Server, crowd: BareCrowd, plan: Plan) -> None:
    await _publish(server, crowd, plan, _WARM_UP)
    await crowd.send_command("report")


async def _measured(
    server: Server, crowd: BareCrowd, plan: Plan
) -> tuple[Mapping[str, Any], float]:
    """Return the crowd's report of all messages, and the server's processor seconds meanwhile."""
    spent = server.spent()
    await _publish(server, crowd, plan, plan.messages)
    return await crowd.send_command("report"), server.spent() - spent


def _found(report: Mapping[str, Any], plan: Plan, **figures: Any) -> Run:
    return Run(
        missing=plan.reading * plan.messages - report["frames"],
        **{name: report[name] for name in ("p50_ms", "p99_ms", "p999_ms", "worst_ms")},
        **figures,
    )


async def _publish(server: Server, crowd: BareCrowd, plan: Plan, messages: int) -> None:
    """Send each message when it is due, even if earlier ones haven't arrived; wait for the last."""
    gap = plan.seconds / (plan.messages * plan.topics)
    start = time.monotonic() + 0.1
    for number in range(messages * plan.topics):
        due = start + number * gap
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        await server.send(number % plan.topics, int(due * 1e9), plan.size)
    await crowd.has_got(plan.reading * messages)


async def play_floor(plan: Plan) -> Run:
    """Run the bare loop of ``send()``, with as many deliveries; topics don't matter to it."""
    (port,) = free_ports(1)
    async with (
        running_floor(port=port, connections=plan.readers, frame_bytes=plan.size) as floor,
        running_crowd(port, plan.readers, source=_SOURCE) as crowd,
    ):
        await floor.next_reply()
        came = await crowd.next_reply()
        gap = int(1000 * plan.seconds / plan.messages)
        await floor.send_command(f"{_WARM_UP} 1 {gap}")
        await crowd.has_got(plan.readers * _WARM_UP)
        await crowd.send_command("report")
        spent = processor_seconds(floor.pid)
        await floor.send_command(f"{plan.messages} 1 {gap}")
        cpu = processor_seconds(floor.pid) - spent
        owed = plan.readers * plan.messages
        await crowd.has_got(owed)
        report = await crowd.send_command("report")
    return Run(
        cpu_us=cpu * 1e6 / owed,
        handshakes=came["connections"] / came["seconds"],
        missing=owed - report["frames"],
    )


def order(names: Sequence[str], number: int) -> Iterator[str]:
    """Return the order of peers in round ``number``: every other round is reversed."""
    return iter(names) if number % 2 == 0 else reversed(names)


async def rounds(
    peers: Sequence[Peer], plan: Plan, count: int, say: Callable[[str], None]
) -> tuple[dict[str, list[Run]], dict[str, str]]:
    """Return ``count`` runs of the floor and each peer, in turn; and the errors of peers, by name.

    A peer that fails is left out from then on. Without the floor there is no comparison: its
    failure is raised. In a storm there is no floor, since it accepts no reader again.
    """
    known = {peer.name: peer for peer in peers}
    floor = [] if plan.under is Under.STORM else [FLOOR]
    found: dict[str, list[Run]] = {name: [] for name in (*floor, *known)}
    failed: dict[str, str] = {}
    if plan.under is Under.DEFLATE:
        failed = {name: "it doesn't compress" for name in known if not known[name].deflates}
    for number in range(count):
        for name in order([*floor, *known], number):
            if name in failed:
                continue
            say(f"{plan.title}: round {number + 1} of {count}, {name}")
            if name == FLOOR:
                found[name].append(await play_floor(plan))
                continue
            try:
                found[name].append(await play(known[name], plan))
            except (OSError, ValueError, NewsfabricError, HTTPException) as exc:
                failed[name] = f"{type(exc).__name__}: {exc}"
    return {name: runs for name, runs in found.items() if name not in failed}, failed


def median(runs: Sequence[Run], figure: str) -> float | None:
    """Return the median of one figure; None if no run has it."""
    values = [value for run in runs if (value := getattr(run, figure)) is not None]
    return statistics.median(values) if values else None


def ratios(found: Mapping[str, Sequence[Run]], name: str) -> tuple[float, float, float]:
    """Return median, least and most of a peer's processor time over the floor's of each round."""
    pairs = zip(found[name], found[FLOOR], strict=True)
    each = sorted(run.cpu_us / floor.cpu_us for run, floor in pairs)
    return statistics.median(each), each[0], each[-1]


def as_json(found: Mapping[str, Sequence[Run]]) -> dict[str, list[dict[str, Any]]]:
    """Return all runs, by name."""
    return {name: [dataclasses.asdict(run) for run in runs] for name, runs in found.items()}
