"""What a reader who comes back is given, and which reads prove that it is everything.

Pure. ``recovered: true`` is a fact: every message of the topic that its position doesn't cover was
remembered, or was read at quorum in the region that wrote it, or will come live. Which messages a
reader lacks is the project's own rule (:meth:`gateway.logs.ReaderAt.lacks`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gateway import position
from gateway.logs import Logs, ReaderAt
from newsfabric.store.logs import Log
from tests.logmodel.positions import Position
from tests.logmodel.rows import Copy


class Resuming:
    """The rules by which a gateway of one region answers."""

    def __init__(self, region: str) -> None:
        self.region = region

    def reads(self, lacking: Iterable[Log], position: Position) -> dict[str, float]:
        """The regions to be read, and since when: those that wrote what memory lacks."""
        since: dict[str, float] = {}
        for log in lacking:
            at, from_s = self.read_at(log), position.since_ms(log) / 1000
            since[at] = min(since.get(at, from_s), from_s)
        return since

    def read_at(self, log: Log) -> str:
        """Where a read proves something about a log: a quorum of the region that wrote it."""
        return log.region

    def counts(self, copy: Copy, logs: Logs) -> bool:
        """Whether a message's row counts that a read of its topic found.

        Only if it was given here. Any other may be half of a number, or may end void, or lie
        beyond the end of its log, even if both of its rows are at home: they may have come after
        somebody there looked for the end. If it is a message it comes live.
        """
        return logs.gave(*copy)

    def given(self, copies: Mapping[int, set[Copy]], reader: ReaderAt) -> list[int]:
        """Which of these messages the reader is given, by identity."""
        return [
            identity
            for identity, places in copies.items()
            if reader.lacks([_project_copy(place) for place in places])
        ]


def _project_copy(place: Copy) -> position.Copy:
    return position.Copy(*place, routed_ms=0)
