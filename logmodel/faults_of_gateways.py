"""Faults in a gateway: each is a subclass of one rule that breaks one sentence of that rule."""

from __future__ import annotations

import collections
from collections.abc import Iterable

from gateway.logs.known_log import KnownLog, LogSnapshot
from gateway.logs.log_times import LogTimes
from gateway.logs.logs import Logs, ReturningReader
from gateway.logs.runs import Run
from gateway.wire.position import Copy as ProjectCopy
from logmodel.gateway import ModelGateway, each
from logmodel.late import LateMessages
from logmodel.memory import TopicMemory
from logmodel.positions import ModelPosition
from logmodel.resuming import Resuming
from logmodel.rows import Copy
from logmodel.settings import IDENTITY_WINDOW
from newsfabric.store import logs
from newsfabric.store.logs import Log

# Failed reads of a number that the fault void_wrong allows; the next one makes the number void.
VOID_AFTER_TRIES = 3


# A gateway's knowledge of logs.


class StartBeyond(KnownLog):
    @staticmethod
    def start_for(row: logs.DirectoryRow) -> int:
        return row.low + 3 if row.ended is None else row.ended


class MarkSkips(KnownLog):
    def learn(self, row: logs.DirectoryRow) -> bool:
        learned = super().learn(row)
        if self.extent.low > self.mark:
            self.seen.add(1, self.extent.low)
            self._advance()
        return learned


class SilentFromTop(KnownLog):
    def tail(self) -> list[Run]:
        return [(self.seen.top + 1, self.seen.top + self.window + 1)]


class NeverSilent(KnownLog):
    def is_silent(self, now: float) -> bool:
        return False


class MarksOnly(KnownLog):
    def snapshot(self) -> LogSnapshot:
        upto = ((1, self.mark),) if self.mark else ()
        return super().snapshot()._replace(seen=upto)


class PassedLost(KnownLog):
    def snapshot(self) -> LogSnapshot:
        passed = tuple((n, n) for n in each(self.extent.voids) if self.is_done(n))
        return super().snapshot()._replace(skipped=passed)


# Offers and look-ups.


class RuleFiveOff(LateMessages):
    def is_late(self, routed_at: float, now: float) -> bool:
        return False


class AheadIsYoung(LateMessages):
    def is_ahead(self, routed_at: float, reached: float) -> bool:
        return False


class SpanWithoutSpread(LateMessages):
    def span(self, routed_at: float, spread_ms: int) -> tuple[int, int]:
        return super().span(routed_at, 0)


class RuleFiveWindow(LateMessages):
    after = IDENTITY_WINDOW - 60


class LooksUpHere(ModelGateway):
    def regions_looked_up(self) -> list[str]:
        return [self.region]


class ReadLooksYoung(ModelGateway):
    def latest(self, *, was_read: bool) -> float:
        return super().latest(was_read=False)


class ForgetsReports(ModelGateway):
    def reported(self) -> list[Copy]:
        return []


class DirectoryByWall(LogTimes):
    def certain_ms(self, wall_ms: int, now: float) -> int:
        return wall_ms


class DirectoryByLatest(LogTimes):
    def certain_ms(self, wall_ms: int, now: float) -> int:
        return min(wall_ms, max((ms for _, ms in self.known), default=wall_ms))


class CertainRunsOn(LogTimes):
    def certain_ms(self, wall_ms: int, now: float) -> int:
        believed = self._believed(wall_ms, now, [])
        known = [] if believed else [ms for _, ms in self.known]
        return min([wall_ms, *believed, *known])


class PassedAlike(LogTimes):
    def earliest_begin_ms(self, region: str, certain_ms: int) -> int:
        return certain_ms


class AgeByWall(LogTimes):
    def latest_ms(self, wall_ms: int, now: float) -> int:
        return wall_ms


class HoursDisbelieved(LogTimes):
    max_clock_error_ms = 3_600_000


class HeardLaterFromLow(Logs):
    def learn(self, row: logs.DirectoryRow, *, now: float) -> None:
        if self.find(row.log) is None:
            self.begin([row], now=now)
        super().learn(row, now=now)


class VoidWrong(ModelGateway):
    def _new_logs(self) -> Logs:
        self.tries: collections.Counter[Copy] = collections.Counter()
        return super()._new_logs()

    def not_found(self, known: KnownLog, number: int) -> None:
        if number <= known.extent.low:
            self.tries[known.log, number] += 1
            if self.tries[known.log, number] > VOID_AFTER_TRIES:
                known.skip(number, number)


class ReplayUnnoted(ModelGateway):
    def note_replayed(self, identity: int) -> None:
        pass


class TailAnywhere(ModelGateway):
    def may_read_tail(self, log: Log, at: str) -> bool:
        return True


# Memory and replies.


class DroppedUnnoted(TopicMemory):
    def dropped(self, copy: Copy) -> None:
        pass


class TrimUnnoted(TopicMemory):
    def forget(self, copy: Copy) -> None:
        pass


class TrimsDuringReads(TopicMemory):
    def is_held(self) -> bool:
        return False


class SeenEarly(ModelPosition):
    __slots__ = ()
    reach_ms = 60_000


class SinceTime(ModelPosition):
    __slots__ = ()

    def since_ms(self, log: Log) -> int:
        return self.time_ms - 60_000


class NoProof(Resuming):
    def read_at(self, log: Log) -> str:
        return self.region


class CoveredVoid(ReturningReader):
    __slots__ = ()

    def may_lack(self, copies: Iterable[ProjectCopy]) -> bool:
        known = list(copies)
        return super().may_lack(known) and not any(
            self.position.covers(log, seq) for log, seq, _ in known
        )


class CoveredUnsettled(ReturningReader):
    __slots__ = ()

    def has_all(self, log: Log, upto: int) -> bool:
        return self.position.covers(log, upto)

    def may_lack(self, copies: Iterable[ProjectCopy]) -> bool:
        known = list(copies)
        lacked = (copy for copy in known if not self.position.covers(*copy[:2]))
        return super().may_lack(known) and any(self.logs.was_given(*copy[:2]) for copy in lacked)


class GivesUnseen(ReturningReader):
    __slots__ = ()

    def may_lack(self, copies: Iterable[ProjectCopy]) -> bool:
        known = set(copies)
        covered = {copy for copy in known if self.position.covers(*copy[:2])}
        return (
            not any(self.logs.cannot_end_void(*copy[:2]) for copy in covered) and covered != known
        )


class CountsAnywhere(Resuming):
    def counts(self, copy: Copy, logs: Logs) -> bool:
        return True
