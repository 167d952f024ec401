"""What a gateway knows of one log: which numbers there are, and which it has dealt with. Pure.

Numbers decide everything; times only bound searches. A number is **seen** when it was offered to
the hub, or is void. **Start** is where the log begins for this gateway: what is up to it is past.
The **mark** is the number up to which everything is seen, or past. A number is **doubtful** when it
was found by a read beyond low and given: its log may yet be closed without it. docs/design/0028 has
the rules, with examples (of the last one: number 7 of what the meaner world found).

Example. A gateway starts when low is 2, so start and mark are 2. 3 and 5 come, and a tick says that
low is 5: the mark is 3, and 4 is missing. It is read, and the mark is 5. The router falls silent.
Its tail is read, 6 and 8 are found and given, and both are doubtful. The log is closed: ended 7,
void 6. So 7 is missing; 6 and 8, which others may have passed over, stay doubtful.
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
class Extent:
    """What there is of a log, as its own region says: here nothing of that is concluded."""

    #: All numbers up to it are settled.
    low: int = 0
    ended: int | None = None
    #: Those up to its end that whoever closed it found to be nothing.
    voids: Runs = dataclasses.field(default_factory=Runs)
    # Of the directory's row that was read last.
    _version: int = 0

    def learn(self, row: DirectoryRow) -> bool:
        """This is what the directory says; False if that was read before."""
        if row.version <= self._version:
            return False
        self._version = row.version
        self.low = max(self.low, row.low)
        if row.ended is not None and self.ended is None:
            self.ended, self.voids = row.ended, Runs(row.voids)
        return True

    @property
    def is_listed(self) -> bool:
        """Whether the directory has ever said anything of it."""
        return self._version > 0 or self.ended is not None

    @property
    def certain(self) -> int:
        """All numbers up to it exist, or are void."""
        return self.low if self.ended is None else self.ended

    def is_settled(self, number: int) -> bool:
        """Whether ``number``, if it is a message, stays one: nobody will close it away."""
        return number <= self.certain and number not in self.voids

    def unsettled(self, numbers: Runs) -> Runs:
        """Those of ``numbers`` that may end void, or have."""
        spans = *self.voids, (self.certain + 1, MAX_SEQ)
        return Runs(run for span in spans for run in numbers.within(*span))


@dataclasses.dataclass(slots=True, eq=False)
class KnownLog:
    """``log`` as one gateway knows it. ``now`` is in seconds, of any clock that only goes on."""

    #: So many numbers beyond low are under way at most.
    window: ClassVar[int] = MAX_SPAN

    log: Log
    start: int
    #: When it was heard last.
    heard_at: float
    extent: Extent = dataclasses.field(default_factory=Extent)
    #: Those up to the mark, and those beyond it that are seen.
    seen: Runs = dataclasses.field(default_factory=Runs)
    #: Numbers that were given to nobody here, since they are void.
    passed: Runs = dataclasses.field(default_factory=Runs)
    #: Those that were read beyond low and given: each may end void, or has.
    doubtful: Runs = dataclasses.field(default_factory=Runs)
    #: By the router's clock: whatever is beyond the mark was routed then or later.
    whole_ms: int = 0
    mark: int = dataclasses.field(init=False, default=0)
    # Of numbers beyond the mark, when they were sent.
    _times: collections.deque[tuple[int, int]] = dataclasses.field(
        default_factory=lambda: collections.deque(maxlen=_TIMES)
    )

    def __post_init__(self) -> None:
        self.whole_ms = self.whole_ms or self.log.epoch
        if self.start:
            self.seen.add(1, self.start)
        self._advance()
        self._settle()

    @staticmethod
    def start_for(row: DirectoryRow) -> int:
        """Where the log begins for a gateway that finds ``row`` when it starts."""
        return row.low if row.ended is None else row.ended

    def saw(self, number: int) -> None:
        """``number`` was offered to the hub."""
        if number > self.mark:
            self.seen.add(number, number)
            self._advance()

    def skip(self, first: int, last: int) -> None:
        """These numbers are void: those that weren't given to anybody aren't missing any more."""
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
        if low > self.extent.low:
            self.extent.low = low
            if self.doubtful:
                self._settle()
        if number > self.mark:
            self._times.append((number, sent_ms))
        elif sent_ms > self.whole_ms:
            self.whole_ms = sent_ms

    def learn(self, row: DirectoryRow) -> bool:
        """This is what the directory says; False if that was read before."""
        if not self.extent.learn(row):
            return False
        self._settle()
        return True

    def doubt(self, number: int) -> None:
        """``number`` is going to be given, since a read has found it."""
        if not self.extent.is_settled(number):
            self.doubtful.add(number, number)

    def has(self, number: int) -> bool:
        """Whether nothing needs to be done about ``number``."""
        return number <= self.mark or number in self.seen

    def gave(self, number: int) -> bool:
        """Whether its message was given to readers here, or was past when this gateway began."""
        return self.has(number) and number not in self.passed

    def stays(self, number: int) -> bool:
        """Whether ``number``, whoever passed it, was a message there too: it is settled, or its
        router has published it."""
        return self.extent.is_settled(number) or (self.gave(number) and number not in self.doubtful)

    @property
    def is_whole(self) -> bool:
        """Whether it has ended and all of it was seen."""
        return self.extent.ended is not None and not self.lacks

    @property
    def lacks(self) -> bool:
        """Whether something is :meth:`missing`."""
        return self.mark < self.extent.certain

    def missing(self) -> list[Run]:
        """The numbers that exist for certain and weren't seen: to be read until they are found."""
        return self.holes(1, self.extent.certain)

    def holes(self, first: int, last: int) -> list[Run]:
        """Those of the numbers ``first`` to ``last`` that were neither seen nor are past."""
        return list(self.seen.holes(first, last))

    def is_silent(self, now: float) -> bool:
        """Whether its router may be gone, so that nobody says what exists beyond ``low``."""
        return self.extent.ended is None and now - self.heard_at > _SILENT_AFTER

    def tail(self) -> list[Run]:
        """What may exist beyond ``low`` of a silent log: to be read in its own region alone. Also
        below the highest number seen: if its whole region is dead nobody will close it."""
        return self.holes(self.extent.low + 1, self.seen.top + self.window + 1)

    def left(self) -> Left:
        """What a control plane leaves of it to its successor."""
        extent = self.extent
        seen, passed, voids = map(tuple, (self.seen, self.passed, extent.voids))
        rest = extent.low, extent.ended, voids, self.whole_ms
        return Left(self.log, self.start, seen, passed, *rest)

    @classmethod
    def of(cls, left: Left, *, now: float) -> KnownLog:
        """The log that another control plane has left. Nobody says any more what of it was read:
        all that was seen is doubtful, unless it is settled."""
        extent = Extent(left.low, left.ended, Runs(left.voids))
        numbers = Runs(left.seen), Runs(left.passed), Runs(left.seen)
        return cls(left.log, left.start, now, extent, *numbers, left.whole_ms)

    def _settle(self) -> None:
        """More is settled. Nobody waits for what whoever closed it found to be nothing; and what is
        doubtful remains so only if it may still end void, or has."""
        voids = self.extent.voids
        for first, last in voids:
            self.skip(first, last)
        for past in voids.within(1, self.start):
            self.passed.add(*past)
        unsettled = self.extent.unsettled(self.doubtful)
        self.doubtful = Runs(given for run in unsettled for given in self.passed.holes(*run))

    def _advance(self) -> None:
        mark = self.seen.unbroken
        if mark > self.mark:
            self.mark = mark
            for number, sent_ms in list(self._times):
                if number <= mark:
                    self._times.remove((number, sent_ms))
                    self.whole_ms = max(self.whole_ms, sent_ms)
