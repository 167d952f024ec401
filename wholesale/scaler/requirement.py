"""The number of boxes that a region needs now, as a sum with lines to show. Pure arithmetic.

Boxes take minutes to boot. So the sum counts the readers at the time when a box requested now is
ready: present readers, readers of silent boxes that haven't returned yet, and readers that arrive
meanwhile. The result is the largest of four numbers of boxes:

- each box filled no further than headroom allows;
- one zone gone, the boxes of the others full;
- arrivals, of which a box takes so many a second;
- the bounds that an operator set.

The scaler, ``newsfabric capacity`` and the simulation (loadtest/autoscale.py) use this function.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal

from wholesale.scaler.plan import ScalingPlan

Unit = Literal["readers", "boxes", "readers a second"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """The load for which boxes are needed.

    ``missing`` are readers of boxes that fell silent, which haven't returned on others. ``growth``
    is the increase of readers each second, ``connects`` the arrivals each second (others leave).
    One box carries ``per_box``. There will never be more than ``expected`` readers (None: unknown).
    """

    readers: float
    per_box: int
    missing: float = 0.0
    growth: float = 0.0
    connects: float = 0.0
    expected: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class RequirementLine:
    """A line of a sum. ``name`` is for programs, ``text`` for people."""

    name: str
    value: float
    unit: Unit
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Requirement:
    """The number of boxes wanted, and the ``lines`` of its sum; ``unbounded``: without bounds."""

    boxes: int
    unbounded: int
    lines: tuple[RequirementLine, ...]

    def lines_document(self) -> list[dict[str, Any]]:
        """Return the lines as JSON."""
        return [dataclasses.asdict(line) for line in self.lines]


def requirement(demand: Demand, plan: ScalingPlan) -> Requirement:
    """Return the number of boxes that ``demand`` needs, with its sum."""
    coming = max(0.0, demand.growth) * plan.lead
    carried = demand.readers + demand.missing + coming
    if demand.expected is not None:
        carried = min(carried, max(demand.expected, demand.readers + demand.missing))
    usable = demand.per_box * (1.0 - plan.headroom)
    filled = boxes_for(carried, usable)
    full = boxes_for(carried, demand.per_box)
    spread = spread_over(full, plan.zones)
    doors = boxes_for(demand.connects, plan.connects_per_box)
    unbounded = max(filled, spread, doors)
    boxes = min(max(unbounded, plan.least), plan.most)
    lines = (
        RequirementLine("readers", demand.readers, "readers", "readers on boxes that report"),
        RequirementLine(
            "missing", demand.missing, "readers", "of boxes that fell silent, not back yet"
        ),
        RequirementLine("growth", demand.growth, "readers a second", "more readers each second"),
        RequirementLine(
            "coming", coming, "readers", f"more until a new box stands, in {plan.lead:.0f} s"
        ),
        RequirementLine("carried", carried, "readers", "to be carried"),
        RequirementLine("usable", usable, "readers", _usable(demand, plan)),
        RequirementLine("filled", filled, "boxes", "carry them with that headroom"),
        RequirementLine("spread", spread, "boxes", _spread(full, plan)),
        RequirementLine("doors", doors, "boxes", _doors(demand, plan)),
        RequirementLine(
            "wanted", boxes, "boxes", f"wanted: the largest, from {plan.least} to {plan.most}"
        ),
    )
    return Requirement(boxes, unbounded, lines)


def boxes_for(amount: float, each: float) -> int:
    """Return the number of boxes for ``amount``, each with a capacity of ``each``."""
    # Rounding errors of floats must not add a box.
    return max(0, math.ceil(amount / each - 1e-9))


def spread_over(full: int, zones: int) -> int:
    """Return the number of boxes of which ``full`` remain when the fullest of ``zones`` is lost."""
    if zones == 1:
        return full
    return full + math.ceil(full / (zones - 1))


def _usable(demand: Demand, plan: ScalingPlan) -> str:
    return f"on one box, of {demand.per_box:,} with {plan.headroom:.0%} kept free"


def _spread(full: int, plan: ScalingPlan) -> str:
    if plan.zones == 1:
        return "carry them when full; there is one zone"
    return f"so that {full}, when full, carry them after one of {plan.zones} zones is lost"


def _doors(demand: Demand, plan: ScalingPlan) -> str:
    return f"take {demand.connects:,.0f} arrivals a second, {plan.connects_per_box:,.0f} each"
