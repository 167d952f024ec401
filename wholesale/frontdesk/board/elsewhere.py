"""The other regions: their frontdesks' last replies, and whether they still reply. Pure.

The last reply is kept for as long as the frontdesk runs, and grows older on the board: an old
picture of a region that is cut off is worth more than none. A region is away after two failed
requests in a row, or when its last reply is five seconds old.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from wholesale.frontdesk.board.answers_elsewhere import BoardReply
from wholesale.frontdesk.board.events import EventRing

ASK_EVERY: Final = 2.0
# After a failed request.
ASK_AGAIN: Final = 0.5
OLD_AFTER: Final = 5.0
_MISSES: Final = 2
# Of a region; the newest event number is remembered for each.
_FRONTDESKS: Final = 8
# Of an event elsewhere, whatever its region states.
_OLDEST_MS: Final = 7 * 86_400_000
_NOTHING: Final[dict[str, Any]] = {
    "totals": {
        "readers": 0,
        "capacity": 0,
        "boxes": 0,
        "boxes_ready": 0,
        "messages_per_second": 0.0,
        "deliveries_per_second": 0.0,
        "connects_per_second": 0.0,
        "delay_p50_ms": None,
        "delay_p99_ms": None,
    },
    "clusters": [],
    "services": [],
    "shovels": [],
    "boxes": [],
    "topics": [],
    "publishers": [],
}


@dataclasses.dataclass(slots=True)
class _Other:
    url: str
    # The time of the last good reply, or, before the first, of the start.
    since: float
    answer: BoardReply | None = None
    misses: int = 0
    why: str = ""
    away: bool | None = None
    # Frontdesk → the number of its newest event that is known here: several may reply in turn.
    seqs: dict[str, int] = dataclasses.field(default_factory=dict)


class OtherRegions:
    """The known state of ``others``: region → its frontdesk's URL."""

    def __init__(self, others: Mapping[str, str], events: EventRing, now: float) -> None:
        self._others = {name: _Other(url, now) for name, url in others.items()}
        self._events = events

    def answered(self, region: str, answer: BoardReply, now: float) -> None:
        """Note a reply of the region's frontdesk, and its new events."""
        other = self._others[region]
        other.answer, other.since, other.misses, other.why = answer, now, 0, ""
        newest = other.seqs.pop(answer.frontdesk, 0)
        for event in answer.events:
            if event["seq"] > newest:
                newest = event["seq"]
                at = now - min(_OLDEST_MS, max(0, answer.now_ms - event["at_ms"])) / 1000
                self._events.add(region, event["kind"], event["who"], event["text"], at)
        other.seqs[answer.frontdesk] = newest
        if len(other.seqs) > _FRONTDESKS:
            del other.seqs[next(iter(other.seqs))]

    def failed(self, region: str, why: str) -> None:
        """Note a failed request, for the reason ``why``."""
        other = self._others[region]
        other.misses += 1
        other.why = why[:200]

    def update_events(self, now: float) -> None:
        """Find regions that are newly away or back, and make events of that."""
        for name, other in self._others.items():
            away = other.misses >= _MISSES or now - other.since > OLD_AFTER
            if other.answer is None and not away:
                # Not known yet.
                continue
            if away and other.away is not True:
                text = f"{name} doesn't answer {other.url}"
                self._events.add(name, "region_away", name, text, now)
            elif other.away and not away:
                self._events.add(name, "region_back", name, f"{name} answers again", now)
            other.away = away

    def documents(self, now: float) -> list[dict[str, Any]]:
        """Return the other regions for the board's document, the nearest first."""
        return [_document(name, other, now) for name, other in self._others.items()]


def _document(name: str, other: _Other, now: float) -> dict[str, Any]:
    age = round((now - other.since) * 1000)
    region = dict(_NOTHING if other.answer is None else other.answer.region)
    why = list(region.get("why", ()))
    state = "well" if region.get("state") == "well" else "troubled"
    if other.away or other.answer is None:
        state = "away"
        cause = f": {other.why}" if other.why else ""
        why = [f"its frontdesk doesn't answer{cause}" if other.away else "not asked yet"]
    return region | {
        "name": name,
        "frontdesk_url": other.url,
        "age_ms": age,
        "state": state,
        "why": why,
    }
