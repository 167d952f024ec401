"""What a topic's memory lacks, as a version vector of its own (docs/design/0011). Pure and bounded.

Saying that more was forgotten than was is always safe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from newsfabric.store.logs import Log

HasAll: TypeAlias = Callable[[Log, int], bool]

# Of whom nothing was forgotten yet; never changed.
_NOTHING: Final[dict[Log, int]] = {}
# Logs of which something was forgotten since the memory was made; then it is made anew.
_LOGS: Final = 64


class Forgotten:
    """Of each log the highest number that isn't remembered.

    ``tops`` gives, of each log, the highest number seen by this gateway until now: nothing of them
    is remembered by a memory that is made now. Many memories share what it returns.
    """

    __slots__ = ("_before", "_since", "_tops")

    def __init__(self, tops: Callable[[], Mapping[Log, int]] = dict) -> None:
        self._tops = tops
        self._before = tops()
        self._since = _NOTHING

    def add(self, log: Log, seq: int) -> None:
        """One more copy of a message isn't remembered."""
        if seq <= self._since.get(log, self._before.get(log, 0)):
            return
        if self._since is _NOTHING:
            self._since = {}
        self._since[log] = seq
        if len(self._since) > _LOGS:
            self._before, self._since = self._tops(), _NOTHING

    def lacks(self, has_all: HasAll) -> list[Log]:
        """The logs of which something isn't remembered that a reader may lack.

        ``has_all(log, upto)``: whether it has all of ``log`` up to that number.
        """
        known = {**self._before, **self._since} if self._since else self._before
        return [log for log, seq in known.items() if not has_all(log, seq)]
