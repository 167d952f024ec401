"""All logs that one gateway knows, and the positions of its readers. Pure.

:mod:`gateway.logs.known_log` has the state of one log. A gateway that starts takes each log of the
directory from its low on (:meth:`Logs.begin`). Of a log that it hears of later, it expects all
numbers from 1 on. docs/design/0028 has the rules and their reasons.

Above a limit, whole logs are forgotten, the oldest first. A log that isn't known here and began
more than six hours before the last read of the directory counts as settled and past. Such a log was
known once, or had left the directory before this gateway began.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from gateway.logs.known_log import KnownLog, LogSnapshot
from gateway.logs.log_times import LogTimes
from gateway.logs.runs import Run
from gateway.wire.position import MAX_LOGS, Copy, Position, log_hash, token
from newsfabric.messages.envelope import MAX_MS
from newsfabric.store.logs import DirectoryRow, Log
from newsfabric.topology.times import TIMES

# A position's time is at most this much later than the last read of the directory.
_DIRECTORY_MS: Final = 3_600_000
# The same position may be sent again for this long, while nothing is heard.
_SAME_TOKEN_MS: Final = 1_000


class LogsSnapshot(NamedTuple):
    """The state that a gateway process leaves to its successor. ``directory_ms``: when it read the
    directory last. ``forgotten_ms``: some logs that began until then are forgotten. The other
    fields are :attr:`.LogTimes.max_lead_ms`, ``known`` and ``min_lead_ms``."""

    logs: tuple[LogSnapshot, ...]
    directory_ms: int
    forgotten_ms: int = 0
    max_lead_ms: int | None = None
    times: tuple[tuple[str, int], ...] = ()
    min_lead_ms: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LogLimits:
    """Limits: ``logs`` that are known, above which whole ones are forgotten; ``runs`` of one log's
    numbers. From a log with this many runs, no message of the feed is taken that begins one more:
    it is read from the store, in order."""

    logs: int = 10_000
    runs: int = 65_536


class Logs:
    """The logs that one gateway knows. ``now`` is in seconds, and monotonic."""

    #: The class of a log's state, and how far back positions cover logs that they don't list.
    known_log: type[KnownLog] = KnownLog
    reach_ms: int = Position.reach_ms

    def __init__(self, directory_ms: int = 0, limits: LogLimits | None = None) -> None:
        self.limits = limits or LogLimits()
        #: All logs that began well before this time are known (:meth:`directory_read`).
        self.directory_ms = directory_ms
        #: The times that routers have reported.
        self.times = LogTimes()
        #: Of the logs that began up to this time, some are forgotten.
        self.forgotten_ms = 0
        #: The content of positions, until logs begin, end or are forgotten.
        self.listing = Listing(self)
        #: Changes whenever something is heard, seen or learned.
        self.version = 0
        self._logs: dict[Log, KnownLog] = {}
        # The logs that aren't whole; whole logs among them do no harm.
        self._unfinished: list[KnownLog] | None = None
        # The highest number of each log at a version; and the highest numbers of whole logs.
        self._highest: tuple[int, Mapping[Log, int]] = -1, {}
        self._whole_highest: dict[Log, int] = {}

    def __len__(self) -> int:
        return len(self._logs)

    def __iter__(self) -> Iterator[KnownLog]:
        return iter(self._logs.values())

    def begin(self, rows: Iterable[DirectoryRow], *, now: float) -> None:
        """Start with ``rows``, the whole directory."""
        for row in rows:
            self.times.note_row(row.log.region, row.stated_ms)
            start = self.known_log.start_for(row)
            (self._logs.get(row.log) or self._began(row.log, now, start=start)).learn(row)
        self._rebuild_listing()

    def restore(self, left: LogsSnapshot, *, now: float) -> None:
        """Continue from the state that another gateway process has left."""
        self.directory_ms, self.forgotten_ms = left.directory_ms, left.forgotten_ms
        self.times.restore(left.max_lead_ms, left.times, left.min_lead_ms)
        for one in left.logs:
            self._logs[one.log] = self.known_log.restore(one, now=now)
        self._rebuild_listing()

    def learn(self, row: DirectoryRow, *, now: float) -> None:
        """Learn the directory's row of one log."""
        known = self._logs.get(row.log)
        if known is None and row.ended is not None and row.log.epoch <= self.forgotten_ms:
            # The log may have been forgotten here.
            return
        if (known or self._began(row.log, now)).learn(row):
            self.times.note_report(row.log.region, row.stated_ms, now)
        self.version += 1

    def directory_read(self, wall_ms: int, now: float) -> None:
        """Note that all changed rows of the directory were read and learned, at the time that is
        certain now."""
        self.directory_ms = self.times.certain_ms(wall_ms, now)
        self._bound()
        self._rebuild_listing()

    def note_report(self, log: Log, seq: int, low: int, *, sent_ms: int, now: float) -> KnownLog:
        """Note a message of the feed, or a tick whose last number is ``seq``."""
        self.times.note_feed(log.region, sent_ms, now)
        known = self._logs.get(log) or self._began(log, now)
        known.note_report(seq, low, sent_ms=sent_ms, now=now)
        self.version += 1
        return known

    def mark_seen(self, log: Log, seq: int) -> None:
        """Note that ``seq`` was offered to the hub."""
        # A log that was never heard is silent.
        (self._logs.get(log) or self._began(log, -math.inf)).mark_seen(seq)
        self.version += 1

    def skip(self, log: Log, first: int, last: int) -> None:
        """Pass over these numbers of a known log: they are void, or their messages have expired."""
        self._logs[log].skip(first, last)
        self.version += 1

    def find(self, log: Log) -> KnownLog | None:
        """Return the state of ``log``; None if it was never heard of, or is forgotten."""
        return self._logs.get(log)

    def is_past(self, log: Log) -> bool:
        """Return whether an unknown ``log`` is so old that it counts as past and settled."""
        passed_ms = self.times.earliest_begin_ms(log.region, self.directory_ms)
        return log.epoch < passed_ms - self.reach_ms - TIMES.clock_ms

    def unfinished(self) -> list[KnownLog]:
        """Return the logs that may still get numbers; some whole logs may be among them."""
        if self._unfinished is None:
            self._unfinished = [known for known in self if not known.is_whole]
            whole = {known.log: known.seen.top for known in self if known.is_whole}
            if whole != self._whole_highest:
                self._whole_highest = whole
        return self._unfinished

    def is_done(self, log: Log, seq: int) -> bool:
        """Return whether nothing is left to do about this number: it was seen, or is past."""
        known = self._logs.get(log)
        return known is not None and known.is_done(seq)

    def was_given(self, log: Log, seq: int) -> bool:
        """Return whether the message of ``seq`` was given to readers, or past at the start."""
        known = self._logs.get(log)
        return self.is_past(log) if known is None else known.was_given(seq)

    def cannot_end_void(self, log: Log, seq: int) -> bool:
        """Return whether this number, if it is a message, is one at each gateway that passed it."""
        known = self._logs.get(log)
        return self.is_past(log) if known is None else known.cannot_end_void(seq)

    def highest_numbers(self) -> Mapping[Log, int]:
        """Return the highest number of each log that was seen or is past. Don't change the mapping.

        Many topics' memories keep this mapping: its part for whole logs is shared.
        """
        if self._highest[0] != self.version:
            unfinished = {known.log: known.seen.top for known in self.unfinished() if known.seen}
            self._highest = self.version, collections.ChainMap(unfinished, self._whole_highest)
        return self._highest[1]

    def snapshot(self) -> LogsSnapshot:
        """Return the state from which a successor of this gateway process continues."""
        logs = tuple(known.snapshot() for known in self)
        times = self.times
        time_fields = times.max_lead_ms, times.known, times.min_lead_ms
        return LogsSnapshot(logs, self.directory_ms, self.forgotten_ms, *time_fields)

    def missing(self) -> list[Run]:
        """Return the runs of numbers of all logs that certainly exist and weren't seen."""
        return [run for known in self.unfinished() for run in known.missing()]

    def _began(self, log: Log, now: float, *, start: int = 0) -> KnownLog:
        known = self._logs[log] = self.known_log(log, start, last_report_at=now)
        self._rebuild_listing()
        return known

    def _rebuild_listing(self) -> None:
        """Make the listing anew: logs have begun, ended or were forgotten."""
        self.listing, self._unfinished = Listing(self), None
        self.version += 1

    def _bound(self) -> None:
        """Forget whole logs, the oldest first. A log is kept if a number was passed over in it, or
        if a number was given in it that ended void."""
        over = len(self._logs) - self.limits.logs
        if over <= 0:
            return
        may_go = [one.log for one in self if one.is_whole and not (one.skipped or one.may_end_void)]
        for log in sorted(may_go, key=lambda log: log.epoch)[:over]:
            if self.is_past(log):
                del self._logs[log]
                self.forgotten_ms = max(self.forgotten_ms, log.epoch)


