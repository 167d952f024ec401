"""Whether what our own region's routers route reaches our readers. Pure: time is passed in.

A gateway is **ready** when the living logs of its own region have been heard, each with nothing
missing up to the first tick of it. One whose row in the directory hasn't moved for 12 s doesn't
count: its router is gone, and nobody has closed it yet.

Example. The directory lists one log of ours, with low 40, when we start: we wait for it. Its first
tick says last number 42; 41 came, 42 didn't. When 42 has been read from the store, we are ready.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gateway.logs import Logs
from newsfabric.store.logs import DirectoryRow, Log

# A router moves its row each ten seconds at least.
_MOVES_WITHIN: Final = 12.0


class LogReadiness:
    """Of a gateway in ``region`` that knows ``logs``. ``now`` is in seconds, and only goes on."""

    def __init__(self, logs: Logs, region: str) -> None:
        self._logs = logs
        self._region = region
        # Logs that we wait for: the row's version, and since when it stands. None before the
        # directory was read.
        self._awaited: dict[Log, tuple[int, float]] | None = None
        # The highest number of each that was seen before: what was missing then needn't be found.
        self._seen_before: dict[Log, int] = {}
        # Of these the lowest last number that a tick said.
        self._ticked: dict[Log, int] = {}

    def ticked(self, log: Log, seq: int) -> None:
        """A tick of ``log`` was heard; ``seq`` is its last number."""
        if self._awaited is None or log in self._awaited:
            # The lowest: an absurd one mustn't keep us waiting.
            self._ticked[log] = min(seq, self._ticked.get(log, seq))

    def read(self, rows: Iterable[DirectoryRow], now: float) -> None:
        """The directory has these rows: wait for the logs that there are, while their rows move."""
        rows = [row for row in rows if row.log.region == self._region]
        if self._awaited is None:
            self._awaited = {row.log: (row.version, now) for row in rows if row.ended is None}
            self._seen_before = dict(self._logs.tops())
            return
        for row in rows:
            if row.log not in self._awaited:
                continue
            version, since = self._awaited[row.log]
            if row.ended is not None or (row.version == version and now > since + _MOVES_WITHIN):
                del self._awaited[row.log]
            elif row.version != version:
                self._awaited[row.log] = row.version, now

    def is_reached(self) -> bool:
        """Whether of no log anything is missing any more up to its first tick."""
        if self._awaited is None:
            return False
        for log in self._awaited.keys() & self._ticked.keys():
            known = self._logs.find(log)
            first = self._seen_before.get(log, 0) + 1
            if known is not None and not known.holes(first, self._ticked[log]):
                del self._awaited[log]
        return not self._awaited
