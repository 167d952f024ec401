"""The last hour of each region, in points of five seconds, for the board's plots. Pure.

A point is taken from the board's document at that moment, for the own region or another one. Times
are kept on the monotonic clock: a wall clock that jumps moves all points alike, and never puts one
before another.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping
from typing import Any, Final

from wholesale.frontdesk.board.region_page import HEARD_WITHIN

EVERY_MS: Final = 5000
POINTS: Final = 720
# There are some twenty reasons of closes; a reply with more series than this is forged.
MAX_SERIES: Final = 48
MAX_REGIONS: Final = 32

_TOTALS: Final = (
    "readers",
    "messages_per_second",
    "deliveries_per_second",
    "delay_p50_ms",
    "delay_p99_ms",
    "connects_per_second",
)
_CLOSES: Final = "gateway_closes."
_LABEL: Final = "closes."
#: Figures of processes that are plotted, beside the totals.
HOLES: Final = "gateway_holes_open"
REPAIRED: Final = "gateway_recovered_messages"
STORE_P99: Final = "router_store_write_seconds.p99"

Point = Mapping[str, float | None]


def point_of(region: Mapping[str, Any]) -> Point:
    """Return the point of one region in the board's document; {} if no report is recent."""
    boxes, services = (_known_recently(region[kind]) for kind in ("boxes", "services"))
    if not boxes and not services and (region["boxes"] or region["services"]):
        return {}
    here = [box["figures"] for box in boxes]
    routers = [one["figures"] for one in services]
    found: dict[str, float | None] = {name: region["totals"].get(name) for name in _TOTALS}
    found["holes_open"] = _sum(figures.get(HOLES) for figures in here)
    found["repaired_per_second"] = _sum(figures.get(REPAIRED) for figures in here)
    slowest = [figures[STORE_P99] for figures in routers if STORE_P99 in figures]
    found["store_p99_ms"] = round(max(slowest) * 1000, 3) if slowest else None
    closes = sorted({name for figures in here for name in figures if name.startswith(_CLOSES)})
    for name in closes[: MAX_SERIES - len(found)]:
        label = f"{_LABEL}{name.removeprefix(_CLOSES)}"
        found[label] = _sum(figures.get(name) for figures in here)
    return found


def _known_recently(processes: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [
        one for one in processes if one["state"] != "gone" and one["age_ms"] <= HEARD_WITHIN * 1000
    ]


class Plots:
    """The points of all regions."""

    def __init__(self) -> None:
        self._points: dict[str, collections.deque[tuple[float, Point]]] = {}

    def add(self, region: str, point: Point, now: float) -> None:
        """Add a point of ``region``; the oldest is dropped."""
        if region not in self._points and len(self._points) >= MAX_REGIONS:
            return
        kept = self._points.setdefault(region, collections.deque(maxlen=POINTS))
        kept.append((now, point))

    def plots_document(self, now: float, now_ms: int) -> dict[str, Any]:
        """Return all points: for each series a list as long as ``at_ms``, null where unknown."""
        return {
            "every_ms": EVERY_MS,
            "regions": {
                name: {
                    "at_ms": [now_ms - round((now - at) * 1000) for at, _ in points],
                    "series": _series([point for _, point in points]),
                }
                for name, points in self._points.items()
            },
        }


def _series(points: list[Point]) -> dict[str, list[float | None]]:
    names = list(dict.fromkeys(name for point in points for name in point))
    return {name: [_at(point, name) for point in points] for name in names[:MAX_SERIES]}


def _at(point: Point, name: str) -> float | None:
    """Return the value of a series; a missing rate by label is 0 if the region is known."""
    known = point.get("readers") is not None and name.startswith(_LABEL)
    return point.get(name, 0.0 if known else None)


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(sum(known), 3) if known else None
