"""Retail boxes of one region, for the scaler's driver ``command`` (docs/scaling.md).

The fleet does here what a cloud does there: it boots boxes from the image, and ends them.
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

#: As the scaler knows it: there may be no more.
EXIT_LIMIT: Final = 3
# A box is a machine on this machine: each takes memory that the others lack.
MOST: Final = 12


class TooManyError(FleetError):
    """More boxes are wanted than there may be; those that may be are up."""


def listed(fleet: Fleet, region: str) -> list[str]:
    """A line of JSON for each box that runs, as the scaler reads them."""
    running = fleet.machines.running()
    return [
        json.dumps({"name": box.name, "age_seconds": age, "zone": box.zone})
        for box in _boxes(fleet, region)
        if box.name in running and (age := _age(running[box.name].init)) is not None
    ]


def want(
    fleet: Fleet, region: str, count: int, then: Callable[[list[str]], object] | None = None
) -> None:
    """Boot boxes until ``count`` run. TooManyError, after the last that may be, for more.

    Fewer are never made here: who ends a box says which. ``then`` is told the names of those that
    have booted.
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
    """Power these off and forget them; one that is gone already is fine."""
    present = {box.name for box in _boxes(fleet, region)}
    fleet.power_off([name for name in names if name in present], forget=True)


def _boxes(fleet: Fleet, region: str) -> list[Machine]:
    if region not in REGIONS:
        raise FleetError(f"no region {region}; there are {', '.join(REGIONS)}")
    return [m for m in fleet.members() if (m.region, m.role) == (region, "retail")]


def _age(init: int | None) -> float | None:
    """Seconds since the machine's init was started; None if it has ended meanwhile."""
    try:
        return None if init is None else round(max(0.0, time.time() - kernel.started_at(init)), 1)
    except OSError:
        return None
