"""What was read of topics' past, kept for a minute: a crowd that comes back needs one read."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
from collections.abc import Callable
from typing import Final, TypeAlias

from gateway.memory import TopicMemory
from gateway.position import Copy
from gateway.publication import Publication

_WINDOWS: Final = 64
_WINDOW_SECONDS: Final = 60.0
# One that couldn't reach as far as was asked is no reason to read again at once.
_SHORT_SECONDS: Final = 5.0

#: (topic, region): what is read of a topic in one region.
Place: TypeAlias = tuple[str, str]


@dataclasses.dataclass(slots=True, eq=False)
class Window:
    """A topic as a region had it from ``asked_ms`` on; it has all from ``reach_ms`` on.

    It was read when ``arrived`` messages had arrived in ``memory``, and knows the first ``copies``
    of the copies that came later. If ``spoilt``, something that the store has is no
    message.
    """

    region: str
    messages: dict[int, Publication]
    asked_ms: int
    reach_ms: int
    memory: TopicMemory
    arrived: int
    copies: int
    read_at: float
    spoilt: bool
    #: Whether some message that it lacks is in another window of its topic.
    relies: bool = False

    @property
    def weight(self) -> int:
        """Bytes that keeping it costs, roughly."""
        return sum(publication.weight for publication in self.messages.values())

    def holds(self, memory: TopicMemory) -> bool:
        """Whether this and ``memory`` leave nothing out between them."""
        return self.memory is memory and memory.lost <= self.arrived

    def answers(self, from_ms: int, now: float) -> bool:
        """Whether this has all from then on, or would have no more if it were read now."""
        lately = self.asked_ms <= from_ms and now < self.read_at + _SHORT_SECONDS
        return self.reach_ms <= from_ms or lately

    def lacks(self, copy: Copy, ms: int) -> bool:
        """Whether the store has this copy now, of a message that it didn't give then."""
        return copy.log.region == self.region and ms >= self.reach_ms


def _caught_up(windows: list[Window], memory: TopicMemory) -> list[Window]:
    """Those of ``windows`` that still lack nothing, after the copies that came since they were
    read. What arrived since then needn't be in a window: ``memory`` has it."""
    if all(window.copies == memory.new_copies for window in windows):
        return windows
    # One that is too far behind must not spoil the others.
    windows = [one for one in windows if memory.new_copies_since(one.copies) is not None]
    behind = min((window.copies for window in windows), default=memory.new_copies)
    for identity, copy, ms, arrival in memory.new_copies_since(behind) or ():
        known = [window.messages[identity] for window in windows if identity in window.messages]
        for one in known:
            one.add_copy(copy)
        lacking = [
            window
            for window in windows
            if identity not in window.messages
            and arrival <= window.arrived
            and window.lacks(copy, ms)
        ]
        if known:
            for window in lacking:
                window.relies = True
        else:
            windows = [window for window in windows if window not in lacking]
    for window in windows:
        window.copies = memory.new_copies
    return windows


class Windows:
    """The last read of each place, of ``most_bytes`` in all; the newest one always stays.

    Lives on the loop that made it. ``dropped`` is told of each that is let go of.
    """

    def __init__(self, most_bytes: int, dropped: Callable[[Window], None]) -> None:
        self._most_bytes = most_bytes
        self._dropped = dropped
        # Oldest first.
        self._windows: collections.OrderedDict[Place, Window] = collections.OrderedDict()

    @property
    def bytes(self) -> int:
        """What all of them weigh."""
        return sum(window.weight for window in self._windows.values())

    def fitting(self, topic: str, memory: TopicMemory, now: float) -> dict[str, Window]:
        """By region, the windows of a topic that leave nothing out between them and ``memory``."""
        found = [
            window
            for place, window in self._windows.items()
            if place[0] == topic and window.holds(memory) and now < window.read_at + _WINDOW_SECONDS
        ]
        return {window.region: window for window in _caught_up(found, memory)}

    def keep(self, place: Place, window: Window) -> None:
        """``window`` was read of ``place`` just now."""
        self._drop(place)
        self._windows[place] = window
        held = sum(kept.weight for kept in self._windows.values())
        while len(self._windows) > 1 and (len(self._windows) > _WINDOWS or held > self._most_bytes):
            held -= self._drop(next(iter(self._windows)))
        asyncio.get_running_loop().call_later(_WINDOW_SECONDS, self._let_go, place, window.read_at)

    def _let_go(self, place: Place, read_at: float) -> None:
        window = self._windows.get(place)
        if window is not None and window.read_at == read_at:
            self._drop(place)

    def _drop(self, place: Place) -> int:
        """Let go of a window, and of those that rely on others of its topic; returns its weight."""
        window = self._windows.pop(place, None)
        if window is None:
            return 0
        self._dropped(window)
        others = [
            other for other, kept in self._windows.items() if other[0] == place[0] and kept.relies
        ]
        return window.weight + sum(map(self._drop, others))
