"""Logs that are heard, and that the directory doesn't list, though it was read meanwhile. Pure.

A router's log is in the directory before its first number is given out, so one that stays out of it
is no router's: somebody speaks in the name of one that there isn't. Or its row is on its way: from
another region it may take hours, while brokers reach each other and stores don't. That is why such
a log is said to operators and nothing more: whoever refused it would keep from readers what a
region routes while its store is cut off, and tell them that they have it all. And who can speak on
a core broker could as well say numbers of a log that is listed (docs/threats.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gateway.known_log import KnownLog
from newsfabric.store.logs import Log

# So long, in seconds, and for so many reads of the directory, a log may not be in it.
_PATIENCE: Final = 60.0
_READS: Final = 3


class Unlisted:
    """``now`` is in seconds, of any clock that only goes on."""

    def __init__(self) -> None:
        # Since when each isn't listed, and how often that was seen.
        self._since: dict[Log, tuple[float, int]] = {}
        #: Those that have been so for too long, those that began first first.
        self.logs: list[Log] = []

    def read(self, unfinished: Iterable[KnownLog], now: float) -> list[Log]:
        """All of the directory that can have changed was read, and learned; which logs have been
        out of it for too long since now."""
        before = self._since
        self._since = {}
        for known in unfinished:
            if not known.extent.is_listed:
                since, reads = before.get(known.log, (now, 0))
                self._since[known.log] = since, reads + 1
        told = set(self.logs)
        self.logs = sorted(
            (
                log
                for log, (since, reads) in self._since.items()
                if now - since >= _PATIENCE and reads > _READS
            ),
            key=lambda log: log.epoch,
        )
        return [log for log in self.logs if log not in told]
