"""How far each router's stream has been seen: low-water marks and the holes above them.

A stream is what one router has routed since it started (its epoch), numbered without gaps. Its
**mark** is the seq up to which everything was seen. Numbers above the mark are kept as
ranges, so a hole costs one range however long it stays open. Nothing here repairs holes: it
only knows them.

The first thing heard of a stream that is older than we are defines where it starts for us: what
came before it is the past and counts as seen. Of a router that started after us everything
counts from number 1, and what precedes the first number heard is a hole. Ticks tell the last
number given out (so a hole is known even when nothing follows it) and which numbers are void,
which count as seen.

Positions (:mod:`gateway.position`) are made and judged here:

* A stream that was silent for an hour, and has no hole, is left out of positions but not
  forgotten. When it speaks again, what was missed meanwhile is a hole, not the past.
* A position's time, which stands for streams that aren't listed, stays ten minutes behind the
  clock: so late may the first message of a router come that nobody here had heard of. A gateway
  that doesn't know the last hour stays an hour behind: it may have begun while a region was cut
  off, whose routers every older gateway has listed for that hour.
* If it comes later than that (its region was cut off), a position may claim too much.
  :meth:`Streams.trusted` takes that back: whoever resumes here with a position that doesn't
  list a router which lives after the position was made is taken to have seen nothing of it.
  What is left is a router that was cut off from the gateway that made the position for more
  than ten minutes since it started, and died before the position was made.
* What was given up counts as seen, so that it holds nothing up here, but for six hours no position
  covers it (:meth:`Stream.lose`): who resumes elsewhere may get it, and who does here is told. The
  same goes for the past of a router that is older than we are and was cut off when we began:
  whoever was connected here meanwhile didn't get it.

The decision that one would question: :meth:`Streams.vouches` goes by clocks in one point.
What a gateway heard is known by numbers; that there was no router it never heard of, only
for the time since it began to listen, and for that of the journal which it has read to the end.
"""

from __future__ import annotations

import bisect
import collections
import dataclasses
import itertools
from collections.abc import Iterable, Iterator
from typing import Final

from gateway import position
from gateway.position import Copy, Position

# How far routers' clocks may be apart from ours.
SKEW_MS: Final = 5_000
# Of so many streams, those heard last, a topic's memory knows what it lacks by number.
_HEARD: Final = 32
# A router that has ticked within this time would have told us a number that others know.
_SILENT_SECONDS: Final = 3.0
# What another gateway may have heard of a router before we do.
_AHEAD: Final = 100_000
# A position may be told again so long, while nothing is heard.
_TOLD_SECONDS: Final = 1.0
# Runs of lost numbers of a stream that are told apart.
_LOST: Final = 64


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StreamLimits:
    """``streams`` are remembered; ``ranges`` bounds the holes of each one.

    At the bound of streams the longest silent one is forgotten; at that of ranges the oldest
    hole is given up: the mark moves over it. After ``silent_seconds`` a stream leaves positions;
    the time in them stays ``late_seconds`` behind, or ``silent_seconds`` as long as we know less
    than that of the past. No position covers what was given up within ``lost_seconds``.
    """

    streams: int = 1024
    ranges: int = 1024
    silent_seconds: float = 3600.0
    late_seconds: float = 600.0
    lost_seconds: float = 21_600.0


@dataclasses.dataclass(frozen=True, slots=True)
class Lost:
    """Numbers that nobody here was given: ascending runs, both ends included.

    They were routed at ``from_ms`` or later, by the router's clock, and given up at ``at_ms`` by
    ours.
    """

    runs: tuple[tuple[int, int], ...]
    from_ms: int
    at_ms: int


