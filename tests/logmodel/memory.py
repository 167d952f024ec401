"""What a gateway remembers of one topic, and of which logs it has forgotten what.

Pure. A reader whose position covers everything that was forgotten is answered from memory, and
that is a proof: whatever it lacks is remembered here, or will come live.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gateway.forgotten import Forgotten, HasAll
from newsfabric.store.logs import Log
from tests.logmodel.rows import Copy
from tests.logmodel.settings import MEMORY_SIZE


class TopicMemory:
    """The latest messages of a topic with all their copies that came."""

    def __init__(self, tops: Callable[[], Mapping[Log, int]]) -> None:
        """``tops``: of each log the number up to which nothing of it is remembered."""
        self.copies: dict[int, set[Copy]] = {}
        self._forgotten = Forgotten(tops)
        self._reads = 0

    def add(self, identity: int, copy: Copy) -> None:
        """A message, or another copy of one that is remembered."""
        held = self.copies.get(identity)
        if held is None:
            self.copies[identity] = {copy}
        else:
            held.add(copy)

    def dropped(self, copy: Copy) -> None:
        """A copy of a message that isn't remembered any more was dropped as known.

        It counts as forgotten: somebody with a position from elsewhere may know this copy alone.
        """
        self.forget(copy)

    def forget(self, copy: Copy) -> None:
        """Nobody who lacks this copy can be answered from memory."""
        self._forgotten.add(*copy)

    def lacks(self, has_all: HasAll) -> list[Log]:
        """The logs of which something was forgotten that a reader may lack."""
        return self._forgotten.lacks(has_all)

    def begin_read(self) -> None:
        """A read of the store for this topic begins; until its end nothing is trimmed."""
        self._reads += 1

    def end_read(self) -> None:
        self._reads -= 1

    def is_held(self) -> bool:
        """Whether a read is under way: memory and its result together are everything."""
        return self._reads > 0

    def trim(self) -> None:
        """Forget the oldest messages beyond what memory keeps."""
        if self.is_held():
            return
        while len(self.copies) > MEMORY_SIZE:
            for copy in self.copies.pop(next(iter(self.copies))):
                self.forget(copy)
