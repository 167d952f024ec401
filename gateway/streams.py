"""How far each router's stream has been seen: low-water marks and the holes above them.

A stream is what one router has routed since it started (its epoch), numbered without gaps. Its
**mark** is the seq up to which everything was seen. Numbers above the mark are kept as
ranges, so a hole costs one range however long it stays open. Nothing here repairs holes: it
only knows them.

The first thing heard of a stream defines where it starts for us: what came before it is
the past and counts as seen. Ticks tell the last number given out (so a hole is known even when
nothing follows it) and which numbers are void, which count as seen.

The decision that one would question: a stream that is silent for an hour is left out of
positions but not forgotten. When it speaks again, what was missed meanwhile is a
hole, not the past.
"""

from __future__ import annotations

import bisect
import collections
import dataclasses
from collections.abc import Iterator

from gateway import position


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StreamLimits:
    """``streams`` are remembered; ``ranges`` bounds the holes of each one.

    At the bound of streams the longest silent one is forgotten; at that of ranges the oldest
    hole is given up: the mark moves over it.
    """

    streams: int = 1024
    ranges: int = 1024
    silent_seconds: float = 3600.0


class Stream:
    """One stream. ``last`` is the highest number known to be given out."""

    __slots__ = ("_ends", "_entry", "_hash", "_starts", "heard", "last", "mark", "routed_ms")

    def __init__(self, router: str, epoch: int, seq: int) -> None:
        self.mark = seq
        self.last = seq
        self.heard = 0.0
        self.routed_ms = 0
        # Seen ranges above the mark: disjoint, not touching, ascending; both ends are included.
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._hash = position.stream_hash(router, epoch)
        self._entry = position.entry(self._hash, seq)

    def saw(self, seq: int) -> None:
        """``seq`` has arrived, or is void."""
        self.last = max(self.last, seq)
        if seq == self.mark + 1:
            self._move_mark(seq)
        elif seq > self.mark:
            self._add(seq)

    def seen(self, seq: int) -> bool:
        """Whether ``seq`` was seen, or lies before what we ever heard of this stream."""
        if seq <= self.mark:
            return True
        at = bisect.bisect_right(self._starts, seq) - 1
        return at >= 0 and seq <= self._ends[at]

    def missing(self) -> list[tuple[int, int]]:
        """The holes, ascending: (first, last) of each run of numbers given out and not seen."""
        edges = [self.mark, *self._ends]
        nexts = [*self._starts, self.last + 1]
        return [(a + 1, b - 1) for a, b in zip(edges, nexts, strict=True) if b - a > 1]

    def give_up_oldest_hole(self) -> None:
        """Count the first hole as seen."""
        self._move_mark(self._starts[0])

    @property
    def ranges(self) -> int:
        """How many seen ranges lie above the mark."""
        return len(self._starts)

    @property
    def entry(self) -> bytes:
        """This stream's part of a position token."""
        return self._entry

    def _move_mark(self, seq: int) -> None:
        if self._starts and self._starts[0] <= seq + 1:
            seq = self._ends.pop(0)
            del self._starts[0]
        self.mark = seq
        self._entry = position.entry(self._hash, seq)

    def _add(self, seq: int) -> None:
        at = bisect.bisect_right(self._starts, seq)
        if at > 0 and seq <= self._ends[at - 1]:
            return
        joins_left = at > 0 and self._ends[at - 1] == seq - 1
        joins_right = at < len(self._starts) and self._starts[at] == seq + 1
        if joins_left and joins_right:
            self._ends[at - 1] = self._ends.pop(at)
            del self._starts[at]
        elif joins_left:
            self._ends[at - 1] = seq
        elif joins_right:
            self._starts[at] = seq
        else:
            self._starts.insert(at, seq)
            self._ends.insert(at, seq)


class Streams:
    """All streams a gateway has heard of. ``now`` is in seconds since the epoch."""

    def __init__(self, now: float, limits: StreamLimits | None = None) -> None:
        self.limits = limits or StreamLimits()
        # Holes given up and streams forgotten because of the limits.
        self.given_up = 0
        # Least recently heard first.
        self._streams: collections.OrderedDict[tuple[str, int], Stream] = collections.OrderedDict()
        # What was routed so long before we started is the past for our readers.
        self._floor_ms = max(0, int((now - self.limits.silent_seconds) * 1000))

    def __len__(self) -> int:
        return len(self._streams)

    def saw(self, router: str, epoch: int, seq: int, *, routed_ms: int, now: float) -> None:
        """A message of a stream has arrived (also when it was a copy)."""
        stream = self._heard(router, epoch, seq, routed_ms, now)
        stream.saw(seq)
        self._bound(stream)

    def ticked(
        self, router: str, epoch: int, seq: int, *, void: tuple[int, ...], sent_ms: int, now: float
    ) -> None:
        """A router said that ``seq`` is the last number given out and ``void`` came to nothing."""
        stream = self._heard(router, epoch, seq, sent_ms, now)
        for number in void:
            # A void number past the last one isn't what routers send; it would open a false hole.
            if number <= seq:
                stream.saw(number)
        stream.last = max(stream.last, seq)
        self._bound(stream)

    def seen(self, router: str, epoch: int, seq: int) -> bool:
        """Whether the feed is past this number; True for a stream never heard of."""
        stream = self._streams.get((router, epoch))
        return stream is None or stream.seen(seq)

    def mark(self, router: str, epoch: int) -> int | None:
        """The low-water mark of a stream; None if it was never heard of."""
        stream = self._streams.get((router, epoch))
        return None if stream is None else stream.mark

    def marks(self) -> Iterator[tuple[str, int, int, int]]:
        """(router, epoch, mark, time of the last message in ms) of every stream."""
        for (router, epoch), stream in self._streams.items():
            yield router, epoch, stream.mark, stream.routed_ms

    def resume(self, router: str, epoch: int, mark: int, *, routed_ms: int) -> None:
        """Take over a stream that another gateway process had followed up to ``mark``."""
        self._heard(router, epoch, mark, routed_ms, routed_ms / 1000)

    def missing(self) -> dict[tuple[str, int], list[tuple[int, int]]]:
        """The holes of every stream that has some."""
        holes = ((name, stream.missing()) for name, stream in self._streams.items())
        return {name: ranges for name, ranges in holes if ranges}

    def position(self, now: float) -> str:
        """The token for everything seen until now; long silent streams fold into its time."""
        since = now - self.limits.silent_seconds
        entries: list[bytes] = []
        for stream in reversed(self._streams.values()):
            if stream.heard < since or len(entries) == position.MAX_STREAMS:
                # Streams come most recently heard first, but clocks of routers differ.
                return position.encode(max(self._floor_ms, stream.routed_ms), entries)
            entries.append(stream.entry)
        return position.encode(self._floor_ms, entries)

    def _heard(self, router: str, epoch: int, seq: int, routed_ms: int, now: float) -> Stream:
        name = (router, epoch)
        stream = self._streams.get(name)
        if stream is None:
            stream = self._streams[name] = Stream(router, epoch, seq)
            if len(self._streams) > self.limits.streams:
                self._forget_oldest()
        else:
            self._streams.move_to_end(name)
        stream.heard = now
        stream.routed_ms = max(stream.routed_ms, routed_ms)
        return stream

    def _forget_oldest(self) -> None:
        _, stream = self._streams.popitem(last=False)
        self._floor_ms = max(self._floor_ms, stream.routed_ms)
        self.given_up += 1

    def _bound(self, stream: Stream) -> None:
        while stream.ranges > self.limits.ranges:
            stream.give_up_oldest_hole()
            self.given_up += 1