class Stream:
    """One stream. ``last`` is the highest number known to be given out.

    Of the numbers up to ``start``, routed until ``first_ms``, nothing is known here. What comes
    after ``mark`` was routed at ``mark_ms`` or later, by the router's clock.
    """

    __slots__ = (
        "_ends",
        "_entry",
        "_starts",
        "first_ms",
        "hash",
        "heard",
        "last",
        "lost",
        "mark",
        "mark_ms",
        "routed_ms",
        "start",
    )

    def __init__(self, router: str, epoch: int, start: int, first_ms: int) -> None:
        self.start = self.mark = self.last = start
        self.first_ms = self.mark_ms = self.routed_ms = first_ms
        self.heard = 0.0
        self.lost: Lost | None = None
        # Seen ranges above the mark: disjoint, not touching, ascending; both ends are included.
        self._starts: list[int] = []
        self._ends: list[int] = []
        self.hash = position.stream_hash(router, epoch)
        self._entry = position.entry(self.hash, start)

    def saw(self, seq: int, routed_ms: int = 0) -> None:
        """``seq`` has arrived, or is void (``routed_ms`` 0)."""
        self.last = max(self.last, seq)
        if seq == self.mark + 1:
            self._move_mark(seq)
            self.mark_ms = max(self.mark_ms, routed_ms)
        elif seq > self.mark:
            self._add(seq, seq)

    def lose(self, first: int, last: int, *, from_ms: int, at_ms: int) -> None:
        """``first`` to ``last`` were given up at ``at_ms``: no position covers them any more."""
        lost = self.lost or Lost((), from_ms, at_ms)
        runs = sorted([*lost.runs, (first, last)])
        if len(runs) > _LOST:
            runs[:2] = [(runs[0][0], runs[1][1])]
        self.take_lost(Lost(tuple(runs), min(lost.from_ms, from_ms), max(lost.at_ms, at_ms)))

    def take_lost(self, lost: Lost | None) -> None:
        """These are lost, and nothing else."""
        self.lost = lost
        self._entry = position.entry(self.hash, self.told)

    def skip(self, first: int, last: int) -> None:
        """Nothing will come as ``first`` to ``last``, which lie within one hole."""
        if first == self.mark + 1:
            self._move_mark(last)
        else:
            self._add(first, last)

    def ticked(self, last: int, sent_ms: int) -> None:
        """``last`` was the highest number given out at ``sent_ms``."""
        self.last = max(self.last, last)
        if last == self.last == self.mark:
            self.mark_ms = max(self.mark_ms, sent_ms)

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

    def give_up_oldest_hole(self, at_ms: int) -> None:
        """Count the first hole as seen."""
        self.lose(self.mark + 1, self._starts[0] - 1, from_ms=self.mark_ms, at_ms=at_ms)
        self._move_mark(self._starts[0])

    def had(self, seq: int) -> bool:
        """Whether ``seq`` was seen indeed, and isn't lost."""
        lost = self.lost is not None and any(a <= seq <= b for a, b in self.lost.runs)
        return self.seen(seq) and not lost

    @property
    def told(self) -> int:
        """The number up to which positions say that everything was seen."""
        return self.mark if self.lost is None else min(self.mark, self.lost.runs[0][0] - 1)

    @property
    def told_ms(self) -> int:
        """What comes after :attr:`told` was routed then or later."""
        return self.mark_ms if self.lost is None else min(self.mark_ms, self.lost.from_ms)

    @property
    def top(self) -> int:
        """The highest number seen."""
        return self._ends[-1] if self._ends else self.mark

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
        self._entry = position.entry(self.hash, self.told)

    def _add(self, first: int, last: int) -> None:
        """Add a range that overlaps no other, or a number that does."""
        at = bisect.bisect_right(self._starts, first)
        if at > 0 and first <= self._ends[at - 1]:
            return
        joins_left = at > 0 and self._ends[at - 1] == first - 1
        joins_right = at < len(self._starts) and self._starts[at] == last + 1
        if joins_left and joins_right:
            self._ends[at - 1] = self._ends.pop(at)
            del self._starts[at]
        elif joins_left:
            self._ends[at - 1] = last
        elif joins_right:
            self._starts[at] = first
        else:
            self._starts.insert(at, first)
            self._ends.insert(at, last)


