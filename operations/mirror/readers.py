"""The process of the mirrored readers: ``python -m operations.mirror.readers``.

A process of its own, so that a thousand readers don't delay the carrier and the observers, whose
delays are measured. Its first line on stdin has the URLs of the endpoints, each later one the
target of the crowd (:class:`operations.mirror.crowd.Wanted`). Each second it writes its counts as a
line to stdout. It ends when stdin is closed.

A mirrored reader asks for the endpoints, chooses a gateway, connects, subscribes, and receives
until the run ends it. A disconnected reader doesn't reconnect: new readers fill the crowd up.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import sys
import time
from contextlib import suppress
from typing import Any, Final

import orjson
import uvloop

from newsfabric.backoff import Backoff
from newsfabric.errors import Disconnected
from newsfabric.reader import Reader, connect, fetch_endpoints
from operations.mirror.crowd import Turnover, Wanted, chosen
from operations.mirror.delays import DelayHistogram

_EVERY: Final = 0.25
_REPORT_EVERY: Final = 1.0
_CONNECT_WITHIN: Final = 15.0
_AT_ONCE: Final = 64
_NOBODY: Final = Wanted(readers=0, connects_per_second=0.0, topics=(), probability=1.0)


@dataclasses.dataclass(slots=True)
class ReaderCounts:
    """Counts of the readers so far. ``turned_away``: not begun, since too many were connecting."""

    opened: int = 0
    failed: int = 0
    turned_away: int = 0
    left: int = 0
    cut_off: int = 0
    messages: int = 0
    trouble: str = ""


class MirrorReaders:
    """Readers of the other fabric, as many as are wanted."""

    def __init__(self, endpoints: list[str], *, ramp: float, seed: int) -> None:
        self.wanted = _NOBODY
        self.counts = ReaderCounts()
        self.connects = DelayHistogram()
        self._endpoints = endpoints
        self._turnover = Turnover(ramp)
        self._rng = random.Random(seed)  # noqa: S311 - no secret
        # All readers, and those of them that aren't subscribed yet.
        self._readers: set[asyncio.Task[None]] = set()
        self._coming: set[asyncio.Task[None]] = set()
        # After a failure no reader begins during a pause, as the readers of a page back off.
        self._backoff = Backoff(base=0.2, cap=10.0, reset_after=5.0)
        self._not_before = 0.0

    @property
    def here(self) -> int:
        """The number of readers that are connected and subscribed."""
        return len(self._readers) - len(self._coming)

    async def run(self) -> None:
        """Let readers connect and leave until cancelled; then all leave."""
        try:
            last = time.monotonic()
            while True:
                await asyncio.sleep(_EVERY)
                now = time.monotonic()
                self.step(now, now - last)
                last = now
        finally:
            for task in self._readers:
                task.cancel()
            await asyncio.gather(*self._readers, return_exceptions=True)

    def step(self, now: float, seconds: float) -> None:
        """Begin the connects and leaves that are due."""
        come, leave = self._turnover.step(self.wanted, len(self._readers), seconds)
        # A reader that is still connecting leaves later: a half-made connection can't be closed.
        here = list(self._readers - self._coming)
        for task in self._rng.sample(here, min(leave, len(here))):
            self.counts.left += 1
            task.cancel()
        for _ in range(come):
            if len(self._coming) >= _AT_ONCE or now < self._not_before:
                self.counts.turned_away += 1
                continue
            task = asyncio.create_task(self._read())
            for tasks in (self._readers, self._coming):
                tasks.add(task)
                task.add_done_callback(tasks.discard)

    async def _read(self) -> None:
        began = time.monotonic()
        opened = False
        try:
            async with asyncio.timeout(_CONNECT_WITHIN) as patience:
                endpoints = await fetch_endpoints(self._rng.choice(self._endpoints))
                if not endpoints.gateways:
                    raise Disconnected(1013, f"no gateway in {endpoints.region} is ready")
                async with await connect(endpoints.choose(self._rng)) as reader:
                    waiting = set(await self._subscribe(reader))
                    async for push in reader:
                        if push.type in ("subscribed", "error"):
                            waiting.discard(str(push.fields.get("ref")))
                        self.counts.messages += push.is_message
                        if not opened and not waiting:
                            opened = True
                            patience.reschedule(None)
                            self._opened(time.monotonic() - began)
        except (Disconnected, TimeoutError) as exc:
            self.counts.trouble = (str(exc) or "no answer in time")[:200]
            if opened:
                self.counts.cut_off += 1
            else:
                self._failed(time.monotonic())

    async def _subscribe(self, reader: Reader) -> list[str]:
        topics = chosen(self.wanted.topics, self.wanted.probability, self._rng)
        for topic in topics:
            await reader.subscribe(topic)
        return topics

    def _opened(self, seconds: float) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._coming.discard(task)
        self.counts.opened += 1
        self.counts.trouble = ""
        self.connects.add(seconds)
        self._backoff.succeeded(time.monotonic())

    def _failed(self, now: float) -> None:
        self.counts.failed += 1
        if now >= self._not_before:
            self._not_before = now + self._backoff.failed(now, self._rng)

    def line(self) -> dict[str, Any]:
        """Return the counts that are written each second."""
        return {
            "readers": self.here,
            "wanted": self.wanted.readers,
            **dataclasses.asdict(self.counts),
            "connect_p50_ms": self.connects.ms(0.5),
            "connect_p99_ms": self.connects.ms(0.99),
        }


def parse_wanted(line: bytes) -> Wanted:
    """Parse the JSON that :func:`orjson.dumps` made of a Wanted."""
    fields = orjson.loads(line)
    return Wanted(**fields | {"topics": tuple(fields["topics"])})


async def _main() -> None:
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader(limit=1 << 20)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    first = orjson.loads(await lines.readline())
    crowd = MirrorReaders(first["endpoints"], ramp=first["ramp"], seed=first["seed"])
    tasks = [asyncio.create_task(crowd.run()), asyncio.create_task(_print_reports(crowd))]
    try:
        while line := await lines.readline():
            crowd.wanted = parse_wanted(line)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _print_reports(crowd: MirrorReaders) -> None:
    while True:
        await asyncio.sleep(_REPORT_EVERY)
        sys.stdout.buffer.write(orjson.dumps(crowd.line()) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt, BrokenPipeError):
        uvloop.run(_main())
