"""How many boxes a region needs now, as a sum whose every line can be shown. Pure arithmetic.

Boxes take minutes to come, so what is counted is not who is there but who will be there when a box
that is asked for now stands: readers, those whose box fell silent and who have not come back yet,
and those who arrive meanwhile. Of what that takes in boxes the largest of four answers counts:

- each box filled no further than headroom allows;
- one zone gone, the boxes of the others full;
- arrivals, of which a box takes so many a second;
- the bounds that an operator gave.

The scaler, ``newsfabric capacity`` and the simulation (loadtest/autoscale.py) use this function.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal

from wholesale.scaler.plan import Plan

Unit = Literal["readers", "boxes", "readers a second"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What boxes are needed for.

    ``missing`` are readers of boxes that fell silent, who haven't come back to others. ``growth``
    is how many more readers there are each second, ``connects`` how many arrive (others leave).
    One box carries ``per_box``. There will never be more than ``expected`` (None: nobody knows).
    """

    readers: float
    per_box: int
    missing: float = 0.0
    growth: float = 0.0
    connects: float = 0.0
    expected: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """One line of a sum. ``name`` is for programs, ``text`` for people."""

    name: str
    value: float
    unit: Unit
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Wish:
    """``boxes`` are wanted, because of ``lines``. ``unbounded`` is what it were without bounds."""

    boxes: int
    unbounded: int
    lines: tuple[Line, ...]

    def document(self) -> list[dict[str, Any]]:
        """The lines as JSON."""
        return [dataclasses.asdict(line) for line in self.lines]


def wish(demand: Demand, plan: Plan) -> Wish:
    """How many boxes ``demand`` needs."""
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
        Line("readers", demand.readers, "readers", "readers on boxes that report"),
        Line("missing", demand.missing, "readers", "of boxes that fell silent, not back yet"),
        Line("growth", demand.growth, "readers a second", "more readers each second"),
        Line("coming", coming, "readers", f"more until a new box stands, in {plan.lead:.0f} s"),
        Line("carried", carried, "readers", "to be carried"),
        Line("usable", usable, "readers", _usable(demand, plan)),
        Line("filled", filled, "boxes", "carry them with that headroom"),
        Line("spread", spread, "boxes", _spread(full, plan)),
        Line("doors", doors, "boxes", _doors(demand, plan)),
        Line("wanted", boxes, "boxes", f"wanted: the largest, from {plan.least} to {plan.most}"),
    )
    return Wish(boxes, unbounded, lines)


def boxes_for(amount: float, each: float) -> int:
    """How many boxes carry ``amount``, ``each`` so much."""
    # A reader's thousandth more isn't a box more: sums of floats have such crumbs.
    return max(0, math.ceil(amount / each - 1e-9))


def spread_over(full: int, zones: int) -> int:
    """How many boxes leave ``full`` of them when one of ``zones`` goes, the fullest one."""
    if zones == 1:
        return full
    return full + math.ceil(full / (zones - 1))


def _usable(demand: Demand, plan: Plan) -> str:
    return f"on one box, of {demand.per_box:,} with {plan.headroom:.0%} kept free"


def _spread(full: int, plan: Plan) -> str:
    if plan.zones == 1:
        return "carry them when full; there is one zone"
    return f"so that {full}, when full, carry them after one of {plan.zones} zones is lost"


def _doors(demand: Demand, plan: Plan) -> str:
    return f"take {demand.connects:,.0f} arrivals a second, {plan.connects_per_box:,.0f} each"
