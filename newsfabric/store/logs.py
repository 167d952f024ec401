"""Logs, and the directory that lists them: the values that every store keeps. Pure.

A **log** is what one router routes in one life. Its numbers run 1, 2, 3 … without gaps, and each of
them ends as a message or as **void**. In a store a number is an index row, (log, number) → (topic,
id), beside the message's own row, so nothing is stored twice. A number is there when both are.

The **directory** has one row for each log: how far all of it is settled (``low``), and where it
ended. A row is only ever replaced by one of a higher version, and never once the log has ended
(:meth:`DirectoryRow.may_replace`), so that of two who don't know of each other one is refused.

Example. Router ``oregon-router-1`` starts: version 1, low 0. It routes 9 messages: version 2, low
9. It is killed. Two routers see version 2 stand still and read that the log goes up to 11, without
10. Both ask for version 3, ended 11, void 10; the second one is refused. If the router had only
slept, its own version 3, low 11, would be refused as well, and it begins a new log.

docs/design/0028 has the rules and their reasons.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from newsfabric.fixed import fixed
from newsfabric.messages.envelope import Envelope

DAY_MS: Final = 86_400_000

# First and last number of each, in order.
Runs = tuple[tuple[int, int], ...]


class Log(NamedTuple):
    """What ``router`` of ``region`` has routed since ``epoch``: when it began, in ms by its clock.

    No epoch is used twice under one name.
    """

    region: str
    router: str
    epoch: int

    @property
    def day(self) -> int:
        """The day on which it began, since 1970-01-01; the directory is kept by day."""
        return self.epoch // DAY_MS


@fixed(frozen=True, slots=True)
class DirectoryRow:
    """``log`` as the directory has it.

    All numbers up to ``low`` are settled. ``ended`` is the last number of a log that has ended,
    and ``voids`` are those up to it that whoever closed it found to be nothing.
    """

    log: Log
    version: int = 1
    low: int = 0
    ended: int | None = None
    voids: Runs = ()

    @property
    def told_ms(self) -> int:
        """The latest time that it tells, in ms: its router's clock read that then, or a bit more.

        Of a router of the release before it is when the log began.
        """
        return max(self.log.epoch, self.version)

    def may_replace(self, old: DirectoryRow) -> bool:
        """Whether this may be written over ``old``, of the same log."""
        return old.ended is None and old.version < self.version


def next_version(version: int, now_ms: int) -> int:
    """The version of the row that its router writes over one of this ``version`` at ``now_ms``."""
    return max(version + 1, now_ms)


class State(enum.Enum):
    """What a number of a log is."""

    MESSAGE = "message"
    VOID = "void"
    #: Its index row is there and its message isn't: another replica may have it.
    HALF = "half"
    #: A message whose time is over (:func:`newsfabric.store.rules.lifetime`).
    GONE = "gone"


class Number(NamedTuple):
    """One number of a log, as it was read; ``envelope`` is there for a MESSAGE."""

    seq: int
    state: State
    envelope: Envelope | None = None
