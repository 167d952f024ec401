"""``newsfabric capacity``: the number of boxes for a crowd, with the sums. No I/O but printing."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Final

import click

from newsfabric.safe_output import echo
from wholesale.scaler.options import only_plan_options, seconds
from wholesale.scaler.plan import ScalingPlan
from wholesale.scaler.requirement import Demand, Requirement, RequirementLine, requirement

_EPILOG: Final = """
\b
Examples:
  newsfabric capacity --readers 1000000 --within 10m
  newsfabric capacity --readers 300000 --already 100000 --within 5m --zones 2 --boot 90s
  newsfabric capacity --readers 5000000 --within 30m --most 400 --json
"""
_STEPS: Final = 10


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The boxes for ``readers`` that arrive evenly ``within`` seconds, ``already`` of them before.

    ``before`` boxes must be ready when the first reader arrives: boxes requested at that time would
    be too late for the readers of ``plan.lead`` seconds. ``after`` is for all readers, once all are
    there. ``steps`` are (second, readers, boxes wanted) on the way.
    """

    readers: int
    already: int
    within: float
    before: Requirement
    after: Requirement
    steps: tuple[tuple[float, int, int], ...]

    @property
    def rate(self) -> float:
        """Arrivals a second."""
        return (self.readers - self.already) / self.within

    def capacity_document(self) -> dict[str, Any]:
        """Return all of it as JSON."""
        return {
            "readers": self.readers,
            "already": self.already,
            "within_s": self.within,
            "arrivals_per_second": self.rate,
            "before": {"boxes": self.before.boxes, "sums": self.before.lines_document()},
            "after": {"boxes": self.after.boxes, "sums": self.after.lines_document()},
            "steps": [
                {"at_s": at, "readers": readers, "boxes": boxes}
                for at, readers, boxes in self.steps
            ],
        }


def capacity_for(readers: int, already: int, within: float, plan: ScalingPlan) -> Capacity:
    """Return the boxes for a crowd. ``already`` is less than ``readers``, ``within`` above 0."""
    rate = (readers - already) / within

    def wanted(at: float) -> Requirement:
        here = already + (readers - already) * min(1.0, at / within)
        coming = rate if at < within else 0.0
        return requirement(
            Demand(
                readers=here, growth=coming, connects=coming, per_box=plan.per_box, expected=readers
            ),
            plan,
        )

    steps = [
        (at, int(already + (readers - already) * n / _STEPS), wanted(at).boxes)
        for n in range(_STEPS + 1)
        for at in (within * n / _STEPS,)
    ]
    return Capacity(
        readers=readers,
        already=already,
        within=within,
        before=wanted(0.0),
        after=wanted(within),
        steps=tuple(steps),
    )


@click.command(epilog=_EPILOG, short_help="Show how many boxes a crowd needs.")
@click.option(
    "--readers", type=click.IntRange(1, 10**10), required=True, help="How many there will be."
)
@click.option(
    "--already", type=click.IntRange(0), default=0, show_default=True, help="How many there are."
)
@click.option(
    "--within",
    callback=seconds,
    default="10m",
    show_default=True,
    metavar="DURATION",
    help="They come evenly in that: 90s, 10m, 1h.",
)
@only_plan_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def capacity(
    *, readers: int, already: int, within: float, plan: ScalingPlan, as_json: bool
) -> None:
    """Show how many boxes a crowd needs, before it comes and when it is there.

    The sums are the scaler's own.
    """
    if already >= readers:
        raise click.BadParameter("must be fewer than --readers", param_hint="--already")
    if within < 1:
        raise click.BadParameter("at least a second", param_hint="--within")
    found = capacity_for(readers, already, within, plan)
    if as_json:
        echo(json.dumps(found.capacity_document(), indent=2))
        return
    for line in _report(found, plan):
        echo(line)


def _report(found: Capacity, plan: ScalingPlan) -> list[str]:
    more = found.readers - found.already
    lines = [
        f"{more:,} more readers within {found.within:,.0f} s: {found.rate:,.1f} a second.",
        f"A box that is asked for stands {plan.lead:,.0f} s later.",
        "",
        f"{found.before.boxes} boxes before the first comes:",
        *_sums(found.before),
        "",
        f"{found.after.boxes} boxes when all are there:",
        *_sums(found.after),
        "",
        "What a scaler wants on the way:",
        f"{'seconds':>14}  {'readers':>14}  {'boxes':>6}",
    ]
    lines += [f"{at:>14,.0f}  {here:>14,}  {boxes:>6}" for at, here, boxes in found.steps]
    short = max(found.before.unbounded, found.after.unbounded)
    if short > plan.most:
        lines += ["", f"More than --most {plan.most} allows: {short} would be needed."]
    return lines


def _sums(found: Requirement) -> list[str]:
    return [_line(line) for line in found.lines]


def _line(line: RequirementLine) -> str:
    digits = 1 if line.unit == "readers a second" else 0
    return f"{line.value:>14,.{digits}f}  {line.unit:<16}  {line.text}"
