"""The schedule of reads: which numbers of which logs to read now, and where; and readiness. Pure.

docs/design/0012 has the rules. At most one read of a log is under way.

Example. At 0.00 s a message reports that all numbers up to 9 are settled, and 7 is missing. At 0.10
s 12 is missing, too. At 0.20 s number 7 is read here and not found. At 0.30 s number 12 is read for
the first time, although 7 waits for its retry. At 0.5 s 7 is read at home, in its log's region.
"""

from __future__ import annotations

import collections
import dataclasses
import random
from collections.abc import Iterable
from typing import Final

from gateway.logs.known_log import KnownLog
from gateway.logs.logs import Logs
from gateway.logs.runs import Run
from newsfabric.backoff import Backoff
from newsfabric.store.logs import DirectoryRow, Log
from newsfabric.store.rules import MAX_SPAN

# A missing number may be on its way: fabrics deliver within a third of that (p99.9).
GRACE_SECONDS: Final = 0.2
# The pause between two looks at the missing numbers.
LOOK_SECONDS: Final = 0.05
# The pause if there is nothing to do: some logs may have fallen silent.
CALM_SECONDS: Final = 0.5
# Limit of noted steps of the certain numbers; above it, a later step covers the oldest.
_STEPS: Final = 64
# Spans of numbers in one read.
_SPANS: Final = 4
# The pause before the next part of a read, if the last part found nothing.
_NEXT_SECONDS: Final = 0.1
# Runs so near to each other are read as one.
_NEAR: Final = 16
# A router moves its row in the directory at least every ten seconds.
_MOVES_WITHIN: Final = 12.0


@dataclasses.dataclass(frozen=True, slots=True)
class Read:
    """A read of the numbers in ``spans``, each of 4,096 at most, of ``log``."""

    log: Log
    spans: tuple[Run, ...]
    # Whether the spans are all that was to be read.
    is_all: bool
    in_own_region: bool
    # When the first of the numbers was found to be missing.
    since: float
    # Whether these numbers, no tail, are read for the first time.
    fresh: bool = False
    tail: bool = False


def _backoff(base: float = 0.2) -> Backoff:
    return Backoff(base=base, cap=15.0, reset_after=0.0)


@dataclasses.dataclass(slots=True)
class _Retries:
    """The retries of numbers that weren't found."""

    backoff: Backoff
    again: float = 0.0
    # The next read begins after this number: numbers not found must not hide later numbers.
    behind: int = 0


@dataclasses.dataclass(slots=True)
class _LogReads:
    """The state of the reads of one log."""

    # Missing numbers up to this one were read before, and are retried in their turn.
    upto: int
    missing: _Retries = dataclasses.field(default_factory=lambda: _Retries(_backoff()))
    tail: _Retries = dataclasses.field(default_factory=lambda: _Retries(_backoff(1.0)))
    tries: int = 0
    # A time, and the number up to which all are certain to exist since then; ascending.
    certain: collections.deque[tuple[float, int]] = dataclasses.field(
        default_factory=lambda: collections.deque(maxlen=_STEPS)
    )
    since: float = 0.0
    # Whether the numbers that went missing last had the last turn.
    was_fresh: bool = False
    is_read: bool = False


