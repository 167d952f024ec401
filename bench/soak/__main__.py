"""``python -m bench.soak``: churn for minutes, then a table; exit code 1 if anything wasn't flat.

Not a measure of speed. Visitors of every bad kind come and go, and steady readers must get every
message once. In the first half, control planes are killed and displaced; in the second the last
one stays, so that its own memory can be judged. A panic, an error in a log and an exit code that
isn't 0 are bad too.

Memory is flat if the median of the last fifth of the samples is little above that of the first
fifth after the warm-up: at most 12 % or 8 MiB, whichever is more. The warm-up is the first quarter:
of the whole time for the data plane, of the second half for the control plane. Descriptors are
flat if, when all visitors have gone, there are at most 8 more than before they came.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import dataclasses
import json
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import uvloop
from rich.console import Console
from rich.table import Table

from bench.soak.messages import STEADY, TABLE, NumberingRouter, line_of, tick_line
from bench.soak.processes import ControlPlane, Dataplane, ProcessSample, sample_of
from bench.soak.readers import Steady, Visitors
from newsfabric.store.sqlite import SqliteStore

_STEADY_READERS: Final = 40
_VISITORS: Final = 48
_PUBLISH_EVERY: Final = 0.05
_GROWTH: Final = 0.12
_GROWTH_BYTES: Final = 8 << 20
_MORE_DESCRIPTORS: Final = 8
# Time for unpolled sessions, unanswered close frames and unfinished requests to end.
_SETTLE: Final = 12.0
_GATEWAY: Final = {
    "heartbeat": 10.0,
    "linger": 1.0,
    "drain_seconds": 0.0,
    "unfinished_seconds": 2.0,
    "sockjs_disconnect_delay": 1.0,
}
_NATIVE: Final = {"alone_seconds": 600.0, "threads": 2}


@dataclasses.dataclass(frozen=True, slots=True)
class Check:
    """A check and its verdict."""

    what: str
    before: str
    after: str
    good: bool


def memory(what: str, samples: Sequence[ProcessSample]) -> Check:
    """Check that memory stayed flat; see the module's docstring."""
    if len(samples) < 4:
        return Check(what, "?", "too short to judge", True)
    later = samples[len(samples) // 4 :]
    fifth = max(1, len(later) // 5)
    before = statistics.median(sample.rss for sample in later[:fifth])
    after = statistics.median(sample.rss for sample in later[-fifth:])
    good = after - before <= max(before * _GROWTH, _GROWTH_BYTES)
    return Check(what, f"{before / 2**20:.1f} MiB", f"{after / 2**20:.1f} MiB", good)


def descriptors(what: str, before: ProcessSample, after: ProcessSample) -> Check:
    """Check that no more descriptors are open than at first, but for a few."""
    good = after.descriptors - before.descriptors <= _MORE_DESCRIPTORS
    return Check(what, str(before.descriptors), str(after.descriptors), good)


class Soak:
    """A run of the soak."""

    def __init__(self, folder: Path, minutes: float, seed: int) -> None:
        self._folder = folder
        self._seconds = minutes * 60
        self._rng = random.Random(seed)
        self._dataplane = Dataplane(folder, "--threads", "2")
        self._router = NumberingRouter()
        self._store = SqliteStore(folder / "store.sqlite", TABLE)
        # Control planes that live; the last one is attached.
        self._planes: list[ControlPlane] = []
        self._started = time.monotonic()
        self._samples: list[ProcessSample] = []
        self._plane_samples: list[ProcessSample] = []
        self._counts: collections.Counter[str] = collections.Counter()
        self._published = 0
        self._checks: list[Check] = []

    @property
    def _elapsed(self) -> float:
        return time.monotonic() - self._started

    async def run(self) -> list[Check]:
        """Churn, settle, check."""
        await self._next_plane()
        readers = [Steady() for _ in range(_STEADY_READERS)]
        staying = [
            asyncio.create_task(reader.stay(self._dataplane.port, sockjs=n % 2 == 1))
            for n, reader in enumerate(readers)
        ]
        async with asyncio.timeout(30):
            await asyncio.gather(*(reader.ready.wait() for reader in readers))
        publishing = asyncio.create_task(self._publish())
        await asyncio.sleep(2)
        before = sample_of(self._dataplane.process.pid, 0)
        visiting = [asyncio.create_task(self._visit()) for _ in range(_VISITORS)]
        killing = asyncio.create_task(self._kill())
        await self._sample()
        await asyncio.gather(*visiting, killing)
        publishing.cancel()
        await asyncio.wait([publishing])
        await asyncio.sleep(_SETTLE)
        pid = self._dataplane.process.pid
        self._checks = [
            memory("data plane, memory", self._samples),
            descriptors("data plane, descriptors", before, sample_of(pid, self._elapsed)),
            memory("control plane, memory", self._plane_samples),
            descriptors(
                "control plane, descriptors",
                self._plane_first,
                sample_of(self._planes[-1].pid, self._elapsed),
            ),
            self._all_got(readers),
            self._dataplane_lives(),
        ]
        for task in staying:
            task.cancel()
        await asyncio.wait(staying)
        await self._stop()
        return self._checks

    def _all_got(self, readers: Sequence[Steady]) -> Check:
        expected = dict.fromkeys(range(self._published), 1)
        bad = [reader for reader in readers if reader.lost or reader.got != expected]
        for reader in bad[:3]:
            missing = [n for n in expected if n not in reader.got]
            twice = [n for n, times in reader.got.items() if times > 1]
            print(f"lost: {reader.lost}, missing {missing[:9]}, twice {twice[:9]}", file=sys.stderr)
        return Check(
            "steady readers with each message once",
            str(len(readers)),
            str(len(readers) - len(bad)),
            not bad,
        )

    def _dataplane_lives(self) -> Check:
        trouble = self._dataplane.trouble
        return Check("data plane", "running", trouble or "running", trouble is None)

    async def _next_plane(self) -> None:
        settings = {
            "store": str(self._folder / "store.sqlite"),
            "gateway": _GATEWAY,
            "native": {**_NATIVE, "socket": str(self._dataplane.path)},
        }
        plane = await ControlPlane.start(settings, self._folder / "control-planes.log")
        self._planes.append(plane)
        await plane.ready()
        self._plane_first = sample_of(plane.pid, self._elapsed)
        self._plane_samples.clear()

    async def _publish(self) -> None:
        number = 0
        while True:
            topic = self._rng.choice((STEADY, "news.other", "live.score", "video.clip"))
            body: dict[str, Any] = {"text": "x" * self._rng.choice((10, 300, 3_000, 20_000))}
            if topic == STEADY:
                body = {"n": self._published, "text": "x" * self._rng.choice((10, 500))}
                self._published += 1
            key = f"k{number % 5}" if topic == "live.score" else None
            made = self._router.message(topic, body, key=key)
            await self._store.write([made])
            for plane in self._planes:
                plane.feed(line_of(made))
                if number % 20 == 0:
                    plane.feed(tick_line())
            number += 1
            await asyncio.sleep(_PUBLISH_EVERY)

    async def _visit(self) -> None:
        rng = random.Random(self._rng.random())
        visitors = Visitors(self._dataplane.port, rng, self._count)
        while self._elapsed < self._seconds:
            await visitors.come()
            await asyncio.sleep(rng.uniform(0, 0.1))

    def _count(self, kind: str) -> None:
        self._counts[kind] += 1

    async def _kill(self) -> None:
        """End control planes: killed, stopped and then displaced, or displaced while they work."""
        every = min(max(8.0, self._seconds / 30), 30.0)
        while self._elapsed < self._seconds / 2 - every:
            await asyncio.sleep(every)
            old = self._planes[-1]
            how = self._rng.choice(("killed", "stopped", "displaced"))
            if how == "killed":
                old.signal(signal.SIGKILL)
                self._planes.clear()
                await asyncio.sleep(self._rng.uniform(0, 3))
            elif how == "stopped":
                old.signal(signal.SIGSTOP)
            await self._next_plane()
            if how == "stopped":
                old.signal(signal.SIGKILL)
            await old.ended()
            self._planes = self._planes[-1:]
            self._count(f"control plane {how}")

    async def _sample(self) -> None:
        every = min(5.0, self._seconds / 60)
        printed_at = 0.0
        while self._elapsed < self._seconds and self._dataplane.trouble is None:
            await asyncio.sleep(every)
            self._samples.append(sample_of(self._dataplane.process.pid, self._elapsed))
            if self._elapsed > self._seconds / 2 and self._planes:
                self._plane_samples.append(sample_of(self._planes[-1].pid, self._elapsed))
            if self._elapsed - printed_at >= 30:
                printed_at = self._elapsed
                self._print_progress()

    def _print_progress(self) -> None:
        last = self._samples[-1]
        plane = self._plane_samples[-1].rss / 2**20 if self._plane_samples else 0
        print(
            f"{last.at:5.0f} s  data plane {last.rss / 2**20:6.1f} MiB,"
            f" {last.descriptors} descriptors;  control plane {plane:6.1f} MiB; "
            f" {self._counts.total():,} visits,"
            f" {self._published:,} steady messages",
            file=sys.stderr,
            flush=True,
        )

    async def _stop(self) -> None:
        for plane in self._planes:
            plane.signal(signal.SIGTERM)
            code = await plane.ended()
            self._checks.append(Check("control plane's exit code", "0", str(code), code == 0))
        code = await asyncio.to_thread(self._dataplane.process.wait, 30)
        self._checks.append(Check("data plane's exit code", "0", str(code), code == 0))
        log = (self._folder / "control-planes.log").read_text()
        # Tracebacks that were logged, and those that ended a process.
        errors = log.count(" ERROR ") + log.count(" CRITICAL ") + log.count("\nTraceback")
        self._checks.append(Check("errors in control planes' logs", "0", str(errors), not errors))
        await self._store.close()

    def report(self) -> dict[str, Any]:
        """Return everything, as JSON."""
        return {
            "seconds": round(self._elapsed),
            "steady_messages": self._published,
            "visits": dict(self._counts),
            "dataplane": [dataclasses.asdict(sample) for sample in self._samples],
            "control_plane": [dataclasses.asdict(sample) for sample in self._plane_samples],
            "verdicts": [dataclasses.asdict(check) for check in self._checks],
        }

    def kill(self) -> None:
        """Kill all processes, whatever happened."""
        for plane in self._planes:
            plane.signal(signal.SIGKILL)
        self._dataplane.process.kill()
        self._dataplane.process.wait()


def _print(soak: Soak, checks: Sequence[Check]) -> None:
    report = soak.report()
    visits = sum(report["visits"].values())
    title = f"{report['seconds']} s, {visits:,} visits, {report['steady_messages']:,} messages"
    table = Table(title=title)
    for column in ("what", "before", "after", ""):
        table.add_column(column, justify="left" if column == "what" else "right")
    for check in checks:
        mark = "[green]good[/]" if check.good else "[red]BAD[/]"
        table.add_row(check.what, check.before, check.after, mark)
    Console().print(table)


def main() -> int:
    """Run a soak with the options of the command line; return 0 if all was flat."""
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (10)")
    parser.add_argument("--seed", type=int, default=None, help="of what the visitors do")
    parser.add_argument("--json", action="store_true", help="print every sample as JSON")
    parser.add_argument("--logs", type=Path, default=None, help="folder for logs; kept")
    options = parser.parse_args()
    seed = random.getrandbits(32) if options.seed is None else options.seed
    print(f"seed {seed}", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="newsfabric-soak-") as scratch:
        folder = options.logs or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        soak = Soak(folder, options.minutes, seed)
        try:
            checks = uvloop.run(soak.run())
        finally:
            soak.kill()
    if options.json:
        print(json.dumps(soak.report(), indent=1))
    else:
        _print(soak, checks)
    return 0 if all(check.good for check in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
