"""All logs that one gateway knows of, and the positions of its readers. Pure.

:mod:`gateway.known_log` says what is known of one log. A gateway that starts takes each log of the
directory from where it is settled (:meth:`Logs.begin`); one that it hears of later is expected from
its first number. docs/design/0028 has the rules and why.

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
from gateway.log_times import LogTimes
from gateway.position import MAX_LOGS, Copy, Position, log_hash, token
from gateway.runs import Run
from newsfabric.messages.envelope import MAX_MS
from newsfabric.store.logs import DirectoryRow, Log

# So far the clock of a router that routes may be from that of its region's store.
CLOCKS_MS: Final = 30_000
# So long after the directory was read for the last time positions say that it was.
_DIRECTORY_MS: Final = 3_600_000
# A position may be told again so long, while nothing is heard.
_TOLD_MS: Final = 1_000


class LeftLogs(NamedTuple):
    """What a gateway process leaves to its successor: when it read the directory last, and until
    when logs began of which it has forgotten some, and :attr:`.LogTimes.lead_ms`, ``known`` and
    ``least_ms``."""

    logs: tuple[Left, ...]
    directory_ms: int
    forgotten_ms: int = 0
    lead_ms: int | None = None
    told: tuple[tuple[str, int], ...] = ()
    least_ms: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LogLimits:
    """``logs`` are remembered; beyond, whole ones are forgotten. ``runs`` are of a log's numbers.

    A log with more runs takes nothing new from the feed: it is read from the store in its order.
    """

    logs: int = 10_000
    runs: int = 65_536


class Logs:
    """What one gateway knows. ``now`` is in seconds, and monotonic."""

    #: What is known of one log, and how far back positions cover logs that they don't list.
    known_log: type[KnownLog] = KnownLog
    reach_ms: int = Position.reach_ms

    def __init__(self, directory_ms: int = 0, limits: LogLimits | None = None) -> None:
        self.limits = limits or LogLimits()
        #: All logs that began well before it are known (:meth:`directory_read`).
        self.directory_ms = directory_ms
        #: What the routers have told of the time.
        self.times = LogTimes()
        #: Of logs that began until then some are forgotten.
        self.forgotten_ms = 0
        #: What positions say, until logs come, go or end.
        self.listing = Listing(self)
        #: Another one after whatever was heard, seen or learned.
        self.version = 0
        self._logs: dict[Log, KnownLog] = {}
        # Those that aren't whole; whole ones among them do no harm.
        self._unfinished: list[KnownLog] | None = None
        # Of a version, the highest number of each log; and of those that aren't unfinished.
        self._tops: tuple[int, Mapping[Log, int]] = -1, {}
        self._whole_tops: dict[Log, int] = {}

    def __len__(self) -> int:
        return len(self._logs)

    def __iter__(self) -> Iterator[KnownLog]:
        return iter(self._logs.values())

    def begin(self, rows: Iterable[DirectoryRow], *, now: float) -> None:
        """We start, and this is the whole directory."""
        for row in rows:
            self.times.found(row.log.region, row.told_ms)
            start = self.known_log.start_for(row)
            (self._logs.get(row.log) or self._began(row.log, now, start=start)).learn(row)
        self._arrange()

    def take(self, left: LeftLogs, *, now: float) -> None:
        """Go on from what another gateway process has left."""
        self.directory_ms, self.forgotten_ms = left.directory_ms, left.forgotten_ms
        self.times.take(left.lead_ms, left.told, left.least_ms)
        for one in left.logs:
            self._logs[one.log] = self.known_log.of(one, now=now)
        self._arrange()

    def learn(self, row: DirectoryRow, *, now: float) -> None:
        """This is what the directory says of a log."""
        known = self._logs.get(row.log)
        if known is None and row.ended is not None and row.log.epoch <= self.forgotten_ms:
            # It may be one that was forgotten here.
            return
        if (known or self._began(row.log, now)).learn(row):
            self.times.told(row.log.region, row.told_ms, now)
        self.version += 1

    def directory_read(self, wall_ms: int, now: float) -> None:
        """All of the directory that can have changed was read, and learned: at the time that is
        certain now."""
        self.directory_ms = self.times.certain_ms(wall_ms, now)
        self._bound()
        self._arrange()

    def heard(self, log: Log, seq: int, low: int, *, sent_ms: int, now: float) -> KnownLog:
        """The feed has brought a message, or a tick whose last number is ``seq``."""
        self.times.heard(log.region, sent_ms, now)
        known = self._logs.get(log) or self._began(log, now)
        known.heard(seq, low, sent_ms=sent_ms, now=now)
        self.version += 1
        return known

    def saw(self, log: Log, seq: int) -> None:
        """``seq`` was offered to the hub."""
        # One that was never heard is silent.
        (self._logs.get(log) or self._began(log, -math.inf)).saw(seq)
        self.version += 1

    def skip(self, log: Log, first: int, last: int) -> None:
        """These numbers of a log that is known are void, or their time is over."""
        self._logs[log].skip(first, last)
        self.version += 1

    def find(self, log: Log) -> KnownLog | None:
        """What is known of ``log``; None if it was never heard of, or is forgotten."""
        return self._logs.get(log)

    def is_past(self, log: Log) -> bool:
        """Whether ``log``, which isn't known, counts as past and settled: it is so old."""
        passed_ms = self.times.passed_ms(log.region, self.directory_ms)
        return log.epoch < passed_ms - self.reach_ms - CLOCKS_MS

    def unfinished(self) -> list[KnownLog]:
        """The logs of which more may come; some that are whole may be among them."""
        if self._unfinished is None:
            self._unfinished = [known for known in self if not known.is_whole]
            whole = {known.log: known.seen.top for known in self if known.is_whole}
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
        return self.is_past(log) if known is None else known.gave(seq)

    def stays(self, log: Log, seq: int) -> bool:
        """Whether whoever passed this number had a message there, if there is one."""
        known = self._logs.get(log)
        return self.is_past(log) if known is None else known.stays(seq)

    def tops(self) -> Mapping[Log, int]:
        """Of each log the highest number that was seen, or is past. Not to be changed.

        Many topics' memories keep what this returns: what it has of whole logs is shared.
        """
        if self._tops[0] != self.version:
            unfinished = {known.log: known.seen.top for known in self.unfinished() if known.seen}
            self._tops = self.version, collections.ChainMap(unfinished, self._whole_tops)
        return self._tops[1]

    def left(self) -> LeftLogs:
        """What a successor of this gateway process goes on from."""
        logs = tuple(known.left() for known in self)
        times = self.times
        told = times.lead_ms, times.known, times.least_ms
        return LeftLogs(logs, self.directory_ms, self.forgotten_ms, *told)

    def missing(self) -> list[Run]:
        """The runs of numbers that exist for certain and weren't seen, of all logs."""
        return [run for known in self.unfinished() for run in known.missing()]

    def _began(self, log: Log, now: float, *, start: int = 0) -> KnownLog:
        known = self._logs[log] = self.known_log(log, start, heard_at=now)
        self._arrange()
        return known

    def _arrange(self) -> None:
        """Logs have come, gone or ended."""
        self.listing, self._unfinished = Listing(self), None
        self.version += 1

    def _bound(self) -> None:
        """Forget whole logs, the oldest first; what was passed over in one is remembered, and what
        was given that ended void."""
        over = len(self._logs) - self.limits.logs
        if over <= 0:
            return
        may_go = [one.log for one in self if one.is_whole and not (one.passed or one.doubtful)]
        for log in sorted(may_go, key=lambda log: log.epoch)[:over]:
            if self.is_past(log):
                del self._logs[log]
                self.forgotten_ms = max(self.forgotten_ms, log.epoch)


