"""A gateway's memory of one topic, and the numbers of each log that it has forgotten.

Pure. If a reader's position covers all forgotten numbers, it is answered from memory. That is a
proof: each message that the reader lacks is remembered here, or will be sent live.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gateway.memory.forgotten import ForgottenVector, HasAll
from logmodel.rows import Copy
from logmodel.settings import MEMORY_SIZE
from newsfabric.store.logs import Log


class TopicMemory:
    """The latest messages of a topic, with all their received copies."""

    def __init__(self, tops: Callable[[], Mapping[Log, int]]) -> None:
        """``tops``: returns for each log the number up to which nothing of it is remembered."""
        self.copies: dict[int, set[Copy]] = {}
        self._forgotten = ForgottenVector(tops)
        self._reads = 0

    def add(self, identity: int, copy: Copy) -> None:
        """Add a message, or another copy of one that is remembered."""
        held = self.copies.get(identity)
        if held is None:
            self.copies[identity] = {copy}
        else:
            held.add(copy)

    def dropped(self, copy: Copy) -> None:
        """Note a dropped copy of a message that isn't remembered any more.

        It counts as forgotten: a reader with a position from elsewhere may know only this copy.
        """
        self.forget(copy)

    def forget(self, copy: Copy) -> None:
        """Note a forgotten copy: a reader that lacks it can't be answered from memory."""
        self._forgotten.add(*copy)

    def lacks(self, has_all: HasAll) -> list[Log]:
        """Return the logs of which a reader may lack a forgotten number."""
        return self._forgotten.incomplete_logs(has_all)

    def begin_read(self) -> None:
        """Begin a read of the store for this topic; until its end nothing is trimmed."""
        self._reads += 1

    def end_read(self) -> None:
        self._reads -= 1

    def is_held(self) -> bool:
        """Return whether a read is under way: only memory and its result together are complete."""
        return self._reads > 0

    def trim(self) -> None:
        """Forget the oldest messages above the limit of memory."""
        if self.is_held():
            return
        while len(self.copies) > MEMORY_SIZE:
            for copy in self.copies.pop(next(iter(self.copies))):
                self.forget(copy)
