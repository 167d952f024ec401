"""Gaps: numbers that were given out and have been missing for half a second. Pure.

A gap is looked for at the times that its neighbours in the stream were routed. Those are of the
same router's clock, so that clocks which differ do no harm; a clock that was set is what
the margin is for, which grows with each try, and so is a second search around our own time.
When one is to be read for, and when it ends, is :mod:`gateway.repair`'s to say.
"""

from __future__ import annotations

import bisect
import collections
import dataclasses
import enum
from collections.abc import Callable
from typing import TYPE_CHECKING

from gateway.streams import SKEW_MS, Stream, Streams
from gateway.sweep import LATE_MS, Span
from newsfabric.backoff import Backoff
from newsfabric.store.rules import JOURNAL_MS

if TYPE_CHECKING:
    from gateway.repair import RepairLimits

# (router, epoch)
StreamName = tuple[str, int]


class Ending(enum.Enum):
    """How a gap was closed. The values are metric labels.

    Filled: each of its numbers came, was found, or was declared void by its router.
    """

    FILLED = "filled"
    VOID = "void"
    GIVEN_UP = "given_up"


@dataclasses.dataclass(frozen=True, slots=True)
class Closed:
    """A gap is no more: after ``seconds``; ``numbers`` of it were void or given up."""

    stream: StreamName
    first: int
    last: int
    seconds: float
    ending: Ending
    numbers: int = 0


@dataclasses.dataclass(slots=True, eq=False)
class Gap:
    """Of the numbers ``first`` to ``last`` some are missing since ``opened``.

    They were given out in ``routed`` by the router's clock, and heard of at ``near_ms`` by ours.
    """

    stream: StreamName
    first: int
    last: int
    routed: Span
    near_ms: int
    opened: float
    next_try: float
    tries: int = 0
    backoff: Backoff = dataclasses.field(default_factory=lambda: Backoff(base=0.4, cap=15.0))


@dataclasses.dataclass(slots=True)
class _Watch:
    """A stream with holes. Numbers up to ``upto``, given out until ``upto_ms``, are in gaps."""

    upto: int
    upto_ms: int
    # (now, last number, the router's time, our time), oldest first.
    samples: collections.deque[tuple[float, int, int, int]]
    gaps: list[Gap]


