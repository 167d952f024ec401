"""``newsfabric scale`` and ``newsfabric drain``: boxes of a running world, by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click

from newsfabric.cli.options import examples, json_option, state_option
from newsfabric.safe_output import echo


@click.command(
    short_help="Give a region more boxes, or fewer.",
    epilog=examples("newsfabric scale oregon 3", "newsfabric scale oregon 1"),
)
@state_option
@click.option(
    "--timeout",
    type=click.FloatRange(min=1.0),
    default=180.0,
    show_default=True,
    help="Give up after so many seconds.",
)
@click.argument("region")
@click.argument("count", type=click.IntRange(1, 9))
def scale(state: Path, timeout: float, region: str, count: int) -> None:
    """Have REGION run COUNT boxes: start what is missing, drain the newest of what is too much.

    In a world with scalers (`newsfabric up --scale`) they decide again a moment later.
    """
    from localfabric.world.growing import await_boxes, boxes
    from localfabric.world.leaving import drain_boxes

    before = {box.name for box in boxes(state, region)}
    await_boxes(state, region, count, seconds=timeout)
    found = sorted(boxes(state, region), key=lambda box: box.age_seconds, reverse=True)
    for box in found:
        if box.name not in before:
            echo(f"{box.name}: started")
    surplus = [box.name for box in found[count:]]
    for name in drain_boxes(state, surplus, seconds=timeout):
        echo(f"{name}: drained and ended")
    echo(f"{region} has {count} {'box' if count == 1 else 'boxes'}")


@click.command(
    short_help="Send a box's readers elsewhere, end it.",
    epilog=examples("newsfabric drain oregon-retail-2"),
)
@state_option
@json_option
@click.option(
    "--timeout",
    type=click.FloatRange(min=1.0),
    default=180.0,
    show_default=True,
    help="End it after so many seconds, whoever is there still.",
)
@click.argument("names", nargs=-1, required=True, metavar="BOX…")
def drain(state: Path, as_json: bool, timeout: float, names: Sequence[str]) -> None:
    """Send the readers of each BOX to others, wait until they are gone, and end it."""
    from localfabric.world.growing import boxes
    from localfabric.world.leaving import drain_boxes
    from localfabric.world.parts import unknown_name

    known = [box.name for box in boxes(state)]
    for name in names:
        if name not in known:
            raise unknown_name(name, known, "box")
    ended = drain_boxes(state, names, seconds=timeout)
    if as_json:
        echo(json.dumps({"ended": list(ended)}))
        return
    for name in ended:
        echo(f"{name}: drained and ended")
