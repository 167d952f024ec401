"""What a reader is given before what is live: after a position, of a rewind, of its mailbox."""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from gateway.bounded import BoundedMap, newest_that_fit
from gateway.protocol import Gap
from gateway.publication import Publication, push_bytes

Asked = TypeVar("Asked", bound=Hashable)


@dataclasses.dataclass(slots=True, weakref_slot=True, eq=False)
class Recalled:
    """What a reader is given first, in the order to send it; why that may not be all, if so.

    A crowd is given the same object: what is found out about it once is known for all.
    """

    publications: list[Publication]
    gap: Gap | None = None
    #: Whether something in it is still to come to everybody: a copy of that is news to others.
    is_ahead: bool = False
    _fitting: tuple[int, list[Publication]] | None = dataclasses.field(
        default=None, init=False, repr=False
    )
    # When they were routed, in order of time; and what is left of them by how many are left out.
    _parts: tuple[list[int], dict[int, Recalled]] | None = dataclasses.field(
        default=None, init=False, repr=False
    )

    def that_fit(self, most_bytes: int) -> list[Publication]:
        """The newest of them whose pushes have so many bytes together."""
        if self._fitting is None or self._fitting[0] != most_bytes:
            self._fitting = most_bytes, newest_that_fit(self.publications, push_bytes, most_bytes)
        return self._fitting[1]

    def since(self, ms: int) -> Recalled:
        """Without what was routed before ``ms``: the same object for the same part."""
        if not ms:
            return self
        if self._parts is None:
            self._parts = sorted(one.routed_ms for one in self.publications), {}
        times, parts = self._parts
        gone = bisect.bisect_left(times, ms)
        if gone and gone not in parts:
            parts[gone] = Recalled([one for one in self.publications if one.routed_ms >= ms])
        return parts[gone] if gone else self

    @property
    def weight(self) -> int:
        """Bytes that keeping it costs, roughly."""
        return sum(publication.weight for publication in self.publications)

    @property
    def recovered(self) -> bool:
        """Whether it is certainly all."""
        return self.gap is None


class Answers(Generic[Asked]):
    """What was answered in this second: a crowd that asks the same is given the same object.

    None is an answer too: the store has to be asked. Bounded as a :class:`BoundedMap`; what several
    answers share counts for each.
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        self._kept: BoundedMap[Asked, tuple[Hashable, Recalled | None]]
        self._kept = BoundedMap(most, most_bytes)
        self._second = 0

    def get(
        self, asked: Asked, stamp: Hashable, now: float, make: Callable[[], Recalled | None]
    ) -> Recalled | None:
        """The answer to ``asked`` at ``now``: what ``make`` gives, if none is kept that was given
        in this second with the same ``stamp``, which is all else that it depends on.

        From one second to the next messages expire, and more is settled.
        """
        second = int(now)
        if second != self._second:
            self._kept.clear()
            self._second = second
        known = self._kept.get(asked)
        if known is None or known[0] != stamp:
            answer = make()
            known = stamp, answer
            self._kept.set(asked, known, 0 if answer is None else answer.weight)
        return known[1]

    def clear(self) -> None:
        """Keep nothing: what was given is asked for again."""
        self._kept.clear()
