"""All logs that one gateway knows of, and the positions of its readers. Pure.

:mod:`gateway.known_log` says what is known of one log. A gateway that starts takes each log of the
directory from where it is settled (:meth:`Logs.begin`); one that it hears of later is expected from
its first number. docs/design/0028 has the rules and why.

A position's time is at most an hour after the directory was last read: of a log that began and
ended since then this gateway knows nothing. (A row may take five of the six hours to another
region.)

Whole logs are forgotten at a bound, those that began first. What isn't known here and began more
than six hours before the directory was last read counts as settled and past: it was known once, or
was in the directory no more when this gateway began.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from gateway.known_log import KnownLog, Left
from gateway.position import MAX_LOGS, Copy, Position, entry, lag, log_hash, token
from gateway.runs import Run
from newsfabric.envelope import MAX_MS
from newsfabric.store.logs import DirectoryRow, Log

# How far the clocks of two regions may be apart.
CLOCKS_MS: Final = 30_000
# So long after the directory was read for the last time positions say that it was.
_DIRECTORY_MS: Final = 3_600_000
# A position may be told again so long, while nothing is heard.
_TOLD_MS: Final = 1_000


class LeftLogs(NamedTuple):
    """What a gateway process leaves to its successor: when it read the directory last, and until
    when logs began of which it has forgotten some."""

    logs: tuple[Left, ...]
    directory_ms: int
    forgotten_ms: int = 0


@dataclasses.dataclass(slots=True)
class Entry:
    """A log's part of positions, as it was told last."""

    hash: bytes
    known: KnownLog
    mark: int = -1
    lag_s: int = -1
    packed: bytes = b""

    def at(self, time_ms: int) -> bytes:
        """It at ``time_ms``: mostly as before, and each message has a position."""
        known = self.known
        lag_s = lag(time_ms, known.whole_ms)
        if known.mark != self.mark or lag_s != self.lag_s:
            self.mark, self.lag_s = known.mark, lag_s
            self.packed = entry(self.hash, known.mark, lag_s)
        return self.packed


class Listing(NamedTuple):
    """The logs that positions list, in order of the hash, and the last time of these positions:
    later ones would count a log as had that there is no room for."""

    entries: list[Entry]
    last_ms: int

    @classmethod
    def of(cls, logs: Iterable[KnownLog], time_ms: int, reach_ms: int) -> Listing:
        """At ``time_ms``. Of more logs than there is room for it leaves out the youngest."""
        oldest = time_ms - reach_ms - CLOCKS_MS
        wanted = [one for one in logs if one.log.epoch >= oldest or not one.is_whole]
        wanted.sort(key=lambda one: one.log.epoch)
        left_out = wanted[MAX_LOGS:]
        last_ms = left_out[0].log.epoch + reach_ms - 1 if left_out else MAX_MS
        entries = (Entry(log_hash(known.log), known) for known in wanted[:MAX_LOGS])
        return cls(sorted(entries, key=lambda one: one.hash), last_ms)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LogLimits:
    """``logs`` are remembered; beyond, whole ones are forgotten. ``runs`` are of a log's numbers.

    A log with more runs takes nothing new from the feed: it is read from the store in its order.
    """

    logs: int = 10_000
    runs: int = 65_536


