"""Messages that a reader is given first: after a position, of a rewind, or of its mailbox.

Each of these three is a :class:`Source` in a module of its own.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, Protocol, TypeVar

from gateway.past.bounded import BoundedMap, newest_that_fit
from gateway.wire.protocol import Gap, Rewind
from gateway.wire.publication import Publication, push_bytes

Asked = TypeVar("Asked", bound=Hashable)


class Question(NamedTuple):
    """The past that a ``subscribe`` asks for, received at ``asked_at`` (seconds since the epoch).

    ``topic`` is one of topics.toml, and ``position`` a token that can be decoded. ``rewind``
    applies if the position leaves a gap. Without both: the newest of each key, or a mailbox.
    """

    topic: str
    asked_at: float
    position: str | None = None
    rewind: Rewind | None = None


class Source(Protocol):
    """A source of past messages. Both answers hold until anything else is offered to the hub."""

    def answer_from_memory(self, question: Question) -> Replay | None:
        """Return the answer; None if the store has to be asked."""

    async def answer_from_store(self, question: Question) -> Replay:
        """Return the answer, reading the store if needed. Subscribe at once afterwards."""


@dataclasses.dataclass(slots=True, weakref_slot=True, eq=False)
class Replay:
    """Messages that a reader is given first, in the order to send them; ``gap``: perhaps not all
    that came after a position, or that a mailbox keeps.

    A crowd is given the same object: each result computed from it is shared by all.
    """

    publications: list[Publication]
    gap: Gap | None = None
    #: Whether a message in it is still to be published to all: a later copy is news to others.
    has_unpublished: bool = False
    _fitting: tuple[int, list[Publication]] | None = dataclasses.field(
        default=None, init=False, repr=False
    )
    # Routing times in ascending order; and the remaining part by the number of messages left out.
    _parts: tuple[list[int], dict[int, Replay]] | None = dataclasses.field(
        default=None, init=False, repr=False
    )
    _with_gap: Replay | None = dataclasses.field(default=None, init=False, repr=False)

    def newest_within(self, most_bytes: int) -> list[Publication]:
        """Return the newest messages whose pushes have at most ``most_bytes`` bytes together."""
        if self._fitting is None or self._fitting[0] != most_bytes:
            self._fitting = most_bytes, newest_that_fit(self.publications, push_bytes, most_bytes)
        return self._fitting[1]

    def since(self, ms: int) -> Replay:
        """Return the messages routed at ``ms`` or later: the same object for the same part."""
        if not ms:
            return self
        if self._parts is None:
            self._parts = sorted(one.routed_ms for one in self.publications), {}
        times, parts = self._parts
        gone = bisect.bisect_left(times, ms)
        if gone and gone not in parts:
            parts[gone] = Replay([one for one in self.publications if one.routed_ms >= ms])
        return parts[gone] if gone else self

    def with_gap(self, gap: Gap) -> Replay:
        """Return these messages for a reader whose position left ``gap``: the same object if that
        is the gap of the last call."""
        if self._with_gap is None or self._with_gap.gap is not gap:
            self._with_gap = dataclasses.replace(self, gap=gap)
        return self._with_gap

    @property
    def weight(self) -> int:
        """Bytes of memory that the messages take, roughly."""
        return sum(publication.weight for publication in self.publications)


class AnswerCache(Generic[Asked]):
    """Answers of the current second: a crowd that asks the same is given the same object.

    None is an answer too: the store has to be asked. Bounded as a :class:`BoundedMap`; messages
    that several answers share count for each.
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        self._kept: BoundedMap[Asked, tuple[Hashable, Replay | None]]
        self._kept = BoundedMap(most, most_bytes)
        self._second = 0

    def get(
        self, asked: Asked, stamp: Hashable, now: float, make: Callable[[], Replay | None]
    ) -> Replay | None:
        """Return the answer to ``asked`` at ``now``: one kept from this second with the same
        ``stamp``, or a new one from ``make``. ``stamp`` is all else on which the answer depends.

        From one second to the next, messages expire, and more is settled.
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
        """Forget all answers; each is made again when it is asked for."""
        self._kept.clear()