class Listing:
    """The logs that a position lists, for a reader who was given everything until now.

    A position's time is at most an hour after the directory was last read: this gateway knows
    nothing of a log that began and ended since then. (A row may take five of the six hours to
    another region.)

    Example, with room for two logs. At 12:00 ``a`` of 03:00 hasn't ended, ``b`` of 05:00 is whole,
    and ``c`` of 08:00 and ``d`` of 09:00 aren't. ``b`` is covered by its age, ``a`` and ``c`` are
    listed. So the position's time is 14:59 at most: from 15:00 on it would cover ``d``.
    """

    def __init__(self, logs: Logs) -> None:
        self._logs = logs
        # In ascending order of the hash; None until it is computed.
        self._listed: list[tuple[bytes, KnownLog]] | None = None
        # The latest time of a position: a later one would cover a log without room to be listed.
        self._last_ms = MAX_MS
        # The token that was sent last, its time, and its version.
        self._last_token = "", 0, -1

    def token(self, wall_ms: int) -> str:
        """Return the token for all that was seen, at most a second old while nothing is heard."""
        last, last_ms, version = self._last_token
        if version == self._logs.version and last_ms <= wall_ms < last_ms + _SAME_TOKEN_MS:
            return last
        time_ms, listed = self.at(wall_ms)
        self._last_token = token(time_ms, listed), wall_ms, self._logs.version
        return self._last_token[0]

    def at(self, wall_ms: int) -> tuple[int, list[tuple[bytes, KnownLog]]]:
        """Return the position's time, and the logs that it lists with their hashes."""
        logs = self._logs
        time_ms = min(wall_ms, logs.directory_ms + _DIRECTORY_MS)
        if self._listed is None:
            oldest = time_ms - logs.reach_ms - TIMES.clock_ms
            wanted = [one for one in logs if one.log.epoch >= oldest or not one.is_whole]
            wanted.sort(key=lambda one: one.log.epoch)
            if len(wanted) > MAX_LOGS:
                self._last_ms = wanted[MAX_LOGS].log.epoch + logs.reach_ms - 1
            listed = ((log_hash(one.log), one) for one in wanted[:MAX_LOGS])
            self._listed = sorted(listed, key=lambda pair: pair[0])
        return min(time_ms, self._last_ms), self._listed


