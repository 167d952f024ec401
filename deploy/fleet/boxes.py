"""Retail boxes of one region, for the scaler's driver ``command`` (docs/scaling.md).

The fleet takes the place of a cloud: it boots boxes from the image, and ends them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Final

from fleet import kernel
from fleet.errors import FleetError
from fleet.fleet import Fleet
from fleet.plan import REGIONS, Machine, machines_with

#: The exit code by which the scaler knows that there may be no more.
EXIT_LIMIT: Final = 3
# A box is a machine on this machine: its memory is taken from the others.
MOST: Final = 12


class TooManyError(FleetError):
    """More boxes are wanted than allowed; the allowed number is up."""


def listed(fleet: Fleet, region: str) -> list[str]:
    """Return a line of JSON for each running box, in the scaler's format."""
    running = fleet.machines.running()
    return [
        json.dumps({"name": box.name, "age_seconds": age, "zone": box.zone})
        for box in _boxes(fleet, region)
        if box.name in running and (age := _age(running[box.name].init)) is not None
    ]


def want(
    fleet: Fleet, region: str, count: int, then: Callable[[list[str]], object] | None = None
) -> None:
    """Boot boxes until ``count`` run. TooManyError above :data:`MOST`, after as many have booted.

    No box is ended here: the caller of :func:`end` chooses which. ``then`` is called with the names
    of the boxes that have booted.
    """
    running = fleet.machines.running()
    up = [box for box in _boxes(fleet, region) if box.name in running]
    free = [box for box in machines_with(region, "retail") if box not in up]
    if missing := free[: max(0, min(count, MOST) - len(up))]:
        names = [box.name for box in missing]
        fleet.boot(names, new=False)
        if then is not None:
            then(names)
    if count > MOST:
        raise TooManyError(f"a region of this fleet has at most {MOST} boxes")


def end(fleet: Fleet, region: str, names: Sequence[str]) -> None:
    """Power these off and forget them; a box that is already gone is no error."""
    present = {box.name for box in _boxes(fleet, region)}
    fleet.power_off([name for name in names if name in present], forget=True)


def _boxes(fleet: Fleet, region: str) -> list[Machine]:
    if region not in REGIONS:
        raise FleetError(f"no region {region}; there are {', '.join(REGIONS)}")
    return [m for m in fleet.members() if (m.region, m.role) == (region, "retail")]


def _age(init: int | None) -> float | None:
    """Return the seconds since the machine's init was started; None if it has ended meanwhile."""
    try:
        return None if init is None else round(max(0.0, time.time() - kernel.started_at(init)), 1)
    except OSError:
        return None