class Gaps:
    """The gaps of every stream that has holes. ``now`` is monotonic, in seconds.

    ``sweep`` is asked to look, by its stream's region, for what is too long ago to be searched in
    one go.
    """

    def __init__(
        self,
        streams: Streams,
        limits: RepairLimits,
        sweep: Callable[[StreamName, Span, float], None],
    ) -> None:
        self._streams = streams
        self._limits = limits
        self._sweep = sweep
        self._watched: dict[StreamName, _Watch] = {}

    def __bool__(self) -> bool:
        """Whether any stream has holes."""
        return bool(self._watched)

    def __len__(self) -> int:
        return sum(len(watch.gaps) for watch in self._watched.values())

    def look(self, now: float, wall_ms: int) -> list[Closed]:
        """Open gaps for what is missing for long enough; returns those that were filled."""
        streams = self._streams
        closed: list[Closed] = []
        for name in {*streams.holed(), *self._watched}:
            stream = streams.find(name)
            if stream is None:
                # Too many streams: this one was forgotten, and counted as given up there.
                del self._watched[name]
                continue
            closed += self._look_at(name, stream, now, wall_ms)
        return closed

    def due(self, now: float) -> list[Gap]:
        """Those that are to be searched again."""
        return [
            gap
            for watch in self._watched.values()
            for gap in watch.gaps
            if gap.next_try <= now and self.missing(gap)
        ]

    def overdue(self, name: StreamName, seq: int) -> bool:
        """Whether the number is missing for so long that it lies in a gap, or did."""
        watch = self._watched.get(name)
        return watch is not None and seq <= watch.upto

    def _look_at(self, name: StreamName, stream: Stream, now: float, wall_ms: int) -> list[Closed]:
        watch = self._watched.get(name)
        if watch is None:
            watch = _Watch(stream.mark, stream.mark_ms, collections.deque(), [])
            self._watched[name] = watch
        newest = watch.samples[-1][1] if watch.samples else watch.upto
        if stream.last > newest:
            watch.samples.append((now, stream.last, stream.routed_ms, wall_ms))
        elif stream.last == watch.upto:
            # Nothing was given out since: what comes next was routed after this.
            watch.upto_ms = max(watch.upto_ms, stream.routed_ms)
        while watch.samples and watch.samples[0][0] <= now - self._limits.hole_seconds:
            self._open_gap(name, stream, watch, now)
        holes = stream.missing()
        still_open: list[Gap] = []
        closed: list[Closed] = []
        for gap in watch.gaps:
            if within(holes, gap.first, gap.last):
                still_open.append(gap)
            else:
                closed.append(_closed(gap, Ending.FILLED, now))
        watch.gaps = still_open
        if stream.mark >= stream.last and not watch.gaps:
            del self._watched[name]
        return closed

    def _open_gap(self, name: StreamName, stream: Stream, watch: _Watch, now: float) -> None:
        since, last, routed_ms, near_ms = watch.samples.popleft()
        # A clock that was set back doesn't turn a span round.
        routed = Span(min(watch.upto_ms, routed_ms), max(watch.upto_ms, routed_ms))
        gap = Gap(name, watch.upto + 1, last, routed, near_ms, since, next_try=now)
        watch.upto, watch.upto_ms = last, routed_ms
        if not self.missing(gap):
            return
        if routed.to_ms - routed.from_ms > JOURNAL_MS:
            self._sweep(name, Span(routed.from_ms - LATE_MS, routed.to_ms + LATE_MS), now)
        watch.gaps.append(gap)
        if len(watch.gaps) > self._limits.gaps:
            oldest, next_ = watch.gaps[:2]
            oldest.last = next_.last
            oldest.routed = Span(
                min(oldest.routed.from_ms, next_.routed.from_ms),
                max(oldest.routed.to_ms, next_.routed.to_ms),
            )
            oldest.next_try = min(oldest.next_try, next_.next_try)
            del watch.gaps[1]

    def missing(self, gap: Gap) -> list[tuple[int, int]]:
        """The runs of its numbers that still are."""
        stream = self._streams.find(gap.stream)
        return [] if stream is None else within(stream.missing(), gap.first, gap.last)

    def spans(self, gap: Gap, *, widest: bool) -> list[Span]:
        """What to read for it now: wider with each try, at once as wide as ever if ``widest``."""
        margins = self._limits.margins
        margin = margins[-1] if widest else margins[min(gap.tries, len(margins) - 1)]
        ms = int(margin * 1000)
        from_ms, to_ms = gap.routed
        # What lies further back is swept.
        spans = [Span(max(from_ms, to_ms - JOURNAL_MS) - ms, to_ms + ms + 1)]
        if gap.tries or widest:
            spans.append(Span(gap.near_ms - ms - SKEW_MS, gap.near_ms + ms + SKEW_MS))
        return spans

    def abandon(self, gap: Gap, ending: Ending, now: float, at_ms: int | None) -> list[Closed]:
        """Void what of it is missing, or give it up as of ``at_ms`` (our clock)."""
        missing = self.missing(gap)
        if not missing:
            # The last of it was found just now: look() closes it.
            return []
        for first, last in missing:
            if ending is Ending.VOID:
                self._streams.skip(gap.stream, first, last)
            else:
                until_ms = gap.near_ms if at_ms is None else at_ms
                self._streams.give_up(gap.stream, first, last, at_ms=until_ms)
        watch = self._watched.get(gap.stream)
        if watch is not None and gap in watch.gaps:
            watch.gaps.remove(gap)
        return [_closed(gap, ending, now, sum(b - a + 1 for a, b in missing))]


def within(holes: list[tuple[int, int]], first: int, last: int) -> list[tuple[int, int]]:
    """The parts of ``holes`` (ascending) that lie in ``first`` to ``last``."""
    found = []
    for a, b in holes[bisect.bisect_left(holes, first, key=lambda hole: hole[1]) :]:
        if a > last:
            break
        found.append((max(a, first), min(b, last)))
    return found


def _closed(gap: Gap, ending: Ending, now: float, numbers: int = 0) -> Closed:
    return Closed(gap.stream, gap.first, gap.last, now - gap.opened, ending, numbers)