class ReturningReader(NamedTuple):
    """A reader who returns with ``position``, compared with the ``logs`` known here.

    Example. Number 2 of ``r1`` was read beyond low here, and given. A position from another gateway
    covers it, where it may have been passed over as void. Until low is 2, this reader doesn't have
    all of ``r1`` up to 2, and is given the message of 2. Number 1 was published: the reader has it.
    """

    position: Position
    logs: Logs

    def has_all(self, log: Log, upto: int) -> bool:
        """Return whether the reader has each message of ``log`` up to ``upto`` given here."""
        known = self.logs.find(log)
        if known is None:
            return self.logs.is_past(log) and self.position.covers(log, upto)
        return self.position.covers(log, upto) and not any(known.may_end_void.within(1, upto))

    def may_lack(self, copies: Iterable[Copy]) -> bool:
        """Return whether the reader may lack the message that has these copies.

        The reader has the message if the position covers a number of it that can't end void.
        Otherwise the reader is sent the copy that was given here, since later copies are dropped.
        """
        given_copy_missing = False
        for log, seq, _ in copies:
            if self.position.covers(log, seq) and self.logs.cannot_end_void(log, seq):
                return False
            given_copy_missing = given_copy_missing or self.logs.was_given(log, seq)
        return given_copy_missing

    def may_lack_forgotten(self) -> bool:
        """Return whether the reader may lack messages of logs that are forgotten here."""
        logs, position = self.logs, self.position
        if not logs.forgotten_ms:
            return False
        if position.time_ms < logs.forgotten_ms + logs.reach_ms:
            return True
        return not position.listed.keys() <= {log_hash(one.log) for one in logs}
