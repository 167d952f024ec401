"""What a reader who comes back is given, and which reads prove that it is everything.

Pure. ``recovered: true`` is a fact: every message of the topic that its position doesn't cover was
remembered, or was read at quorum in the region that wrote it, or will come live.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gateway.known_log import KnownLog
from newsfabric.store.logs import Log

from .positions import Position
from .rows import Copy

Logs = Mapping[Log, KnownLog]


class Resuming:
    """The rules by which a gateway of one region answers."""

    def __init__(self, region: str) -> None:
        self.region = region

    def reads(self, lacking: Iterable[Log], position: Position) -> dict[str, float]:
        """The regions to be read, and since when: those that wrote what memory lacks."""
        since: dict[str, float] = {}
        for log in lacking:
            at = self.read_at(log)
            since[at] = min(since.get(at, position.since(log)), position.since(log))
        return since

    def read_at(self, log: Log) -> str:
        """Where a read proves something about a log: a quorum of the region that wrote it."""
        return log.region

    def counts(self, copy: Copy, logs: Logs) -> bool:
        """Whether a message's row counts that a read of its topic found.

        Only if its number is settled or was seen here. Any other may be half of a number, or may
        end void, or lie beyond the end of its log, even if both of its rows are at home: they may
        have come after somebody there looked for the end. If it is a message it comes live.
        """
        known = logs.get(copy[0])
        return known is not None and (known.is_settled(copy[1]) or known.gave(copy[1]))

    def is_settled(self, copy: Copy, logs: Logs) -> bool:
        """Whether this copy stays a message, as known here."""
        known = logs.get(copy[0])
        return known is not None and known.is_settled(copy[1])

    def given(self, copies: Mapping[int, set[Copy]], position: Position, logs: Logs) -> list[int]:
        """Which of these messages the reader is given, by identity.

        Those with a copy that was given here and that it lacks, and no copy that it has. A covered
        number that may be void is none that it has: it only means that it needn't wait for it.
        """
        return [
            identity
            for identity, places in copies.items()
            if any(self._is_news(copy, position, logs) for copy in places)
            and not any(self._is_had(copy, position, logs) for copy in places)
        ]

    def _is_had(self, copy: Copy, position: Position, logs: Logs) -> bool:
        return position.covers(*copy) and self.is_settled(copy, logs)

    @staticmethod
    def _is_news(copy: Copy, position: Position, logs: Logs) -> bool:
        known = logs.get(copy[0])
        return known is not None and known.gave(copy[1]) and not position.covers(*copy)
