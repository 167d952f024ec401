"""Drivers: what makes the number of boxes so.

A driver is told absolute numbers, so that two scalers may tell it the same thing twice.

``want`` never ends a box: who is told a smaller number than there is does nothing. Boxes go by
``end`` alone, which is given the names of boxes that were drained and are empty.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Final, Protocol

from newsfabric.errors import NewsfabricError
from newsfabric.settings import is_name

# Of what a driver says of its trouble.
MAX_TEXT: Final = 300
# Most boxes of a region, for a scaler as for a frontdesk.
MOST_BOXES: Final = 1000


@dataclasses.dataclass(frozen=True, slots=True)
class Instance:
    """A machine of the group. ``name`` is what its box reports as; ``zone`` is empty if unknown."""

    name: str
    age_seconds: float
    zone: str = ""


class DriverError(NewsfabricError):
    """A driver couldn't do it, or not in time: try again."""

    def __init__(self, text: str) -> None:
        super().__init__(" ".join(text.split())[:MAX_TEXT])


class DriverLimit(DriverError):
    """There are as many boxes as the driver may have: trying again won't help soon."""


class Driver(Protocol):
    """Makes boxes and ends them. Each method raises DriverError, and takes as long as it likes."""

    async def boxes(self) -> tuple[Instance, ...] | None:
        """The boxes that there are, also those that boot; None if it can't know."""

    async def want(self, count: int) -> None:
        """There should be ``count`` boxes in all. Never ends one. DriverLimit if it may not."""

    async def end(self, names: Iterable[str]) -> None:
        """These are drained and empty: end them. The wanted number falls with them.

        No error for one that is gone already.
        """

    async def close(self) -> None:
        """Let go of what it holds."""


def checked(name: str, age: float, zone: str = "") -> Instance:
    """An instance as a program or a service said it; DriverError if that can't be one."""
    if not is_name(name):
        raise DriverError(f"no box's name: {name[:80]!r}")
    if not 0 <= age < 1e9:
        raise DriverError(f"no age of a box: {age}")
    return Instance(name, float(age), zone[:63])
