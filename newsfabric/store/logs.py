"""Logs, and the directory that lists them: the values that every store keeps. Pure.

A **log** has all messages that one router routes in one life. Its numbers are 1, 2, 3 … without
gaps, and each ends as a message or as **void**. In a store a number is an index row, (log, number)
→ (topic, id), beside the message's own row, so nothing is stored twice. A number is present when
both rows are.

The **directory** has one row for each log: the number up to which it is settled (``low``), and the
last number if it has ended. Only a row of a higher version replaces a row, and none replaces the
row of an ended log (:meth:`DirectoryRow.may_replace`). So of two concurrent changes one is refused.

Example. Router ``oregon-router-1`` starts: version 1, low 0. It routes 9 messages: version 2, low
9. It is killed. Two routers see that version 2 doesn't change, and read numbers up to 11, but not
the 10th. Both write version 3, ended 11, void 10; the second write is refused. If the router was
only suspended, its own version 3, low 11, is refused as well, and it begins a new log.

docs/design/0028 has the rules and their reasons.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from newsfabric.fixed import fixed
from newsfabric.messages.envelope import Envelope

DAY_MS: Final = 86_400_000

# First and last number of each run, in order.
Runs = tuple[tuple[int, int], ...]


class Log(NamedTuple):
    """The log of one life of ``router`` of ``region``, which began at ``epoch``: ms, by its own
    clock.

    No epoch is used twice under one name.
    """

    region: str
    router: str
    epoch: int

    @property
    def day(self) -> int:
        """The day on which the log began, since 1970-01-01; the directory is kept by day."""
        return self.epoch // DAY_MS


@fixed(frozen=True, slots=True)
class DirectoryRow:
    """The directory's row of ``log``.

    All numbers up to ``low`` are settled. ``ended`` is the last number of a log that has ended.
    ``voids`` are its void numbers, as the router that closed the log found.
    """

    log: Log
    version: int = 1
    low: int = 0
    ended: int | None = None
    voids: Runs = ()

    @property
    def stated_ms(self) -> int:
        """The latest time known from this row, in ms: its router's clock then, or a bit more.

        For a row of a router of the release before: when the log began.
        """
        return max(self.log.epoch, self.version)

    def may_replace(self, old: DirectoryRow) -> bool:
        """Return whether this row may be written over ``old``, of the same log."""
        return old.ended is None and old.version < self.version


def next_version(version: int, now_ms: int) -> int:
    """Return the version for a router that writes over its row of ``version`` at ``now_ms``."""
    return max(version + 1, now_ms)


class NumberState(enum.Enum):
    """The state of a number of a log."""

    MESSAGE = "message"
    VOID = "void"
    #: The index row is present and the message isn't: another replica may have it.
    HALF = "half"
    #: A message whose time is over (:func:`newsfabric.store.rules.lifetime`).
    GONE = "gone"


class Number(NamedTuple):
    """A number of a log, as it was read; a MESSAGE has its ``envelope``."""

    seq: int
    state: NumberState
    envelope: Envelope | None = None
