"""The state of one log at a gateway: which numbers exist, and which it has dealt with. Pure.

Numbers decide everything; times only bound searches. A number is **seen** when it was offered to
the hub, or is void. **Start** is where the log begins for this gateway: numbers up to it are past.
The **mark** is the number up to which all are seen, or past. A number **may end void** when a read
beyond low found it and its message was given: the log may yet be closed without it.
docs/design/0028 has the rules, with examples (this one: "Rules that the model taught", number 7).

Example. A gateway starts when low is 2, so start and mark are 2. Numbers 3 and 5 arrive, and a tick
reports low 5: the mark is 3, and 4 is missing. Number 4 is read, and the mark is 5. The router
falls silent. Its tail is read: 6 and 8 are found and given, and both may end void. The log is
closed: ended 7, void 6. So 7 is missing. 6 did and 8 may end void: other gateways may skip them.
"""

from __future__ import annotations

import collections
import dataclasses
from typing import ClassVar, Final, NamedTuple

from gateway.logs.runs import Run, Runs
from gateway.wire.position import MAX_SEQ
from newsfabric.store.logs import DirectoryRow, Log
from newsfabric.store.rules import MAX_SPAN

# Seconds without a message or a tick after which a router may be gone.
_SILENT_AFTER: Final = 2.0
# The remembered times of numbers beyond the mark. They only bound searches.
_TIMES: Final = 50


class LogSnapshot(NamedTuple):
    """The state of a log that a control plane leaves to its successor."""

    log: Log
    start: int
    seen: tuple[Run, ...]
    skipped: tuple[Run, ...]
    low: int
    ended: int | None
    voids: tuple[Run, ...]
    whole_ms: int


@dataclasses.dataclass(slots=True, eq=False)
class Extent:
    """The extent of a log, as reported by its own region: this gateway concludes nothing itself."""

    #: All numbers up to it are settled.
    low: int = 0
    ended: int | None = None
    #: Numbers up to the end that are void, as found by the router that closed the log.
    voids: Runs = dataclasses.field(default_factory=Runs)
    # The version of the directory's row that was read last.
    _version: int = 0

    def learn(self, row: DirectoryRow) -> bool:
        """Take over the directory's ``row``; return False if this version was read before."""
        if row.version <= self._version:
            return False
        self._version = row.version
        self.low = max(self.low, row.low)
        if row.ended is not None and self.ended is None:
            self.ended, self.voids = row.ended, Runs(row.voids)
        return True

    @property
    def is_listed(self) -> bool:
        """True if the directory has ever listed the log."""
        return self._version > 0 or self.ended is not None

    @property
    def certain(self) -> int:
        """The number up to which all exist, or are void."""
        return self.low if self.ended is None else self.ended

    def is_settled(self, number: int) -> bool:
        """Return whether ``number``, if it is a message, stays one when the log is closed."""
        return number <= self.certain and number not in self.voids

    def unsettled(self, numbers: Runs) -> Runs:
        """Return those of ``numbers`` that may end void, or have."""
        spans = *self.voids, (self.certain + 1, MAX_SEQ)
        return Runs(run for span in spans for run in numbers.within(*span))


