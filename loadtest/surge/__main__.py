"""``python -m loadtest.surge``: a world, a surge, a report."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click

from bench.programs import build
from bench.world import world_at
from loadtest.surge.figures import figures
from loadtest.surge.report import summary, write_report
from loadtest.surge.run import SurgeOptions, surge
from localfabric.world.state import read_running, state_path
from newsfabric.errors import NewsfabricError
from newsfabric.safe_output import echo, terminal_safe

PORT_BASE = 31_000
# Seconds for the world to start: other programs may use the machine.
_START = 300
MOST_BOXES = 9


@click.command(context_settings={"show_default": True})
@click.option("--few", default=2000, type=click.IntRange(1), help="Readers at first and at last.")
@click.option("--many", default=20_000, type=click.IntRange(2), help="Readers at most.")
@click.option("--capacity", default=4000, type=click.IntRange(1), help="Readers a box.")
@click.option("--first-rate", default=60.0, help="Of the first readers, a second.")
@click.option("--rate", default=60.0, help="Of those who surge in, a second.")
@click.option("--leave-rate", default=200.0, help="Of those who leave, a second.")
@click.option("--holds", default=20.0, help="Seconds with all readers there.")
@click.option("--messages", default=2.0, help="Gold messages a second.")
@click.option("--most", default=MOST_BOXES, type=click.IntRange(1, MOST_BOXES), help="Boxes.")
@click.option("--shrinks-within", default=600.0, help="Seconds until boxes must be ended.")
@click.option(
    "--state", default=Path(".world-surge"), type=click.Path(path_type=Path), help="The world."
)
@click.option("--port-base", default=PORT_BASE, envvar="NEWSFABRIC_PORT_BASE")
@click.option("--running", is_flag=True, help="In a world that runs in --state already.")
@click.option(
    "--report", default=Path("surge-report"), type=click.Path(path_type=Path), help="A folder."
)
def main(
    capacity: int, most: int, state: Path, port_base: int, running: bool, report: Path, **given: Any
) -> None:
    """A surge of readers into a region of one small box and two scalers. Exits with 1 when a
    promise isn't kept."""
    options = SurgeOptions(**given)
    size = ("--regions", "oregon", "--timeout", str(_START), "--scale", f"1:{most}")
    more = ("--box-capacity", str(capacity), "--port-base", str(port_base))
    try:
        build(dataplane=False)
        report.mkdir(parents=True, exist_ok=True)
        with nullcontext() if running else world_at(state, *size, *more):
            layout, _ = read_running(state_path(state))
            done = asyncio.run(surge(layout, layout.regions[0], options, _print_line))
    except NewsfabricError as exc:
        raise click.ClickException(terminal_safe(str(exc))) from exc
    found = figures(done.samples, done.census)
    write_report(report, done.samples, found, options, capacity=capacity)
    broken = list(found.broken_promises())
    if done.unreceipted:
        broken.append(f"{done.unreceipted} messages have no receipt")
    for text in broken:
        echo(f"not kept: {text}")
    echo(f"{summary(found)}; the report is {report / 'report.md'}")
    if broken:
        raise SystemExit(1)


def _print_line(text: str) -> None:
    echo(text, err=True)


if __name__ == "__main__":
    main()
