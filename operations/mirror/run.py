"""A run of the mirror: two links, two observers, the readers, and the record between them."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import secrets
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

from newsfabric.amqp import Link
from newsfabric.errors import ConfigError
from newsfabric.numbers import is_number
from newsfabric.topics import CLASSES
from operations.mirror.asking import Asking
from operations.mirror.board import Crowded
from operations.mirror.carrier import OLDEST, Carrier, SendBuffer
from operations.mirror.copying import Candidate, Copying, carried_patterns
from operations.mirror.counters import MirrorCounters, observe
from operations.mirror.crowd import Wanted, wanted
from operations.mirror.observer import Observer
from operations.mirror.place import MirroredFabric
from operations.mirror.rates import Rates
from operations.mirror.readers_process import NO_REPORT, ReadersProcess
from operations.mirror.report import live_line, plain
from operations.mirror.share_record import SIDES, Outcome, ShareRecord, Side

_TICK: Final = 1.0
_MOST: Final = {
    "share": 1.0,
    "reader_share": 1.0,
    "ramp": 10_000.0,
    "seconds": 1e9,
    "every": 1e9,
    "patience": 600.0,
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MirrorOptions:
    """The options of the command. Times are in seconds.

    ``share`` is of messages, ``reader_share`` of readers; ``readers`` is a fixed number instead of
    ``reader_share``. ``seconds`` None: until it is stopped.
    """

    share: float = 0.1
    reader_share: float = 0.1
    readers: int | None = None
    max_readers: int = 1_000
    ramp: float = 50.0
    seconds: float | None = None
    every: float = 5.0
    patience: float = 15.0
    with_private: bool = False
    board_token_file: Path | None = None

    def __post_init__(self) -> None:
        for name, most in _MOST.items():
            value = getattr(self, name)
            if value is not None and not is_number(value, 0, most):
                raise ConfigError(f"{name.replace('_', '-')}: not a number from 0 to {most:g}")

    @property
    def plays_readers(self) -> bool:
        """True if there are to be readers at all."""
        share = self.reader_share if self.readers is None else self.readers
        return self.max_readers > 0 and share > 0


class Mirror:
    """All parts of one run. ``clock`` is in seconds since the epoch, and doesn't jump."""

    def __init__(
        self,
        original: MirroredFabric,
        other: MirroredFabric,
        options: MirrorOptions,
        *,
        clock: Callable[[], float] | None = None,
    ) -> None:
        if original.topics is None:
            raise ConfigError("the original's topics.toml isn't known: name it with --topics")
        self.clock = _steady_clock() if clock is None else clock
        self.options = options
        self.record = ShareRecord(patience=options.patience, on_delay=observe)
        self.patterns = carried_patterns(original.topics, with_private=options.with_private)
        self.carrier = Carrier(
            Copying(
                original.topics,
                share=options.share,
                with_private=options.with_private,
                others=other.topics,
            ),
            clock=self.clock,
            on_candidate=self._take_candidate,
            on_outcome=self._went,
            # A judged message must have its final outcome.
            buffer=SendBuffer(oldest=min(OLDEST, options.patience)),
        )
        self.observers: dict[Side, Observer] = {
            "here": self._observer("here", original.endpoints_urls[0]),
            "there": self._observer("there", other.endpoints_urls[0]),
        }
        self.readers: ReadersProcess | None = None
        self.asking = Asking(original.board_url, options.board_token_file)
        self._original, self._other = original, other
        self._rates = Rates(self.clock())
        self._counters = MirrorCounters()
        self._began = self.clock()
        self._links: dict[str, Link] = {}

    def _observer(self, side: Side, url: str) -> Observer:
        def on_message(identity: int, connection: int, fresh: bool) -> None:
            self.record.arrived(
                side, identity, connection=connection, now=self.clock(), fresh=fresh
            )

        return Observer(
            url,
            clock=self.clock,
            # A copy's identity may differ; the record ignores identities that it doesn't know.
            share=self.options.share if side == "here" else 1.0,
            on_message=on_message,
            on_lost=lambda: self.record.lost_sight(side),
        )

    def _take_candidate(self, heard: Candidate) -> None:
        now = self.clock()
        if heard.public:
            self._rates.note(heard.topic, now)
        if heard.copy is None:
            return
        watched: dict[Side, bool] = dict.fromkeys(SIDES, False)
        if heard.public:
            for side, observer in self.observers.items():
                observer.watch(heard.topic)
                watched[side] = observer.watches(heard.topic, now)
        self.record.note_original(
            heard.identity,
            identity_there=heard.identity_there,
            topic_class=heard.topic_class,
            taken=heard.taken_ms / 1000,
            now=now,
            watched_here=watched["here"],
            watched_there=watched["there"],
        )

    def _went(self, identity: int, outcome: Outcome) -> None:
        self.record.went(identity, outcome, self.clock())

    @contextlib.asynccontextmanager
    async def running(self, original: Link, other: Link) -> AsyncIterator[None]:
        """Mirror from one link to the other until the context ends."""
        self._links = {"the original's core": original, "the other's client cluster": other}
        async with contextlib.AsyncExitStack() as stack:
            if self.options.plays_readers:
                self.readers = await stack.enter_async_context(
                    ReadersProcess.start(
                        self._other.endpoints_urls,
                        ramp=self.options.ramp,
                        seed=secrets.randbits(32),
                    )
                )
            await self.carrier.open(original, other, self.patterns)
            work = [self.carrier.run(), self._tick()]
            work += [observer.run() for observer in self.observers.values()]
            if self.readers is not None and self.options.readers is None:
                work.append(self.asking.run())
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one) for one in work]
                try:
                    yield
                finally:
                    for task in tasks:
                        task.cancel()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            self.carrier.expire()
            self.record.judge(self.clock())
            if self.readers is not None:
                self.readers.send_wanted(self._wanted())
            self._counters.update(
                self.record,
                heard=self.carrier.heard,
                left_out=self.carrier.left_out,
                waiting=self.carrier.waiting,
                readers=NO_REPORT if self.readers is None else self.readers.last_report,
            )

    def _wanted(self) -> Wanted:
        options, rates = self.options, self._rates.per_second(self.clock())
        if options.readers is not None:
            fixed = Crowded(readers=options.readers)
            return wanted(fixed, rates, share=1.0, max_readers=options.max_readers)
        known = self.asking.crowded or Crowded()
        return wanted(known, rates, share=options.reader_share, max_readers=options.max_readers)

    async def settle(self, hurry: asyncio.Event) -> None:
        """Stop consuming, and return when all messages are judged, or ``hurry`` is set."""
        await self.carrier.stop()
        self.record.close(self.clock())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.options.patience + 2 * _TICK):
                while len(self.record) and not hurry.is_set():
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(hurry.wait(), _TICK)
        self.record.judge(float("inf"))

    def mirror_document(self) -> dict[str, Any]:
        """Return the results so far, as ``--json`` prints them."""
        record, options = self.record, self.options
        classes = {name: record.by_class[name].class_document() for name in CLASSES}
        outcomes: dict[str, int] = {}
        for class_sums in record.by_class.values():
            for name, count in class_sums.outcomes.items():
                outcomes[name] = outcomes.get(name, 0) + count
        last_report = NO_REPORT if self.readers is None else self.readers.last_report
        crowded = self.asking.crowded
        return {
            "from": self._original.region,
            "to": self._other.region,
            "share": options.share,
            "reader_share": options.reader_share,
            "seconds": round(self.clock() - self._began, 1),
            "messages": {
                "heard": self.carrier.heard,
                "shared": sum(class_sums.shared for class_sums in record.by_class.values()),
                "sent": record.sent,
                "waiting": self.carrier.waiting,
                "outcomes": outcomes,
                "left_out": dict(self.carrier.left_out),
                "unheard": record.unheard,
                "last_refusal": plain(self.carrier.refusal),
            },
            "classes": classes,
            "observers": {side: self._observed(side) for side in SIDES},
            "readers": {**last_report, "trouble": plain(str(last_report["trouble"]))},
            "original": None if crowded is None else dataclasses.asdict(crowded),
            "troubles": self._troubles(last_report),
        }

    def _observed(self, side: Side) -> dict[str, Any]:
        observer = self.observers[side]
        return {
            "connected": observer.connected,
            "cut_off": observer.cut_off,
            "refused": sorted(observer.refused),
        }

    def _troubles(self, readers: dict[str, Any]) -> dict[str, str]:
        """Return the current errors by the part that reports them."""
        found = {
            name: str(link.trouble)
            for name, link in self._links.items()
            if link.trouble is not None
        }
        found |= {f"the observer {side}": each.trouble for side, each in self.observers.items()}
        if self.carrier.refuses:
            found["the other's broker"] = self.carrier.refusal
        found["the original's board"] = self.asking.trouble
        found["readers there"] = str(readers["trouble"])
        return {name: plain(trouble) for name, trouble in found.items() if trouble}


def _steady_clock() -> Callable[[], float]:
    # It doesn't jump, yet can be compared with publishers' timestamps.
    offset = time.time() - time.monotonic()
    return lambda: offset + time.monotonic()


async def run_mirror(
    mirror: Mirror,
    original: Link,
    other: Link,
    *,
    stop: asyncio.Event,
    hurry: asyncio.Event,
    print_line: Callable[[str], None],
) -> dict[str, Any]:
    """Run ``mirror`` until ``stop`` is set or its seconds are over; return the final document."""
    options = mirror.options
    async with mirror.running(original, other):
        reporting = asyncio.create_task(_print_reports(mirror, print_line))
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(options.seconds):
                    await stop.wait()
            await mirror.settle(hurry)
            return mirror.mirror_document()
        finally:
            reporting.cancel()
            await asyncio.gather(reporting, return_exceptions=True)


async def _print_reports(mirror: Mirror, print_line: Callable[[str], None]) -> None:
    while True:
        await asyncio.sleep(mirror.options.every)
        print_line(live_line(mirror.mirror_document(), mirror.record))
        mirror.record.turn()
