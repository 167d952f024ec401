"""Faults of what a gateway does: each is a subclass of one rule that breaks one sentence of it."""

from __future__ import annotations

import collections
import dataclasses

from gateway.known_log import KnownLog, Left
from gateway.runs import Run
from newsfabric.store import logs
from newsfabric.store.logs import Log

from .directory import DirectoryRow
from .gateway import Gateway, each
from .late import LateMessages
from .memory import TopicMemory
from .positions import Position
from .resuming import Logs, Resuming
from .rows import Copy, Row
from .settings import IDENTITY_WINDOW

# A gateway with the fault void_wrong reads a number so often before it takes it for void.
VOID_AFTER_TRIES = 3


# What it knows of logs.


class StartLast(Gateway):
    def start_of(self, row: DirectoryRow) -> int:
        return max(row.last, row.low if row.ended is None else row.ended)


class MarkSkips(KnownLog):
    def learn(self, row: logs.DirectoryRow) -> None:
        super().learn(row)
        if self.low > self.mark:
            self.seen.add(1, self.low)
            self._advance()


class SilentFromTop(KnownLog):
    def tail(self) -> list[Run]:
        return [(self.highest + 1, self.highest + self.window + 1)]


class NeverSilent(KnownLog):
    def is_silent(self, now: float) -> bool:
        return False


class VoidWrong(KnownLog):
    def __init__(self, log: Log, *, start: int, now: float, window: int = 0) -> None:
        super().__init__(log, start=start, now=now, window=window)
        self.tries: collections.Counter[int] = collections.Counter()

    def not_found(self, number: int) -> None:
        if number <= self.low:
            self.tries[number] += 1
            if self.tries[number] > VOID_AFTER_TRIES:
                self.skip(number, number)


class MarksOnly(KnownLog):
    def left(self) -> Left:
        upto = ((1, self.mark),) if self.mark else ()
        return dataclasses.replace(super().left(), seen=upto)


class PassedLost(KnownLog):
    def left(self) -> Left:
        passed = tuple((n, n) for n in each(self.voids) if self.has(n))
        return dataclasses.replace(super().left(), passed=passed)


# What it offers and looks up.


class RuleFiveOff(LateMessages):
    def is_late(self, routed_at: float, now: float) -> bool:
        return False


class RuleFiveWindow(LateMessages):
    after = IDENTITY_WINDOW - 60


class LooksUpHere(Gateway):
    def regions_looked_up(self) -> list[str]:
        return [self.region]


class ForgetsReports(Gateway):
    def reported(self) -> list[Copy]:
        return []


class HeardLaterFromLow(Gateway):
    def start_of_unknown(self, log: Log) -> int:
        row = self.world.stores[self.region].directory.get(log)
        return 0 if row is None else row.low


class ReplayUnnoted(Gateway):
    def note_replayed(self, identity: int) -> None:
        pass


class TailAnywhere(Gateway):
    def may_read_tail(self, log: Log, at: str) -> bool:
        return True


# What it remembers and answers.


class DroppedUnnoted(TopicMemory):
    def dropped(self, copy: Copy) -> None:
        pass


class TrimUnnoted(TopicMemory):
    def forget(self, copy: Copy) -> None:
        pass


class TrimsDuringReads(TopicMemory):
    def is_held(self) -> bool:
        return False


class SeenEarly(Position):
    __slots__ = ()
    reach = 60.0


class SinceTime(Position):
    __slots__ = ()

    def since(self, log: Log) -> float:
        return self.time - 60


class NoProof(Resuming):
    def read_at(self, log: Log) -> str:
        return self.region


class CoveredVoid(Resuming):
    def is_settled(self, copy: Copy, logs: Logs) -> bool:
        return True


class CountsAnywhere(Resuming):
    def counts(self, copy: Copy, logs: Logs) -> bool:
        return True


class CountsWholeAtHome(Gateway):
    def counts_row(self, copy: Copy, row: Row, *, read_at: str) -> bool:
        is_whole = self.world.stores[read_at].find(copy) is row
        is_home = copy[0].region == read_at
        return (is_whole and is_home) or super().counts_row(copy, row, read_at=read_at)
