"""A scaler without I/O: reports and lists in, decisions out. Pure.

Two scalers of a region have one each, receive the same reports, and make the same decisions. Where
they differ, the larger number of boxes prevails: a driver is told a total and never reduces it, and
a box is ended only if it has reported itself that it is empty.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from newsfabric.messages.control import LoadReport
from wholesale.scaler.choice import BoxChooser, Decision
from wholesale.scaler.drivers import Instance
from wholesale.scaler.known_boxes import KnownBoxes, Sight
from wholesale.scaler.plan import ScalingPlan


class Brain:
    """Decides for ``region``. ``now`` is monotonic, in seconds."""

    def __init__(self, region: str, plan: ScalingPlan) -> None:
        self.plan = plan
        self.sight: Sight | None = None
        self.decision: Decision | None = None
        self._boxes = KnownBoxes(region, plan)
        self._choice = BoxChooser(plan)

    def hear(self, report: LoadReport, *, now: float) -> bool:
        """Note ``report``; return False if it doesn't count."""
        return self._boxes.hear(report, now=now)

    def listed(self, instances: Sequence[Instance] | None, *, now: float) -> None:
        """Note the driver's newest list; None if it has none."""
        self._boxes.listed(instances, now=now)

    def deaf(self) -> None:
        """Note that the link is down: no decisions, and earlier reports prove nothing later."""
        self._boxes.deaf()
        self.sight = self.decision = None

    def decide(self, *, now: float, driver_well: bool = True) -> Decision:
        """Return the decision for ``now``. Call it each second; a pause counts as :meth:`deaf`."""
        sight = self.sight = self._boxes.look(now=now)
        if sight.heard_for == 0.0:
            self._choice.restart(now)
        decision = self._choice.decide(sight, now=now, driver_well=driver_well)
        self.decision = decision
        return decision

    def document(self) -> dict[str, Any]:
        """Return this part of ``GET /scale``."""
        sight, decision = self.sight, self.decision
        if sight is None or decision is None:
            return {"state": "deaf", "wanted": None, "sums": [], "boxes": [], "notes": []}
        return {
            "state": "limited" if decision.limited else "well",
            "wanted": decision.wanted,
            "serving_or_coming": decision.supply,
            "sums": decision.wish.document(),
            "enough_for": {
                "readers": sight.kept_for.readers,
                "missing": sight.kept_for.missing,
            },
            "heard_for_s": round(sight.heard_for, 1),
            "act": {
                "want": decision.want,
                "drain": list(decision.drain),
                "end": list(decision.end),
            },
            "notes": list(decision.notes),
            "counts": counts(sight),
            "boxes": [
                {
                    "name": box.name,
                    "kind": box.kind,
                    "readers": box.readers,
                    "capacity": box.capacity,
                    "silent_s": None if box.silent_for in (None, math.inf) else box.silent_for,
                    "zone": box.zone,
                    "listed": box.listed,
                }
                for box in sight.boxes
            ],
        }


def counts(sight: Sight) -> dict[str, int]:
    """Return the number of boxes of each kind."""
    found: dict[str, int] = {}
    for box in sight.boxes:
        found[box.kind] = found.get(box.kind, 0) + 1
    return found
