"""The region's boxes by their load reports, and the share of new readers for each. Pure.

A box that has not reported for five seconds counts as gone, without any other check.
:mod:`wholesale.frontdesk.presence.weights` computes the shares.
"""

from __future__ import annotations

import dataclasses
import math
import random
from typing import Final

from newsfabric.messages.control import LoadReport
from wholesale.frontdesk.presence.weights import Vessel, shares

MAX_AGE: Final = 5.0
# Five times the largest region known; a bound, because reports come from outside.
MAX_BOXES: Final = 1000
# More than a reader tries before it asks again; a reply of 10 KB.
MAX_OFFERED: Final = 50


@dataclasses.dataclass(slots=True)
class _Box:
    report: LoadReport
    seen: float
    # Since when it is ready; None while it isn't.
    ready_since: float | None

    @property
    def open(self) -> bool:
        """True while the box takes readers."""
        return self.ready_since is not None and self.report.connections < self.report.capacity


@dataclasses.dataclass(frozen=True, slots=True)
class OfferedBox:
    """A box that takes readers, and its share of new readers relative to the other boxes."""

    report: LoadReport
    weight: float


class Boxes:
    """Boxes of ``region``. ``now`` is monotonic, in seconds."""

    def __init__(
        self,
        region: str,
        *,
        max_age: float = MAX_AGE,
        most: int = MAX_BOXES,
        rng: random.Random | None = None,
    ) -> None:
        self._rng = rng or random.Random()  # noqa: S311 - shares a load, guards nothing
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
        since = now if known is None or known.ready_since is None else known.ready_since
        self._boxes[report.box] = _Box(report, now, since if report.state == "ready" else None)
        return True

    def offers(self, *, now: float) -> list[OfferedBox]:
        """Return ready boxes that aren't full, in a weighted random order: the first is a good one.

        Above :data:`MAX_OFFERED` boxes, that many are drawn, with equal weights.
        """
        self._forget_silent(now)
        boxes = [box for box in self._boxes.values() if box.open]
        if not boxes:
            return []
        found = shares([_vessel(box.report, now - (box.ready_since or 0.0)) for box in boxes])
        offers = [OfferedBox(box.report, share) for box, share in zip(boxes, found, strict=True)]
        # Efraimidis and Spirakis: each place in turn is drawn by weight from the boxes that are
        # left.
        offers.sort(key=lambda one: math.log(1.0 - self._rng.random()) / one.weight, reverse=True)
        if len(offers) > MAX_OFFERED:
            return [OfferedBox(one.report, 1 / MAX_OFFERED) for one in offers[:MAX_OFFERED]]
        return offers

    def count(self, *, now: float) -> int:
        """Return the number of boxes that report, in any state."""
        self._forget_silent(now)
        return len(self._boxes)

    def _forget_silent(self, now: float) -> None:
        for name in [n for n, box in self._boxes.items() if now - box.seen > self._max_age]:
            del self._boxes[name]


def _vessel(report: LoadReport, age: float) -> Vessel:
    return Vessel(
        connections=report.connections,
        capacity=report.capacity,
        connects_per_second=report.connects_per_second,
        age=age,
    )
