"""Publications that the data plane has not given to all their readers yet."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator

from gateway.native import commands
from gateway.publication import Publication


class Unfinished:
    """Numbers publications, and keeps each command until its fan-out is over.

    The data plane finishes them in the order of their numbers, and drops what it has had. How many
    there can be is bounded by the feed's prefetch: a delivery is acknowledged when it is over.
    """

    def __init__(self) -> None:
        self._number = 0
        # Ascending: number → the command, and what to call when its fan-out is over.
        self._kept: collections.OrderedDict[int, tuple[bytes, Callable[[], None]]]
        self._kept = collections.OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, publication: Publication, done: Callable[[], None]) -> bytes:
        """The command that publishes it, under the next number."""
        self._number += 1
        command = commands.publish(self._number, publication)
        self._kept[self._number] = (command, done)
        return command

    def commands(self) -> Iterator[bytes]:
        """All that a new attachment has to be sent again."""
        return (command for command, _ in self._kept.values())

    def finish(self, number: int) -> None:
        """The fan-outs up to ``number`` are over."""
        while self._kept and next(iter(self._kept)) <= number:
            _, (_, done) = self._kept.popitem(last=False)
            done()

    def finish_all(self) -> None:
        """There is nobody any more who could be given one."""
        self.finish(self._number)

    def drop(self) -> None:
        """Forget them, and call nobody: they stay unacknowledged."""
        self._kept.clear()
