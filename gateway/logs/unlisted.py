"""Logs that are heard, but that the directory doesn't list, although it was read meanwhile. Pure.

A router's log is in the directory before its first number is given out. So a log that stays out of
it may be no router's: somebody uses the name of a router that doesn't exist. Or its row is on its
way: from another region it may take hours, while brokers reach each other and stores don't. So such
a log is only reported to operators. A refusal would keep from readers all that a region routes
while its store is cut off, and they would get the answer that they have it all. And an attacker on
a core broker could use numbers of a listed log just as well (docs/threats.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gateway.logs.known_log import KnownLog
from newsfabric.store.logs import Log

# Limits for a log that isn't listed: seconds, and reads of the directory.
_PATIENCE: Final = 60.0
_READS: Final = 3


class Unlisted:
    """The logs that aren't listed. ``now`` is in seconds, of any monotonic clock."""

    def __init__(self) -> None:
        # By log, since when it isn't listed, and the number of reads that found it so.
        self._since: dict[Log, tuple[float, int]] = {}
        #: Logs that aren't listed for too long, in the order in which they began.
        self.logs: list[Log] = []

    def note_directory(self, unfinished: Iterable[KnownLog], now: float) -> list[Log]:
        """Note that all changed rows of the directory were read and learned; return the logs that
        have newly become unlisted for too long."""
        before = self._since
        self._since = {}
        for known in unfinished:
            if not known.extent.is_listed:
                since, reads = before.get(known.log, (now, 0))
                self._since[known.log] = since, reads + 1
        reported = set(self.logs)
        self.logs = sorted(
            (
                log
                for log, (since, reads) in self._since.items()
                if now - since >= _PATIENCE and reads > _READS
            ),
            key=lambda log: log.epoch,
        )
        return [log for log in self.logs if log not in reported]
