"""The last hundred events that a frontdesk knows, for the board. Pure.

When there is no room, an event of the region with most events is dropped: the oldest one of the
process that has most events there. So no process can hide other processes' events by causing many.

Events are in memory alone: a frontdesk that restarts has none. Their numbers still grow across a
restart, because they count on from the wall clock at the start. So a page that has seen number n
can ask any process for newer events.
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
class RegionEvent:
    """An event at ``at`` (monotonic, of this frontdesk)."""

    seq: int
    at: float
    region: str
    kind: EventKind
    who: str
    text: str


class EventRing:
    """A ring of events. ``began_ms`` is the wall clock when it begins."""

    def __init__(self, began_ms: int) -> None:
        self._last = began_ms
        # The oldest first.
        self._events: list[RegionEvent] = []

    @property
    def last(self) -> int:
        """The number of the newest event; without any, a number below that of the first."""
        return self._last

    def add(self, region: str, kind: EventKind, who: str, text: str, now: float) -> None:
        """Add an event."""
        self._last += 1
        event = RegionEvent(self._last, now, region, kind, who[:MAX_TEXT], text[:MAX_TEXT])
        self._events.append(event)
        if len(self._events) > MOST:
            self._make_room()

    def _make_room(self) -> None:
        # Among equals the one that has the oldest.
        regions = collections.Counter(event.region for event in self._events)
        (region, _), *_ = regions.most_common(1)
        whos = collections.Counter(e.who for e in self._events if e.region == region)
        (who, _), *_ = whos.most_common(1)
        self._events.remove(next(e for e in self._events if (e.region, e.who) == (region, who)))

    def events_document(
        self, now: float, now_ms: int, *, after: int = 0, region: str | None = None
    ) -> list[dict[str, Any]]:
        """Return events with numbers above ``after``, only of ``region`` if given, newest last."""
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
