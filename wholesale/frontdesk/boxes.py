"""The region's boxes as their load reports tell, and which to send the next reader to. Pure.

A box that has not reported for five seconds is gone; nobody is asked whether that is true.
Readers of a burst all come between two reports, so those sent to a box since its last one count as
connected to it: equals take turns and no box gets the whole burst.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from newsfabric.control import LoadReport

MAX_AGE: Final = 5.0
# Five times the largest region there was; a bound, because reports come from outside.
MAX_BOXES: Final = 1000
# More than a reader ever tries before it asks again.
MAX_OFFERED: Final = 20


@dataclasses.dataclass(slots=True)
class _Box:
    report: LoadReport
    seen: float
    sent_there: int = 0

    @property
    def load(self) -> float:
        """Share of its capacity that is taken, 1.0 and above when full."""
        capacity = self.report.capacity
        return (self.report.connections + self.sent_there) / capacity if capacity else 1.0


class Boxes:
    """Boxes of ``region``. ``now`` is monotonic, in seconds."""

    def __init__(self, region: str, *, max_age: float = MAX_AGE, most: int = MAX_BOXES) -> None:
        self._region = region
        self._max_age = max_age
        self._most = most
        self._boxes: dict[str, _Box] = {}

    def report(self, report: LoadReport, *, now: float) -> bool:
        """Note ``report``; False if of another region, older than the last, or one too many."""
        self._forget_silent(now)
        known = self._boxes.get(report.box)
        if report.region != self._region or (known and report.sent_ms < known.report.sent_ms):
            return False
        if known is None and len(self._boxes) >= self._most:
            return False
        self._boxes[report.box] = _Box(report, now)
        return True

    def offer(self, *, now: float) -> list[LoadReport]:
        """Ready boxes that aren't full, least loaded first; a reader is sent to the first."""
        self._forget_silent(now)
        ready = [
            box for box in self._boxes.values() if box.report.state == "ready" and box.load < 1
        ]
        ready.sort(key=lambda box: (box.load, box.report.box))
        if ready:
            ready[0].sent_there += 1
        return [box.report for box in ready[:MAX_OFFERED]]

    def count(self, *, now: float) -> int:
        """How many boxes report, in whatever state."""
        self._forget_silent(now)
        return len(self._boxes)

    def _forget_silent(self, now: float) -> None:
        for name in [n for n, box in self._boxes.items() if now - box.seen > self._max_age]:
            del self._boxes[name]
