"""Faults in a router: each is a subclass of one rule that breaks one sentence of that rule."""

from __future__ import annotations

from collections.abc import Sequence

from logmodel.closing import Closing
from logmodel.directory import Directory, DirectoryRow, ModelEnding
from logmodel.numbering import Numbering
from logmodel.router import Job, ModelRouter
from logmodel.rows import VOID, ModelRow
from logmodel.settings import HOLD
from newsfabric.store.logs import Log, next_version
from wholesale.router.log_clock import LogClock


class GoesBack(LogClock):
    def now_ms(self, wall_ms: int, now: float) -> int:
        super().now_ms(wall_ms, now)
        return wall_ms


class StandsStill(LogClock):
    waiting_speed = 0.0


class ForgetsRows(LogClock):
    def at_least(self, ms: int) -> None:
        pass


class NotCompared(LogClock):
    def now_ms(self, wall_ms: int, now: float) -> int:
        self.compare(wall_ms, now, [])
        return super().now_ms(wall_ms, now)

    def compare(self, wall_ms: int, now: float, store_ms: Sequence[int]) -> None:
        super().now_ms(wall_ms, now)
        self.is_right = True


class RowsTellNoTime(Directory):
    def moved(self, row: DirectoryRow, *, low: int, at_ms: int = 0) -> DirectoryRow | None:
        return super().moved(row, low=low)


class LowAtStore(Numbering):
    def stored(self, number: int) -> None:
        self.settle(number)


class NoLease(Numbering):
    def has_lease(self, now: float) -> bool:
        return self.is_listed


class VoidAfterWrite(Numbering):
    @staticmethod
    def ends_void(held: float, *, tried: bool) -> bool:
        return held > HOLD


class VoidsWhatTimedOut(ModelRouter):
    """At times let a write time out and give it up at once, so that the fault matters often."""

    def write(self, job: Job) -> None:
        rng = self.world.rng
        if not job.is_done and not job.tried and rng.random() < 0.02:
            job.tried = True
            self.apply_rows(job, rng.uniform(0, 30), True, True)
            self.write_void(job)
        else:
            super().write(job)


class DirectoryLate(ModelRouter):
    def list_log(self, numbering: Numbering) -> None:
        if numbering.is_listed:
            super().list_log(numbering)
        else:
            numbering.renewed(self.world.now + 1e9)
            self.later(self.world.rng.uniform(2, 20), self.list_log, numbering)


class CoarseEpochs(ModelRouter):
    """Make epochs whole minutes, so that two routers of one name often choose the same."""

    def next_epoch(self) -> int:
        return max(self.clock_ms() // 60_000 * 60_000, self._epoch + 1)


class EpochTaken(Directory):
    def first(self, row: DirectoryRow | None) -> DirectoryRow | None:
        return DirectoryRow(version=1, low=0) if row is None else row


class BlindDirectory(Directory):
    def moved(self, row: DirectoryRow, *, low: int, at_ms: int = 0) -> DirectoryRow | None:
        version = next_version(row.version, at_ms)
        return row._replace(version=version, low=max(row.low, low))

    def finished(self, row: DirectoryRow, last: int) -> DirectoryRow | None:
        return self.with_end(row, ModelEnding(last, frozenset()))

    def closed(
        self, watched: DirectoryRow, row: DirectoryRow, ending: ModelEnding
    ) -> DirectoryRow | None:
        return self.with_end(row, ending)


class SuccessorCloses(Closing):
    def may_close(self, log: Log, row: DirectoryRow, now: float) -> bool:
        is_namesake = log.router == self.router and row.ended is None
        return is_namesake or super().may_close(log, row, now)


class CloseEarly(Closing):
    close_after = 10.0


class CloseShort(Closing):
    @property
    def end_of_search(self) -> int:
        return 1


class OtherCloses(Closing):
    def is_ours(self, log: Log) -> bool:
        return True


class NobodyCloses(Closing):
    def is_ours(self, log: Log) -> bool:
        return False


class HalfFound(Closing):
    @staticmethod
    def is_message(index: ModelRow | None, message: ModelRow | None) -> bool:
        return index is not None and index is not VOID


class VoidIsGap(Closing):
    @staticmethod
    def is_given_out(index: ModelRow | None) -> bool:
        return index is not None and index is not VOID
