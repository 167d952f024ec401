"""``python -m loadtest.autoscale``: crowds against the scaler, in simulated time.

The decisions are the scaler's own functions; machines and readers are simulated
(loadtest/simulation.py). The program prints a table, writes JSON and a picture of each scenario,
and fails if a bound is broken: a reader lost, a reader refused, a number of boxes that oscillates.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from loadtest.scenarios import SCENARIOS, Scenario, ScenarioOutcome, outcome_of
from loadtest.simulation import Moment, Region
from localfabric.plot import Panel, PlotLine, draw
from newsfabric.console import console
from newsfabric.safe_output import echo


def faults(outcome: ScenarioOutcome, scenario: Scenario) -> list[str]:
    """Return the broken bounds of a run; [] if all held."""
    found = []
    if outcome.lost > 0:
        found.append(f"{outcome.lost:,.0f} readers were on boxes that were ended")
    if outcome.refused > scenario.may_refuse:
        found.append(f"{outcome.refused:,.0f} readers were refused")
    if not outcome.steady:
        found.append(f"the number turned {outcome.turns} times, the crowd {outcome.most_turns}")
    if outcome.quickest_fall < scenario.plan.patience:
        found.append(f"two falls within {outcome.quickest_fall:,.0f} s")
    return found


def picture(scenario: Scenario, regions: dict[str, Region]) -> str:
    """Return boxes, load and refused readers of all regions, as SVG."""
    panels = []
    for name, region in regions.items():
        moments = region.moments
        panels += [
            Panel(
                f"{name}: readers",
                [
                    PlotLine("want in", [m.asked for m in moments]),
                    PlotLine("are in", [m.readers for m in moments]),
                    PlotLine("refused, in all", [m.refused for m in moments]),
                ],
            ),
            Panel(
                f"{name}: boxes",
                [
                    PlotLine("ready", [m.ready for m in moments]),
                    PlotLine("wanted", [m.wanted for m in moments]),
                    PlotLine("booting", [m.booting for m in moments]),
                    PlotLine("leaving", [m.leaving for m in moments]),
                ],
            ),
            Panel(
                f"{name}: load",
                [PlotLine("fullest box, %", [100 * m.fullest for m in moments])],
            ),
        ]
    times = [m.at for m in next(iter(regions.values())).moments]
    return draw(f"Autoscaling: {scenario.title}", times, panels)


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(SCENARIOS)), metavar="[SCENARIOS]...")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write NAME.json and NAME.svg there.",
)
@click.option("--seed", default=1, show_default=True)
def main(names: tuple[str, ...], out: Path | None, seed: int) -> None:
    """Play SCENARIOS (surge, election, zone, night, world; all if none is named)."""
    table = Table(title="autoscaling, simulated")
    for column in (
        "scenario", "region", "refused", "lost", "most boxes", "turns", "fullest", "box hours",
        "of a seer", "bounds",
    ):  # fmt: skip
        table.add_column(column, justify="left" if column in ("scenario", "region") else "right")
    good = True
    for name in names or SCENARIOS:
        scenario = SCENARIOS[name]
        echo(f"playing: {scenario.title} …", err=True)
        regions = scenario.run(seed)
        outcomes = {at: outcome_of(regions[at], scenario.places[at], scenario) for at in regions}
        for at, outcome in outcomes.items():
            wrong = faults(outcome, scenario)
            good = good and not wrong
            table.add_row(name, at, *_cells(outcome), "; ".join(wrong) or "held")
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            document = _document(scenario, regions, outcomes, seed)
            (out / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n", "utf-8")
            (out / f"{name}.svg").write_text(picture(scenario, regions), "utf-8")
    console(width=max(console().width, 120)).print(table)
    sys.exit(0 if good else 1)


def _cells(outcome: ScenarioOutcome) -> list[str]:
    return [
        f"{outcome.refused:,.0f}",
        f"{outcome.lost:,.0f}",
        str(outcome.most_boxes),
        f"{outcome.turns} of {outcome.most_turns}",
        f"{outcome.fullest:.0%}",
        f"{outcome.box_hours:,.1f}",
        f"{outcome.box_hours / outcome.needed_hours:.2f} ×",
    ]


def _document(
    scenario: Scenario, regions: dict[str, Region], outcomes: dict[str, ScenarioOutcome], seed: int
) -> dict[str, Any]:
    return {
        "scenario": scenario.name,
        "title": scenario.title,
        "seed": seed,
        "plan": dataclasses.asdict(scenario.plan),
        "regions": {
            at: {
                "verdict": {
                    # JSON has no infinity.
                    name: None if value == float("inf") else value
                    for name, value in dataclasses.asdict(outcome).items()
                },
                "faults": faults(outcome, scenario),
                "moments": [_rounded(moment) for moment in _some(regions[at].moments)],
            }
            for at, outcome in outcomes.items()
        },
    }


def _some(moments: Sequence[Moment]) -> Sequence[Moment]:
    """Return so many of ``moments`` that a person can read them."""
    return moments[:: max(1, len(moments) // 100)]


def _rounded(moment: Moment) -> dict[str, Any]:
    return {name: round(value, 2) for name, value in dataclasses.asdict(moment).items()}


if __name__ == "__main__":
    main(prog_name="python -m loadtest.autoscale")