class ReadSchedule:
    """The schedule of reads for a gateway of ``region``. ``now`` is monotonic, in seconds."""

    def __init__(self, logs: Logs, region: str, *, rng: random.Random | None = None) -> None:
        self._logs = logs
        self._region = region
        self._rng = rng
        self._watched: dict[Log, _LogReads] = {}
        # The unfinished log that has the next turn.
        self._turn = 0
        # Regions that couldn't be asked, and until when they aren't asked again.
        self._backing_off: dict[str, tuple[float, Backoff]] = {}

    def next_reads(self, now: float, *, at_most: int) -> list[Read]:
        """Return the reads to start now; report how each went (:meth:`done`, :meth:`failed`).

        The logs take turns: a log that lags by hours doesn't keep the others waiting.
        """
        found: list[Read] = []
        unfinished = self._logs.unfinished()
        first = self._turn % max(1, len(unfinished))
        in_turn = unfinished[first:] + unfinished[:first]
        for n, known in enumerate(in_turn, first + 1):
            if len(found) >= at_most:
                break
            read = self._next_read_of(known, now)
            if read is not None:
                self._turn = n
                found.append(read)
        return found

    def _next_read_of(self, known: KnownLog, now: float) -> Read | None:
        watch = self._watched.get(known.log)
        if watch is None:
            if not known.has_missing and not known.is_silent(now):
                return None
            watch = self._watched[known.log] = _LogReads(upto=known.mark)
        if known.extent.certain > (watch.certain[-1][1] if watch.certain else watch.upto):
            watch.certain.append((now, known.extent.certain))
        if watch.is_read:
            return None
        read = self._read(known, watch, now)
        watch.is_read = read is not None
        return read

    def done(self, read: Read, *, upto: int, found: int, now: float) -> None:
        """Note that ``read`` went up to number ``upto``, and dealt with ``found`` numbers."""
        self._backing_off.pop(self._place(read), None)
        watch = self._watched.get(read.log)
        if watch is None:
            return
        watch.is_read = False
        turns = watch.tail if read.tail else watch.missing
        if found:
            turns.backoff.succeeded(now)
        is_over = read.is_all and upto >= read.spans[-1][1]
        if is_over:
            again = now + turns.backoff.failed(now, self._rng)
        else:
            again = now if found else now + _NEXT_SECONDS
        if not read.fresh:
            turns.again, turns.behind = again, 0 if is_over else upto
        elif not now < turns.again < again:
            # Numbers that went missing since must not delay an earlier retry.
            turns.again = again

    def failed(self, read: Read, now: float) -> None:
        """Note that the store couldn't be asked in the region of ``read``."""
        place = self._place(read)
        backoff = self._backing_off.get(place, (0.0, Backoff(base=0.5, cap=15.0)))[1]
        until = now + backoff.failed(now, self._rng)
        self._backing_off[place] = until, backoff
        watch = self._watched.get(read.log)
        if watch is not None:
            watch.is_read = False
            if read.tail:
                watch.tail.again = until

    def _place(self, read: Read) -> str:
        return read.log.region if read.in_own_region else self._region

    def pause_seconds(self) -> float:
        """Return for how many seconds :meth:`next_reads` has nothing new, if nothing is heard."""
        for log in list(self._watched):
            known = self._logs.find(log)
            if known is None or known.is_whole:
                del self._watched[log]
        has_missing = any(known.has_missing for known in self._logs.unfinished())
        return LOOK_SECONDS if has_missing else CALM_SECONDS

    def _read(self, known: KnownLog, watch: _LogReads, now: float) -> Read | None:
        log = known.log
        home, here = self._can_ask(log.region, now), self._can_ask(self._region, now)
        if known.has_missing:
            fresh, runs = self._missing(known, watch, now)
            if runs and (home or here):
                at_home = home and (watch.tries % 2 == 1 or not here)
                watch.tries += 1
                spans = _spans(runs, 0 if fresh else watch.missing.behind)
                return Read(log, *spans, in_own_region=at_home, since=watch.since, fresh=fresh)
            if runs:
                watch.missing.again = now
        if home and known.is_silent(now) and now >= watch.tail.again:
            spans = _spans(known.tail(), watch.tail.behind)
            return Read(log, *spans, in_own_region=True, since=now, tail=True)
        return None

    def _missing(self, known: KnownLog, watch: _LogReads, now: float) -> tuple[bool, list[Run]]:
        """Return the missing numbers that are due, and whether they are read for the first time.

        New numbers and numbers that weren't found take turns.
        """
        certain = known.extent.certain
        older = known.holes(1, min(watch.upto, certain)) if now >= watch.missing.again else []
        if older and watch.was_fresh:
            watch.was_fresh = False
            return False, older
        before, ripe = watch.upto, now - GRACE_SECONDS
        since = watch.certain[0][0] if watch.certain else now
        while watch.certain and watch.certain[0][0] <= ripe:
            watch.upto = watch.certain.popleft()[1]
        if watch.upto > before:
            runs = known.holes(before + 1, min(watch.upto, certain))
            if runs:
                # The backoff begins anew: earlier failures must not delay retries of new numbers.
                watch.tries, watch.since, watch.was_fresh = 0, since, True
                watch.missing.backoff = _backoff()
                return True, runs
        return False, older

    def _can_ask(self, region: str, now: float) -> bool:
        resting = self._backing_off.get(region)
        return resting is None or now >= resting[0]


