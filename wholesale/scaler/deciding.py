"""A scaler without I/O: reports and lists in, decisions out. Pure.

Two scalers of a region have one each, receive the same reports, and make the same decisions. Where
they differ, the larger number of boxes prevails: a driver is sent a total and never reduces it, and
a box is ended only if it has reported itself that it is empty.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from newsfabric.messages.control import LoadReport
from wholesale.scaler.choice import BoxChooser, Decision
from wholesale.scaler.drivers import Instance
from wholesale.scaler.known_boxes import BoxesView, KnownBoxes
from wholesale.scaler.plan import ScalingPlan


class Scaler:
    """Decides for ``region``. ``now`` is monotonic, in seconds."""

    def __init__(self, region: str, plan: ScalingPlan) -> None:
        self.plan = plan
        self.view: BoxesView | None = None
        self.decision: Decision | None = None
        self._boxes = KnownBoxes(region, plan)
        self._choice = BoxChooser(plan)

    def note_report(self, report: LoadReport, *, now: float) -> bool:
        """Note ``report``; return False if it doesn't count."""
        return self._boxes.note_report(report, now=now)

    def listed(self, instances: Sequence[Instance] | None, *, now: float) -> None:
        """Note the driver's newest list; None if it has none."""
        self._boxes.listed(instances, now=now)

    def disconnected(self) -> None:
        """Note that the link is down: no decisions, and earlier reports prove nothing later."""
        self._boxes.disconnected()
        self.view = self.decision = None

    def decide(self, *, now: float, driver_well: bool = True) -> Decision:
        """Return the decision for ``now``. Call it each second.

        A pause counts as :meth:`disconnected`.
        """
        view = self.view = self._boxes.view_at(now=now)
        if view.listening_for == 0.0:
            self._choice.restart(now)
        decision = self._choice.decide(view, now=now, driver_well=driver_well)
        self.decision = decision
        return decision

    def decision_document(self) -> dict[str, Any]:
        """Return this part of ``GET /scale``."""
        view, decision = self.view, self.decision
        if view is None or decision is None:
            return {"state": "deaf", "wanted": None, "sums": [], "boxes": [], "notes": []}
        return {
            "state": "limited" if decision.limited else "well",
            "wanted": decision.wanted,
            "serving_or_coming": decision.supply,
            "sums": decision.requirement.lines_document(),
            "enough_for": {
                "readers": view.kept_for.readers,
                "missing": view.kept_for.missing,
            },
            "heard_for_s": round(view.listening_for, 1),
            "act": {
                "want": decision.want,
                "drain": list(decision.drain),
                "end": list(decision.end),
            },
            "notes": list(decision.notes),
            "counts": counts(view),
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
                for box in view.boxes
            ],
        }


def counts(view: BoxesView) -> dict[str, int]:
    """Return the number of boxes of each kind."""
    found: dict[str, int] = {}
    for box in view.boxes:
        found[box.kind] = found.get(box.kind, 0) + 1
    return found
