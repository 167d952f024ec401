"""``newsfabric scale`` and ``newsfabric drain``: boxes of a running world, by hand."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import click

from newsfabric.errors import ConfigError
from newsfabric.safe_output import confirm, echo
from operations.cli.options import examples, json_option, state_option


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
    """Have REGION run COUNT boxes: start the missing ones, or drain the newest of too many.

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


def left_without_boxes(regions: Mapping[str, str], names: Collection[str]) -> list[str]:
    """Return the regions left without a box after ``names``; ``regions`` has each box's. Pure."""
    left = {region for box, region in regions.items() if box not in names}
    return [region for region in dict.fromkeys(regions.values()) if region not in left]


def _is_asked() -> bool:
    """Return whether an operator can be asked."""
    return sys.stdin.isatty()


def _check_last(emptied: Sequence[str], *, last: bool) -> None:
    if last:
        return
    text = f"{' and '.join(emptied)} will have no box, so nobody can connect there"
    if not _is_asked():
        raise ConfigError(f"{text}: use --last if that is meant")
    confirm(f"{text}. Drain the last box?", err=True)


@click.command(
    short_help="Send a box's readers elsewhere, end it.",
    epilog=examples("newsfabric drain oregon-retail-2", "newsfabric drain oregon-retail-1 --last"),
)
@state_option
@json_option
@click.option(
    "--timeout",
    type=click.FloatRange(min=1.0),
    default=180.0,
    show_default=True,
    help="Stop it after so many seconds, with its remaining readers.",
)
@click.option("--last", is_flag=True, help="Also a region's last box; without it, that is asked.")
@click.argument("names", nargs=-1, required=True, metavar="BOX…")
def drain(state: Path, as_json: bool, timeout: float, last: bool, names: Sequence[str]) -> None:
    """Send the readers of each BOX to others, wait until they are gone, and end it.

    A region without a box serves no readers: they go to other regions, which must have room.
    """
    from localfabric.world.growing import boxes
    from localfabric.world.leaving import drain_boxes
    from localfabric.world.parts import unknown_name

    found = boxes(state)
    known = [box.name for box in found]
    for name in names:
        if name not in known:
            raise unknown_name(name, known, "box")
    regions = {box.name: box.region for box in found}
    if emptied := left_without_boxes(regions, names):
        _check_last(emptied, last=last)
    ended = drain_boxes(state, names, seconds=timeout)
    if as_json:
        echo(json.dumps({"ended": list(ended)}))
        return
    for name in ended:
        echo(f"{name}: drained and ended")