@dataclasses.dataclass(slots=True, eq=False)
class KnownLog:
    """The state of ``log`` at one gateway. ``now`` is in seconds of any monotonic clock."""

    #: The most numbers beyond low that can be under way.
    window: ClassVar[int] = MAX_SPAN

    log: Log
    start: int
    #: When its last message or tick arrived.
    last_report_at: float
    extent: Extent = dataclasses.field(default_factory=Extent)
    #: All numbers up to the mark, and the seen ones beyond it.
    seen: Runs = dataclasses.field(default_factory=Runs)
    #: Numbers that no reader here was given, since they are void.
    skipped: Runs = dataclasses.field(default_factory=Runs)
    #: Numbers that were read beyond low and given: each may end void, or has.
    may_end_void: Runs = dataclasses.field(default_factory=Runs)
    #: By the router's clock: messages beyond the mark were routed at this time or later.
    whole_ms: int = 0
    mark: int = dataclasses.field(init=False, default=0)
    # Numbers beyond the mark, each with its send time.
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
        """Return the start of the log for a gateway that finds ``row`` when it starts."""
        return row.low if row.ended is None else row.ended

    def mark_seen(self, number: int) -> None:
        """Note that ``number`` was offered to the hub."""
        if number > self.mark:
            self.seen.add(number, number)
            self._advance()

    def skip(self, first: int, last: int) -> None:
        """Pass over numbers that are void: those that weren't given aren't missing any more."""
        for hole in list(self.seen.holes(first, last)):
            self.skipped.add(*hole)
            self.seen.add(*hole)
        self._advance()

    def note_report(self, number: int, low: int, *, sent_ms: int, now: float) -> None:
        """Note a message of its router, or a tick whose last number is ``number``.

        ``sent_ms`` is by the router's clock: when it sent the tick, or the time in the message's
        id, at which the message got its number.
        """
        self.last_report_at = now
        if low > self.extent.low:
            self.extent.low = low
            if self.may_end_void:
                self._settle()
        if number > self.mark:
            self._times.append((number, sent_ms))
        elif sent_ms > self.whole_ms:
            self.whole_ms = sent_ms

    def learn(self, row: DirectoryRow) -> bool:
        """Take over the directory's ``row``; return False if this version was read before."""
        if not self.extent.learn(row):
            return False
        self._settle()
        return True

    def note_may_end_void(self, number: int) -> None:
        """Note that ``number``, which a read has found, will be given to readers."""
        if not self.extent.is_settled(number):
            self.may_end_void.add(number, number)

    def is_done(self, number: int) -> bool:
        """Return whether ``number`` is seen or past, so that nothing needs to be done about it."""
        return number <= self.mark or number in self.seen

    def was_given(self, number: int) -> bool:
        """Return whether its message was given to readers here, or is before the start."""
        return self.is_done(number) and number not in self.skipped

    def cannot_end_void(self, number: int) -> bool:
        """Return whether ``number``, if it is a message, is one at every gateway: it is settled, or
        its router has published it."""
        return self.extent.is_settled(number) or (
            self.was_given(number) and number not in self.may_end_void
        )

    @property
    def is_whole(self) -> bool:
        """True if the log has ended and all of it was seen."""
        return self.extent.ended is not None and not self.has_missing

    @property
    def has_missing(self) -> bool:
        """True if numbers are :meth:`missing`."""
        return self.mark < self.extent.certain

    def missing(self) -> list[Run]:
        """Return the numbers that certainly exist and weren't seen: they are read until found."""
        return self.holes(1, self.extent.certain)

    def holes(self, first: int, last: int) -> list[Run]:
        """Return those of the numbers ``first`` to ``last`` that are neither seen nor past."""
        return list(self.seen.holes(first, last))

    def is_silent(self, now: float) -> bool:
        """Return whether its router may be gone: then no tick reports numbers beyond ``low``."""
        return self.extent.ended is None and now - self.last_report_at > _SILENT_AFTER

    def tail(self) -> list[Run]:
        """Return the numbers that may exist beyond ``low`` of a silent log; they are read in its
        own region alone. Holes below the highest number seen are included: if the whole region is
        dead, no router will close the log."""
        return self.holes(self.extent.low + 1, self.seen.top + self.window + 1)

    def snapshot(self) -> LogSnapshot:
        """Return the state that a control plane leaves to its successor."""
        extent = self.extent
        seen, passed, voids = map(tuple, (self.seen, self.skipped, extent.voids))
        rest = extent.low, extent.ended, voids, self.whole_ms
        return LogSnapshot(self.log, self.start, seen, passed, *rest)

    @classmethod
    def restore(cls, left: LogSnapshot, *, now: float) -> KnownLog:
        """Return the log that another control plane has left. Here it isn't known which numbers
        were read: so every seen number may end void, unless it is settled."""
        extent = Extent(left.low, left.ended, Runs(left.voids))
        numbers = Runs(left.seen), Runs(left.skipped), Runs(left.seen)
        return cls(left.log, left.start, now, extent, *numbers, left.whole_ms)

    def _settle(self) -> None:
        """Apply newly settled numbers: pass over the void ones, of a closed log. Keep in
        ``may_end_void`` only numbers that still may, or have."""
        voids = self.extent.voids
        for first, last in voids:
            self.skip(first, last)
        for past in voids.within(1, self.start):
            self.skipped.add(*past)
        unsettled = self.extent.unsettled(self.may_end_void)
        self.may_end_void = Runs(given for run in unsettled for given in self.skipped.holes(*run))

    def _advance(self) -> None:
        mark = self.seen.unbroken
        if mark > self.mark:
            self.mark = mark
            for number, sent_ms in list(self._times):
                if number <= mark:
                    self._times.remove((number, sent_ms))
                    self.whole_ms = max(self.whole_ms, sent_ms)
