"""The messages that a topic's memory lacks, as a version vector (docs/design/0011). Pure, bounded.

An entry that is too high is always safe: it costs a read of the store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from newsfabric.store.logs import Log

HasAll: TypeAlias = Callable[[Log, int], bool]

# Shared by all memories that have forgotten nothing yet; never changed.
_NOTHING: Final[dict[Log, int]] = {}
# Most logs with messages forgotten since the vector was made; above that it is made anew.
_LOGS: Final = 64


class ForgottenVector:
    """The highest number of each log that a memory doesn't remember.

    ``tops`` returns the highest number of each log seen by this gateway until now: a new memory
    remembers none of these. Many memories share the mapping that it returns.
    """

    __slots__ = ("_before", "_since", "_tops")

    def __init__(self, tops: Callable[[], Mapping[Log, int]] = dict) -> None:
        self._tops = tops
        self._before = tops()
        self._since = _NOTHING

    def add(self, log: Log, seq: int) -> None:
        """Note one more copy of a message that isn't remembered."""
        if seq <= self._since.get(log, self._before.get(log, 0)):
            return
        if self._since is _NOTHING:
            self._since = {}
        self._since[log] = seq
        if len(self._since) > _LOGS:
            self._before, self._since = self._tops(), _NOTHING

    def incomplete_logs(self, has_all: HasAll) -> list[Log]:
        """Return the logs of which a reader may lack a message that isn't remembered.

        ``has_all(log, upto)``: whether the reader has all of ``log`` up to that number.
        """
        known = {**self._before, **self._since} if self._since else self._before
        return [log for log, seq in known.items() if not has_all(log, seq)]
