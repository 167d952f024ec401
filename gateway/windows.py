"""What was read of topics' past, kept for a minute: a crowd that comes back needs one read.

Pure.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Final, NamedTuple

from gateway.bounded import BoundedMap
from gateway.memory import TopicMemory
from gateway.position import Copy
from gateway.publication import Publication

_WINDOWS: Final = 64
WINDOW_SECONDS: Final = 60.0
# One that couldn't reach as far as was asked is no reason to read again at once.
_SHORT_SECONDS: Final = 5.0
_numbers = itertools.count()


class Place(NamedTuple):
    """What is read of a topic in one region."""

    topic: str
    region: str


@dataclasses.dataclass(slots=True, eq=False)
class Window:
    """A topic as a region had it from ``asked_ms`` on; it has all from ``reach_ms`` on.

    It was read when ``arrived`` messages had arrived in ``memory``, and knows the first ``copies``
    of the copies that came later. If ``spoilt``, something that the store has is no
    message.
    """

    place: Place
    messages: dict[int, Publication]
    asked_ms: int
    reach_ms: int
    memory: TopicMemory
    arrived: int
    copies: int
    read_at: float
    spoilt: bool
    #: No other window has it.
    number: int = dataclasses.field(default_factory=_numbers.__next__)
    #: The numbers of others of its topic that have messages which it lacks.
    relies_on: set[int] = dataclasses.field(default_factory=set)

    @property
    def weight(self) -> int:
        """Bytes that keeping it costs, roughly."""
        return sum(publication.weight for publication in self.messages.values())

    def holds(self, memory: TopicMemory, now: float) -> bool:
        """Whether this is young, and leaves nothing out together with ``memory``."""
        is_young = now < self.read_at + WINDOW_SECONDS
        return is_young and self.memory is memory and memory.lost <= self.arrived

    def answers(self, from_ms: int, now: float) -> bool:
        """Whether this has all from then on, or would have no more if it were read now."""
        lately = self.asked_ms <= from_ms and now < self.read_at + _SHORT_SECONDS
        return self.reach_ms <= from_ms or lately

    def lacks(self, identity: int, copy: Copy, arrival: int) -> bool:
        """Whether the store has this copy now, of a message that it didn't give then and that
        memory needn't have."""
        is_there = copy.log.region == self.place.region and copy.routed_ms >= self.reach_ms
        return is_there and identity not in self.messages and arrival <= self.arrived


def _caught_up(windows: list[Window], memory: TopicMemory) -> list[Window]:
    """Those of ``windows`` that still lack nothing, after the copies that came since they were
    read. What arrived since then needn't be in a window: ``memory`` has it."""
    if all(window.copies == memory.new_copies for window in windows):
        return windows
    # One that is too far behind must not spoil the others.
    windows = [one for one in windows if memory.new_copies_since(one.copies) is not None]
    behind = min((window.copies for window in windows), default=memory.new_copies)
    for identity, copy, arrival in memory.new_copies_since(behind) or ():
        have = [window for window in windows if identity in window.messages]
        lack = [window for window in windows if window.lacks(identity, copy, arrival)]
        for window in have:
            window.messages[identity].add_copy(copy)
        for window in lack:
            window.relies_on.update(other.number for other in have)
        if not have:
            windows = [window for window in windows if window not in lack]
    for window in windows:
        window.copies = memory.new_copies
    return windows


class Windows:
    """The last read of each place, of ``most_bytes`` in all; the newest one always stays."""

    def __init__(self, most_bytes: int) -> None:
        self._kept: BoundedMap[Place, Window] = BoundedMap(_WINDOWS, most_bytes)

    def fitting(self, topic: str, memory: TopicMemory, now: float) -> dict[str, Window]:
        """By region, the windows of a topic that leave nothing out between them and ``memory``."""
        found = [
            window
            for window in self._kept.values()
            if window.place.topic == topic and window.holds(memory, now)
        ]
        found = _caught_up(found, memory)
        there = {window.number for window in found}
        if not all(window.relies_on <= there for window in found):
            found = [window for window in found if not window.relies_on]
        return {window.place.region: window for window in found}

    def keep(self, window: Window) -> None:
        """``window`` was read just now."""
        self._kept.set(window.place, window, window.weight)

    def drop(self, place: Place, number: int) -> None:
        """Let go of the window of ``place`` that has this ``number``, if it is kept."""
        window = self._kept.get(place)
        if window is not None and window.number == number:
            self._kept.drop(place)
