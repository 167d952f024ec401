"""The messages that a resuming reader is given, and the reads that prove that they are all.

Pure. ``recovered: true`` is a fact: every message of the topic that the position doesn't cover was
remembered, or was read at quorum in the region that wrote it, or will be sent live. Whether a
reader lacks a message is decided by the project's own rule
(:meth:`gateway.logs.logs.ReturningReader.may_lack`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gateway.logs.logs import Logs, ReturningReader
from gateway.wire import position
from logmodel.positions import ModelPosition
from logmodel.rows import Copy
from newsfabric.store.logs import Log


class Resuming:
    """The rules by which a gateway of one region answers."""

    def __init__(self, region: str) -> None:
        self.region = region

    def reads(self, lacking: Iterable[Log], position: ModelPosition) -> dict[str, float]:
        """Return the regions that wrote the lacking logs, each with the time to read from."""
        since: dict[str, float] = {}
        for log in lacking:
            at, from_s = self.read_at(log), position.since_ms(log) / 1000
            since[at] = min(since.get(at, from_s), from_s)
        return since

    def read_at(self, log: Log) -> str:
        """Return the region where a read at quorum proves something: the one that wrote the log."""
        return log.region

    def counts(self, copy: Copy, logs: Logs) -> bool:
        """Return whether a message's row counts that a read of its topic found.

        Only if it was given here. Any other may be half of a number, or may end void, or lie beyond
        the end of its log, even if both of its rows are at home: they may have arrived after a
        router there searched for the end. If such a row is a message, it will be sent live.
        """
        return logs.was_given(*copy)

    def given(self, copies: Mapping[int, set[Copy]], reader: ReturningReader) -> list[int]:
        """Return the identities of those messages that the reader is given."""
        return [
            identity
            for identity, places in copies.items()
            if reader.may_lack([_project_copy(place) for place in places])
        ]


def _project_copy(place: Copy) -> position.Copy:
    return position.Copy(*place, routed_ms=0)
