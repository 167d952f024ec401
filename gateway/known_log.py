"""What a gateway knows of one log: which numbers there are, and which it has dealt with. Pure.

Numbers decide everything; times only bound searches. A number is **seen** when it was offered to
the hub, or is void. **Start** is where the log begins for this gateway: what is up to it is past.
The **mark** is the number up to which everything is seen, or past. A number is **doubtful** when it
was found by a read beyond low and given: its log may yet be closed without it. docs/design/0028 has
the rules, with examples (of the last one: number 7 of what the meaner world found).
"""

from __future__ import annotations

import collections
import dataclasses
from typing import ClassVar, Final, NamedTuple

from gateway.position import MAX_SEQ
from gateway.runs import Run, Runs
from newsfabric.store.logs import DirectoryRow, Log
from newsfabric.store.rules import MAX_SPAN

# Seconds without a message or a tick after which a router may be gone.
_SILENT_AFTER: Final = 2.0
# Times of numbers beyond the mark that are remembered. They only bound searches.
_TIMES: Final = 50


class Left(NamedTuple):
    """What a control plane leaves of a log to its successor."""

    log: Log
    start: int
    seen: tuple[Run, ...]
    passed: tuple[Run, ...]
    low: int
    ended: int | None
    voids: tuple[Run, ...]
    whole_ms: int