class Listing:
    """The position of a reader who was given everything until now: which logs it lists.

    A position's time is at most an hour after the directory was last read: of a log that began and
    ended since then this gateway knows nothing. (A row may take five of the six hours to another
    region.)

    Example, with room for two logs. At 12:00 ``a`` of 03:00 goes on, ``b`` of 05:00 is whole, and
    ``c`` of 08:00 and ``d`` of 09:00 aren't. ``b`` counts as had by its age, ``a`` and ``c`` are
    listed, and so the time is 14:59 at most: from 15:00 on ``d`` would count as had.
    """

    def __init__(self, logs: Logs) -> None:
        self._logs = logs
        # In order of the hash; None when they are to be found out.
        self._listed: list[tuple[bytes, KnownLog]] | None = None
        # Later positions would count a log as had that there is no room for.
        self._last_ms = MAX_MS
        # What was told last, when, and of which version.
        self._told = "", 0, -1

    def token(self, wall_ms: int) -> str:
        """The token for everything seen until now, at most a second old while nothing is heard."""
        told, told_ms, version = self._told
        if version == self._logs.version and told_ms <= wall_ms < told_ms + _TOLD_MS:
            return told
        time_ms, listed = self.at(wall_ms)
        self._told = token(time_ms, listed), wall_ms, self._logs.version
        return self._told[0]

    def at(self, wall_ms: int) -> tuple[int, list[tuple[bytes, KnownLog]]]:
        """The position's time, and the logs that it lists with their hashes."""
        logs = self._logs
        time_ms = min(wall_ms, logs.directory_ms + _DIRECTORY_MS)
        if self._listed is None:
            oldest = time_ms - logs.reach_ms - CLOCKS_MS
            wanted = [one for one in logs if one.log.epoch >= oldest or not one.is_whole]
            wanted.sort(key=lambda one: one.log.epoch)
            if len(wanted) > MAX_LOGS:
                self._last_ms = wanted[MAX_LOGS].log.epoch + logs.reach_ms - 1
            listed = ((log_hash(one.log), one) for one in wanted[:MAX_LOGS])
            self._listed = sorted(listed, key=lambda pair: pair[0])
        return min(time_ms, self._last_ms), self._listed


class ReaderAt(NamedTuple):
    """A reader who comes back with ``position``, and what it has of these ``logs``.

    Example. Number 2 of ``r1`` was read beyond low here, and given. A position of elsewhere covers
    it, where it may have been passed over as void. Until low is 2 this reader doesn't have all of
    ``r1`` up to 2, and is given its message. 1, which was published, it has.
    """

    position: Position
    logs: Logs

    def has_all(self, log: Log, upto: int) -> bool:
        """Whether it has each message of ``log`` up to number ``upto`` that was given here."""
        known = self.logs.find(log)
        if known is None:
            return self.logs.is_past(log) and self.position.covers(log, upto)
        return self.position.covers(log, upto) and not any(known.doubtful.within(1, upto))

    def lacks(self, copies: Iterable[Copy]) -> bool:
        """Whether it may lack the message that has these copies.

        It has a message of which it has a number that stays one. Otherwise it is given what was
        given here, since no copy that comes later will be.
        """
        lacked = False
        for log, seq, _ in copies:
            if self.position.covers(log, seq) and self.logs.stays(log, seq):
                return False
            lacked = lacked or self.logs.gave(log, seq)
        return lacked

    def may_lack_forgotten(self) -> bool:
        """Whether it may lack something of logs that are forgotten here."""
        logs, position = self.logs, self.position
        if not logs.forgotten_ms:
            return False
        if position.time_ms < logs.forgotten_ms + logs.reach_ms:
            return True
        return not position.listed.keys() <= {log_hash(one.log) for one in logs}