class LogReadiness:
    """Readiness: whether messages routed in our own region reach our readers (docs/design/0012).

    A log whose row in the directory hasn't moved for 12 s doesn't count: its router is gone, and
    the log isn't closed yet.

    Example. At the start the directory lists one log of ours, with low 40: we wait for it. Its
    first tick reports last number 42; 41 came, 42 didn't. When 42 has been read, we are ready.
    """

    def __init__(self, logs: Logs, region: str) -> None:
        self._logs = logs
        self._region = region
        # Logs that we wait for: the row's version, and since when the row has it. None before the
        # directory was read.
        self._awaited: dict[Log, tuple[int, float]] | None = None
        # The highest number of each log seen before: numbers missing up to it needn't be found.
        self._seen_before: dict[Log, int] = {}
        # For these logs, the lowest last number in a tick.
        self._ticked: dict[Log, int] = {}

    def note_tick(self, log: Log, seq: int) -> None:
        """Note a tick of ``log``; ``seq`` is its last number."""
        if self._awaited is None or log in self._awaited:
            # The lowest: an absurdly high one must not keep us waiting.
            self._ticked[log] = min(seq, self._ticked.get(log, seq))

    def note_directory(self, rows: Iterable[DirectoryRow], now: float) -> None:
        """Learn the directory's rows: wait for our region's open logs while their rows move."""
        rows = [row for row in rows if row.log.region == self._region]
        if self._awaited is None:
            self._awaited = {row.log: (row.version, now) for row in rows if row.ended is None}
            self._seen_before = dict(self._logs.highest_numbers())
            return
        for row in rows:
            if row.log not in self._awaited:
                continue
            version, since = self._awaited[row.log]
            if row.ended is not None or (row.version == version and now > since + _MOVES_WITHIN):
                del self._awaited[row.log]
            elif row.version != version:
                self._awaited[row.log] = row.version, now

    def is_reached(self) -> bool:
        """Return whether all awaited logs have ticked and lack no number up to the lowest tick."""
        if self._awaited is None:
            return False
        for log in self._awaited.keys() & self._ticked.keys():
            known = self._logs.find(log)
            first = self._seen_before.get(log, 0) + 1
            if known is not None and not known.holes(first, self._ticked[log]):
                del self._awaited[log]
        return not self._awaited


def _spans(runs: list[Run], behind: int) -> tuple[tuple[Run, ...], bool]:
    """Return a few spans to read for ``runs``, and whether they are all: near runs joined, none too
    long, from the number after ``behind`` on, or from the first of all."""
    left = [(max(first, behind + 1), last) for first, last in runs if last > behind] or runs
    spans: list[Run] = []
    for first, last in left:
        if spans and first - spans[-1][1] <= _NEAR and last - spans[-1][0] < MAX_SPAN:
            spans[-1] = spans[-1][0], last
            continue
        for start in range(first, last + 1, MAX_SPAN):
            if len(spans) == _SPANS:
                return tuple(spans), False
            spans.append((start, min(last, start + MAX_SPAN - 1)))
    return tuple(spans), True