@dataclasses.dataclass(slots=True, eq=False)
class KnownLog:
    """``log`` as one gateway knows it. ``now`` is in seconds, of any clock that only goes on."""

    #: So many numbers beyond low are under way at most.
    window: ClassVar[int] = MAX_SPAN

    log: Log
    start: int
    #: When it was heard last.
    heard_at: float
    low: int = 0
    ended: int | None = None
    voids: Runs = dataclasses.field(default_factory=Runs)
    #: Those up to the mark, and those beyond it that are seen.
    seen: Runs = dataclasses.field(default_factory=Runs)
    #: Numbers that were given to nobody here, since they are void.
    passed: Runs = dataclasses.field(default_factory=Runs)
    #: By the router's clock: whatever is beyond the mark was routed then or later.
    whole_ms: int = 0
    #: Those that were read beyond low and given: each may end void, or has.
    doubtful: Runs = dataclasses.field(default_factory=Runs)
    #: Of the directory's row that was read last.
    version: int = 0
    mark: int = dataclasses.field(init=False)
    _times: collections.deque[tuple[int, int]] = dataclasses.field(
        default_factory=lambda: collections.deque(maxlen=_TIMES)
    )

    def __post_init__(self) -> None:
        self.mark = self.start
        self.whole_ms = self.whole_ms or self.log.epoch
        if self.start:
            self.seen.add(1, self.start)
        self._advance()
        self._skip_voids()

    @staticmethod
    def start_for(row: DirectoryRow) -> int:
        """Where the log begins for a gateway that finds ``row`` when it starts."""
        return row.low if row.ended is None else row.ended

    def saw(self, number: int) -> None:
        if number > self.mark:
            self.seen.add(number, number)
            self._advance()

    def skip(self, first: int, last: int) -> None:
        """The numbers ``first`` to ``last`` are void: those that weren't given to anybody aren't
        missing any more."""
        for hole in list(self.seen.holes(first, last)):
            self.passed.add(*hole)
            self.seen.add(*hole)
        self._advance()

    def heard(self, number: int, low: int, *, sent_ms: int, now: float) -> None:
        """A message, or a tick whose last number is ``number``, came of its router.

        ``sent_ms`` is by the router's clock: when it sent the tick, or the time in the message's
        id, which is when it got its number.
        """
        self.heard_at = now
        if low > self.low:
            self.low = low
            self._settle()
        if number > self.mark:
            self._times.append((number, sent_ms))
        elif sent_ms > self.whole_ms:
            self.whole_ms = sent_ms

    def learn(self, row: DirectoryRow) -> None:
        """This is what the directory says."""
        if row.version <= self.version:
            return
        self.version = row.version
        self.low = max(self.low, row.low)
        if row.ended is not None and self.ended is None:
            self.ended, self.voids = row.ended, Runs(row.voids)
            self._skip_voids()
        self._settle()

    def doubt(self, number: int) -> None:
        """``number`` is going to be given, since a read has found it."""
        if not self.is_settled(number):
            self.doubtful.add(number, number)

    def has(self, number: int) -> bool:
        """Whether nothing needs to be done about ``number``."""
        return number <= self.mark or number in self.seen

    def gave(self, number: int) -> bool:
        """Whether its message was given to readers here, or was past when this gateway began."""
        return self.has(number) and number not in self.passed

    def is_settled(self, number: int) -> bool:
        """Whether ``number``, if it is a message, stays one: nobody will close it away."""
        if self.ended is None:
            return number <= self.low
        return number <= self.ended and number not in self.voids

    def stays(self, number: int) -> bool:
        """Whether ``number``, whoever passed it, was a message there too: it is settled, or its
        router has published it."""
        return self.is_settled(number) or (self.gave(number) and number not in self.doubtful)

    @property
    def highest(self) -> int:
        """The highest number seen, or past."""
        return self.seen.top

    @property
    def certain(self) -> int:
        """All numbers up to it exist, or are void."""
        return self.low if self.ended is None else self.ended

    @property
    def is_whole(self) -> bool:
        """Whether it has ended and all of it was seen."""
        return self.ended is not None and self.mark >= self.certain

    @property
    def lacks(self) -> bool:
        return self.mark < self.certain

    def missing(self) -> list[Run]:
        """The numbers that exist for certain and weren't seen: to be read until they are found."""
        return self.holes(1, self.certain)

    def holes(self, first: int, last: int) -> list[Run]:
        """Those of the numbers ``first`` to ``last`` that were neither seen nor are past."""
        return list(self.seen.holes(max(first, self.mark + 1), last))

    def is_silent(self, now: float) -> bool:
        """Whether its router may be gone, so that nobody says what exists beyond ``low``."""
        return self.ended is None and now - self.heard_at > _SILENT_AFTER

    def tail(self) -> list[Run]:
        """What may exist beyond ``low`` of a silent log: to be read in its own region alone.

        Also below the highest number seen: if its whole region is dead nobody will close it.
        """
        return self.holes(self.low + 1, self.highest + self.window + 1)

    def left(self) -> Left:
        """What a control plane leaves of it to its successor."""
        seen, passed, voids = map(tuple, (self.seen, self.passed, self.voids))
        return Left(self.log, self.start, seen, passed, self.low, self.ended, voids, self.whole_ms)

    @classmethod
    def of(cls, left: Left, *, now: float) -> KnownLog:
        """The log that another control plane has left."""
        log, start, seen, passed, low, ended, voids, whole_ms = left
        runs = Runs(voids), Runs(seen), Runs(passed)
        known = cls(log, start, now, low, ended, *runs, whole_ms)
        # Nobody says any more which of them were read.
        known.doubtful = Runs(left.seen)
        known._settle()
        return known

    def _settle(self) -> None:
        """Of what is doubtful only what may still end void, or has, remains so."""
        if self.doubtful:
            beyond = (self.certain + 1, MAX_SEQ)
            unsettled = [beyond] if self.ended is None else [*self.voids, beyond]
            self.doubtful = Runs(
                given
                for span in unsettled
                for first, last in self.doubtful.within(*span)
                for given in self.passed.holes(first, last)
            )

    def _skip_voids(self) -> None:
        """Nobody waits for what whoever closed it found to be nothing."""
        for first, last in list(self.voids):
            if first <= self.start:
                self.passed.add(first, min(last, self.start))
            if last > self.start:
                self.skip(max(first, self.start + 1), last)

    def _advance(self) -> None:
        first = self.seen.first
        if first is not None and first[0] <= self.mark + 1 and first[1] > self.mark:
            self.mark = first[1]
            for number, sent_ms in list(self._times):
                if number <= self.mark:
                    self._times.remove((number, sent_ms))
                    self.whole_ms = max(self.whole_ms, sent_ms)