class Streams:
    """All streams a gateway has heard of. ``now`` is in seconds since the epoch."""

    def __init__(self, now: float, limits: StreamLimits | None = None) -> None:
        self.limits = limits or StreamLimits()
        # Holes given up and streams forgotten because of the limits.
        self.given_up = 0
        # Least recently heard first.
        self._streams: collections.OrderedDict[tuple[str, int], Stream] = collections.OrderedDict()
        # Those with holes.
        self._holed: dict[tuple[str, int], None] = {}
        # Those of which something is lost.
        self._lossy: dict[tuple[str, int], Stream] = {}
        self._began_ms = int(now * 1000)
        # Of routers that started later everything counts.
        self.since_ms = self._began_ms
        # Whatever was routed since then was heard, or was in the journal when it was read.
        self.known_ms = self._began_ms
        # As gateways before us knew it. It is ours when we have caught up with them.
        self._known_before_ms = self._began_ms
        self._heard_at = now
        # When a tick came for the first time.
        self._ticked_at: float | None = None
        # The last position told, and when; None when it would be another one now.
        self._told: tuple[str, float] | None = None

    def __len__(self) -> int:
        return len(self._streams)

    def saw(self, router: str, epoch: int, seq: int, *, routed_ms: int, now: float) -> None:
        """A message of a stream has arrived (also when it was a copy)."""
        stream = self._heard(router, epoch, max(0, seq - 1), routed_ms, now)
        stream.saw(seq, routed_ms)
        self._bound(router, epoch, stream)

    def ticked(
        self, router: str, epoch: int, seq: int, *, void: tuple[int, ...], sent_ms: int, now: float
    ) -> None:
        """A router said that ``seq`` is the last number given out and ``void`` came to nothing."""
        if self._ticked_at is None:
            self._ticked_at = now
        stream = self._heard(router, epoch, seq, sent_ms, now)
        for number in void:
            # A void number past the last one isn't what routers send; it would open a false hole.
            if number <= seq:
                stream.saw(number)
        stream.ticked(seq, sent_ms)
        self._bound(router, epoch, stream)

    def is_young(self, epoch: int) -> bool:
        """Whether a router that started at ``epoch`` has no past here: all of it counts."""
        return epoch >= self.since_ms - SKEW_MS

    def seen(self, router: str, epoch: int, seq: int) -> bool:
        """Whether the feed is past this number; of an old stream never heard of, it is."""
        stream = self._streams.get((router, epoch))
        return not self.is_young(epoch) if stream is None else stream.seen(seq)

    def offered(self, router: str, epoch: int, seq: int, routed_ms: int) -> bool:
        """Whether this number is no news: it was heard here, or by gateways whose stream we took
        over, or routed before we began."""
        stream = self._streams.get((router, epoch))
        if stream is None:
            return routed_ms < self._began_ms and not self.is_young(epoch)
        if seq <= stream.start:
            # What is young starts at 0, unless it was taken over.
            return routed_ms < self._began_ms or self.is_young(epoch)
        return stream.seen(seq)

    def mark(self, router: str, epoch: int) -> int | None:
        """The low-water mark of a stream; None if it was never heard of."""
        stream = self._streams.get((router, epoch))
        return None if stream is None else stream.mark

    def marks(self) -> Iterator[tuple[str, int, int, int, Lost | None]]:
        """(router, epoch, mark, time after which the rest was routed in ms, what is lost) of every
        stream."""
        for (router, epoch), stream in self._streams.items():
            yield router, epoch, stream.mark, stream.mark_ms, stream.lost

    def resume(
        self, router: str, epoch: int, mark: int, *, routed_ms: int, lost: Lost | None = None
    ) -> None:
        """Take over a stream that another gateway process had followed up to ``mark``."""
        stream = self._streams[router, epoch] = Stream(router, epoch, mark, routed_ms)
        self._heard(router, epoch, mark, routed_ms, routed_ms / 1000)
        if lost is not None:
            stream.take_lost(lost)
            self._lossy[router, epoch] = stream

    def listened_since(self, ms: int, *, known_ms: int) -> None:
        """Gateways before us have listened since ``ms``: what began later is no stranger.

        They knew what was routed since ``known_ms``.
        """
        self.since_ms = min(self.since_ms, ms)
        self._known_before_ms = min(self._known_before_ms, known_ms)

    def caught_up(self, from_ms: int) -> None:
        """All that the journal has since ``from_ms`` was published: by us, or before us."""
        self.known_ms = min(self.known_ms, from_ms, self._known_before_ms)
        self._told = None

    def missing(self) -> dict[tuple[str, int], list[tuple[int, int]]]:
        """The holes of every stream that has some."""
        return {name: self._streams[name].missing() for name in self._holed}

    def names(self) -> Iterable[tuple[str, int]]:
        """(router, epoch) of every stream."""
        return self._streams.keys()

    def holed(self) -> Iterable[tuple[str, int]]:
        """(router, epoch) of the streams that have holes."""
        return self._holed.keys()

    def find(self, name: tuple[str, int]) -> Stream | None:
        """The stream called (router, epoch), to be looked at; None if it was never heard of."""
        return self._streams.get(name)

    def skip(self, name: tuple[str, int], first: int, last: int) -> None:
        """Nothing will come as these numbers, which lie within one hole of a known stream."""
        stream = self._streams[name]
        stream.skip(first, last)
        self._bound(*name, stream)

    def give_up(self, name: tuple[str, int], first: int, last: int, *, at_ms: int) -> None:
        """As :meth:`skip`, but something may have been there: no position covers these numbers."""
        stream = self._streams[name]
        stream.lose(first, last, from_ms=stream.mark_ms, at_ms=at_ms)
        self._lossy[name] = stream
        self.skip(name, first, last)

    def lacks(self, told: Position) -> bool:
        """Whether something was given up here that ``told`` doesn't cover."""
        for stream in self._lossy.values():
            assert stream.lost is not None
            seen = told.seen.get(stream.hash)
            if told.time_ms < stream.lost.at_ms if seen is None else seen < stream.lost.runs[-1][1]:
                return True
        return False

    def position(self, now: float) -> str:
        """The token for everything seen until now; long silent streams fold into its time.

        A crowd that comes at once is told the same until something is heard; for a second at most,
        because of what is silent or given up for long enough then.
        """
        if self._told is None or not self._told[1] <= now < self._told[1] + _TOLD_SECONDS:
            self._told = self._encode(now), now
        return self._told[0]

    def _encode(self, now: float) -> str:
        since = now - self.limits.silent_seconds
        if self._lossy:
            self._let_go(now)
        held = (self._streams[name] for name in {**self._holed, **self._lossy})
        listed = [stream for stream in held if stream.heard < since]
        for stream in reversed(self._streams.values()):
            if stream.heard < since:
                break
            listed.append(stream)
        # More than there is room for: of those left out a reader gets some messages again.
        del listed[position.MAX_STREAMS :]
        # Deaf, we can't have seen what was routed meanwhile.
        heard_ms = int(min(now, self._heard_at) * 1000)
        since_ms = min((stream.told_ms for stream in listed), default=heard_ms)
        return position.encode(
            max(0, heard_ms - self._late_ms),
            max(0, min(since_ms, heard_ms)),
            [stream.entry for stream in listed],
        )

    def trusted(self, told: Position) -> Position:
        """``told`` without what the gateway that made it can't have known.

        A router that lives after it was made and isn't listed was cut off from that
        gateway, or hadn't been heard yet: nothing of it counts as seen. Nor does it if the
        number is far beyond those that the router has given out: that was made up.
        """
        # It was made then or later.
        made = max(told.time_ms / 1000 + self.limits.late_seconds, told.since_ms / 1000)
        doubtful: dict[bytes, int] = {}
        since_ms = told.since_ms
        for (_, epoch), stream in reversed(self._streams.items()):
            if stream.heard < made:
                break
            seen = told.seen.get(stream.hash)
            # What a younger one routed isn't covered by the time anyway.
            cut_off = seen is None and epoch <= told.time_ms
            if cut_off or (seen is not None and seen > stream.last + _AHEAD):
                doubtful[stream.hash] = 0
                since_ms = min(since_ms, epoch)
        if not doubtful:
            return told
        return Position(told.time_ms, since_ms, {**told.seen, **doubtful})

    def vouches(self, told: Position, now: float) -> bool:
        """Whether everything that ``told`` doesn't cover was heard here or will be.

        Then a memory that has forgotten none of it has all of it.
        """
        if told.time_ms < self.known_ms + SKEW_MS or self.lacks(told):
            return False
        known = 0
        for stream in self._streams.values():
            seen = told.seen.get(stream.hash)
            if seen is None:
                if stream.start > 0 and stream.first_ms > told.time_ms:
                    return False
                continue
            known += 1
            silent = now - stream.heard > _SILENT_SECONDS
            if seen < stream.start or (seen > stream.last and silent):
                return False
        return known == len(told.seen)

    def tops(self) -> tuple[list[Copy], int]:
        """The last copy of each stream so far, as it were, and a time: that of those left out."""
        latest = reversed(self._streams.values())
        tops = [Copy(s.hash, s.top, s.routed_ms) for s in itertools.islice(latest, _HEARD)]
        return tops, max((stream.routed_ms for stream in latest), default=0)

    @property
    def _late_ms(self) -> int:
        """How far behind what was heard last a position's time stays.

        Where nothing is known of the last hour, a region may be cut off whose routers no position
        lists, though those of older gateways do. What these routed in that hour isn't seen.
        """
        limits = self.limits
        knows = self._heard_at * 1000 - self.known_ms >= limits.silent_seconds * 1000
        return int((limits.late_seconds if knows else limits.silent_seconds) * 1000)

    def _heard(self, router: str, epoch: int, past: int, ms: int, now: float) -> Stream:
        """The stream, heard ``now``; if it is new and older than we are, ``past`` is its past."""
        name = (router, epoch)
        stream = self._streams.get(name)
        if stream is None:
            young = self.is_young(epoch)
            start, first_ms = (0, min(epoch, ms)) if young else (past, ms)
            stream = self._streams[name] = Stream(router, epoch, start, first_ms)
            # Routers tick each second: one that lives was heard soon after the first.
            cut_off = self._ticked_at is not None and now > self._ticked_at + _SILENT_SECONDS
            if start > 0 and cut_off:
                # Who was connected here until now didn't get it, whatever the store had.
                stream.lose(1, start, from_ms=min(epoch, ms), at_ms=int(now * 1000))
                self._lossy[name] = stream
            if len(self._streams) > self.limits.streams:
                self._forget_oldest()
        else:
            self._streams.move_to_end(name)
        self._told = None
        stream.heard = now
        stream.routed_ms = max(stream.routed_ms, ms)
        self._heard_at = max(self._heard_at, now)
        return stream

    def _forget_oldest(self) -> None:
        name, _ = self._streams.popitem(last=False)
        self._holed.pop(name, None)
        self._lossy.pop(name, None)
        self.given_up += 1

    def _let_go(self, now: float) -> None:
        until_ms = int((now - self.limits.lost_seconds) * 1000)
        for name, stream in tuple(self._lossy.items()):
            if stream.lost is not None and stream.lost.at_ms < until_ms:
                stream.take_lost(None)
                del self._lossy[name]

    def _bound(self, router: str, epoch: int, stream: Stream) -> None:
        self._told = None
        while stream.ranges > self.limits.ranges:
            stream.give_up_oldest_hole(int(self._heard_at * 1000))
            self._lossy[router, epoch] = stream
            self.given_up += 1
        if stream.mark < stream.last:
            self._holed[router, epoch] = None
        else:
            self._holed.pop((router, epoch), None)