class Logs:
    """What one gateway that began at ``began_ms`` (its clock) knows. ``now`` is monotonic, in
    seconds; ``wall_ms`` is our clock's time."""

    #: What is known of one log, and how far back positions cover logs that they don't list.
    known_log: type[KnownLog] = KnownLog
    reach_ms: int = Position.reach_ms

    def __init__(self, began_ms: int, limits: LogLimits | None = None) -> None:
        self.limits = limits or LogLimits()
        #: When the directory was read last, by our clock.
        self.directory_ms = began_ms
        self._logs: dict[Log, KnownLog] = {}
        # None when it is to be found out.
        self._listing: Listing | None = None
        #: Of logs that began until then some are forgotten.
        self.forgotten_ms = 0
        # Those that aren't whole; whole ones among them do no harm.
        self._unfinished: list[KnownLog] | None = None
        # What was told last, and when; None when it would be another one now.
        self._told: tuple[str, int] | None = None
        self._tops: Mapping[Log, int] | None = None
        # Of the logs that aren't among the unfinished.
        self._whole_tops: dict[Log, int] = {}

    def __len__(self) -> int:
        return len(self._logs)

    def __iter__(self) -> Iterator[KnownLog]:
        return iter(self._logs.values())

    def begin(self, rows: Iterable[DirectoryRow], *, now: float) -> None:
        """We start, and this is the whole directory."""
        for row in rows:
            self._known(row.log, now, start=self.known_log.start_for(row)).learn(row)
        self._arrange()

    def take(self, left: LeftLogs, *, now: float) -> None:
        """Go on from what another gateway process has left."""
        self.directory_ms, self.forgotten_ms = left.directory_ms, left.forgotten_ms
        for one in left.logs:
            self._logs[one.log] = self.known_log.of(one, now=now)
        self._arrange()

    def learn(self, row: DirectoryRow, *, now: float) -> None:
        """This is what the directory says of a log."""
        is_over = row.ended is not None and row.log.epoch <= self.forgotten_ms
        if is_over and row.log not in self._logs:
            # It may be one that was forgotten here.
            return
        self._known(row.log, now).learn(row)
        self._change()

    def directory_read(self, at_ms: int) -> None:
        """All of the directory that can have changed was read at ``at_ms``, and learned."""
        self.directory_ms = max(self.directory_ms, at_ms)
        self._bound()
        self._arrange()

    def heard(self, log: Log, seq: int, low: int, *, sent_ms: int, now: float) -> KnownLog:
        """The feed has brought a message, or a tick whose last number is ``seq``."""
        known = self._known(log, now)
        known.heard(seq, low, sent_ms=sent_ms, now=now)
        self._told = None
        return known

    def saw(self, log: Log, seq: int) -> None:
        """``seq`` was offered to the hub."""
        # One that was never heard is silent.
        self._known(log, -math.inf).saw(seq)
        self._change()

    def doubt(self, log: Log, seq: int) -> None:
        """``seq`` is going to be offered, since a read has found it."""
        self._known(log, -math.inf).doubt(seq)

    def skip(self, log: Log, first: int, last: int) -> None:
        """These numbers of a log that is known are void, or their time is over."""
        self._logs[log].skip(first, last)
        self._change()

    def find(self, log: Log) -> KnownLog | None:
        return self._logs.get(log)

    def unfinished(self) -> list[KnownLog]:
        """The logs of which more may come; some that are whole may be among them."""
        if self._unfinished is None:
            self._unfinished = [known for known in self if not known.is_whole]
            whole = {known.log: known.highest for known in self if known.is_whole}
            if whole != self._whole_tops:
                self._whole_tops = whole
        return self._unfinished

    def has(self, log: Log, seq: int) -> bool:
        """Whether nothing needs to be done about this number."""
        known = self._logs.get(log)
        return known is not None and known.has(seq)

    def gave(self, log: Log, seq: int) -> bool:
        """Whether its message was given to readers here, or was past when this gateway began."""
        known = self._logs.get(log)
        return self._is_past(log) if known is None else known.gave(seq)

    def stays(self, log: Log, seq: int) -> bool:
        """Whether whoever passed this number had a message there, if there is one."""
        known = self._logs.get(log)
        return self._is_past(log) if known is None else known.stays(seq)

    def has_all(self, position: Position, log: Log, upto: int) -> bool:
        """Whether a reader at ``position`` has each message of ``log`` up to number ``upto`` that
        was given here."""
        known = self._logs.get(log)
        is_sure = self._is_past(log) if known is None else not any(known.doubtful.within(1, upto))
        return is_sure and position.covers(log, upto)

    def wants(self, position: Position, copies: Iterable[Copy]) -> bool:
        """Whether a reader at ``position`` who joins may lack the message that has these copies.

        It has a message of which it has a number that stays one. Otherwise it is given what was
        given here, since no copy that comes later will be.
        """
        lacked = False
        for log, seq, _ in copies:
            if position.covers(log, seq) and self.stays(log, seq):
                return False
            lacked = lacked or self.gave(log, seq)
        return lacked

    def forgot_what_lacks(self, position: Position) -> bool:
        """Whether a reader at ``position`` may lack something of logs that are forgotten here."""
        if not self.forgotten_ms:
            return False
        if position.time_ms < self.forgotten_ms + self.reach_ms:
            return True
        known = {log_hash(log) for log in self._logs}
        return any(hash_ not in known for hash_ in position.listed)

    def tops(self) -> Mapping[Log, int]:
        """Of each log the highest number that was seen, or is past. Not to be changed.

        Many topics' memories keep what this returns: what it has of whole logs is shared.
        """
        if self._tops is None:
            unfinished = {known.log: known.highest for known in self.unfinished() if known.highest}
            self._tops = collections.ChainMap(unfinished, self._whole_tops)
        return self._tops

    def position(self, wall_ms: int) -> str:
        """The token for everything seen until now, at most a second old while nothing is heard."""
        if self._told is None or not self._told[1] <= wall_ms < self._told[1] + _TOLD_MS:
            time_ms, listed = self.listing(wall_ms)
            self._told = token(time_ms, [one.at(time_ms) for one in listed]), wall_ms
        return self._told[0]

    def listing(self, wall_ms: int) -> tuple[int, list[Entry]]:
        """The time of a position for everything seen until now, and the logs that it lists."""
        time_ms = min(wall_ms, self.directory_ms + _DIRECTORY_MS)
        if self._listing is None:
            self._listing = Listing.of(self, time_ms, self.reach_ms)
        entries, last_ms = self._listing
        return min(time_ms, last_ms), entries

    def left(self) -> LeftLogs:
        logs = tuple(known.left() for known in self)
        return LeftLogs(logs, self.directory_ms, self.forgotten_ms)

    def missing(self) -> list[Run]:
        """The runs of numbers that exist for certain and weren't seen, of all logs."""
        return [run for known in self.unfinished() for run in known.missing()]

    def _known(self, log: Log, now: float, *, start: int = 0) -> KnownLog:
        known = self._logs.get(log)
        if known is None:
            known = self._logs[log] = self.known_log(log, start, heard_at=now)
            self._arrange()
        return known

    def _is_past(self, log: Log) -> bool:
        return log.epoch < self.directory_ms - self.reach_ms - CLOCKS_MS

    def _change(self) -> None:
        self._told = self._tops = None

    def _arrange(self) -> None:
        """Logs have come, gone or ended."""
        self._listing = self._unfinished = None
        self._change()

    def _bound(self) -> None:
        """Forget whole logs, the oldest first; what was passed over in one is remembered, and what
        was given that ended void."""
        over = len(self._logs) - self.limits.logs
        if over <= 0:
            return
        may_go = (
            known for known in self if known.is_whole and not known.passed and not known.doubtful
        )
        for known in sorted(may_go, key=lambda one: one.log.epoch)[:over]:
            if self._is_past(known.log):
                del self._logs[known.log]
                self.forgotten_ms = max(self.forgotten_ms, known.log.epoch)
