"""The last hundred events that a frontdesk knows of, for the board. Pure.

When there is no room the region with most of them gives up its oldest, and in it who has most:
nobody can hide what others did by doing much.

They are in memory alone: a frontdesk that starts anew begins with none. Numbers go on across a
restart all the same, because they count on from the time at which the log began: a page that has
seen number n may ask for what is newer, whichever process answers.
"""

from __future__ import annotations

import collections
import dataclasses
from typing import Any, Final, Literal, get_args

MOST: Final = 100
MAX_TEXT: Final = 255

EventKind = Literal[
    "process_gone",
    "process_back",
    "process_ready",
    "process_not_ready",
    "box_draining",
    "shovel_silent",
    "shovel_back",
    "shovel_remade",
    "node_away",
    "node_back",
    "region_away",
    "region_back",
]
EVENT_KINDS: Final[tuple[EventKind, ...]] = get_args(EventKind)


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at ``at`` (monotonic, of this frontdesk)."""

    seq: int
    at: float
    region: str
    kind: EventKind
    who: str
    text: str


class Events:
    """A ring of events. ``began_ms`` is the wall clock when it begins."""

    def __init__(self, began_ms: int) -> None:
        self._last = began_ms
        # The oldest first.
        self._events: list[Event] = []

    @property
    def last(self) -> int:
        """The number of the newest event; of none, a number below that of the first."""
        return self._last

    def add(self, region: str, kind: EventKind, who: str, text: str, now: float) -> None:
        """Note what happened."""
        self._last += 1
        event = Event(self._last, now, region, kind, who[:MAX_TEXT], text[:MAX_TEXT])
        self._events.append(event)
        if len(self._events) > MOST:
            self._make_room()

    def _make_room(self) -> None:
        # Of equals the one that has the oldest.
        regions = collections.Counter(event.region for event in self._events)
        (region, _), *_ = regions.most_common(1)
        whos = collections.Counter(e.who for e in self._events if e.region == region)
        (who, _), *_ = whos.most_common(1)
        self._events.remove(next(e for e in self._events if (e.region, e.who) == (region, who)))

    def document(
        self, now: float, now_ms: int, *, after: int = 0, region: str | None = None
    ) -> list[dict[str, Any]]:
        """Those newer than number ``after``, of ``region`` alone if it is given, newest last."""
        return [
            {
                "seq": event.seq,
                "at_ms": now_ms - round((now - event.at) * 1000),
                "region": event.region,
                "kind": event.kind,
                "who": event.who,
                "text": event.text,
            }
            for event in self._events
            if event.seq > after and region in (None, event.region)
        ]
