"""A reader's position: of each log the number up to which it has everything.

Pure. It is made by the gateway that a reader is connected to, and understood by any other.

A log may be left out when it ended, was seen whole, and began long ago; so a log that isn't listed
counts as seen whole if it began long before the position, and as unseen otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping

from gateway.known_log import KnownLog
from newsfabric.store.logs import Log

from .settings import CLOCK_STEP, CLOCKS, POSITION_REACH


class Position:
    """A version vector: of each listed log a mark, and a time that bounds searches."""

    __slots__ = ("listed", "time")

    #: A log that began so long before counts as seen whole if it isn't listed.
    reach = POSITION_REACH

    def __init__(self, time: float, listed: Mapping[Log, tuple[int, float]]) -> None:
        self.time = time
        self.listed = listed

    @classmethod
    def of(cls, logs: Mapping[Log, KnownLog], now: float) -> Position:
        """The position of whoever was given all that this gateway saw until ``now``."""
        # That a log was silent before it ended adds nothing: what counts is when it began.
        oldest = now - POSITION_REACH - CLOCKS
        return cls(
            now,
            {
                log: (known.mark, known.whole_ms / 1000)
                for log, known in logs.items()
                if log.epoch / 1000 >= oldest or not known.is_whole
            },
        )

    def covers(self, log: Log, number: int) -> bool:
        """Whether its reader has this number, if that is a message."""
        listed = self.listed.get(log)
        if listed is not None:
            return number <= listed[0]
        return number <= 0 or log.epoch / 1000 <= self.time - self.reach

    def since(self, log: Log) -> float:
        """What it doesn't cover of this log was routed later, by the router's clock."""
        listed = self.listed.get(log)
        return (log.epoch / 1000 if listed is None else listed[1]) - CLOCK_STEP
