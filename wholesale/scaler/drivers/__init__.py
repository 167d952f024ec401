"""Drivers: interfaces to a cloud or a program that starts and ends boxes.

A driver is sent absolute numbers, so that two scalers may give the same order twice.

``want`` never ends a box: a number below the present one has no effect. Boxes are ended by ``end``
alone, with the names of boxes that were drained and are empty.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Final, Protocol

from newsfabric.errors import NewsfabricError
from newsfabric.settings import is_name

# Of an error text of a driver.
MAX_TEXT: Final = 300
# Most boxes of a region, for a scaler as for a frontdesk.
MOST_BOXES: Final = 1000


@dataclasses.dataclass(frozen=True, slots=True)
class Instance:
    """A machine of the group. Its box reports as ``name``; ``zone`` is empty if unknown."""

    name: str
    age_seconds: float
    zone: str = ""


class DriverError(NewsfabricError):
    """A call that failed or timed out: try again."""

    def __init__(self, text: str) -> None:
        super().__init__(" ".join(text.split())[:MAX_TEXT])


class DriverLimit(DriverError):
    """The driver has as many boxes as it may have: trying again won't help soon."""


class Driver(Protocol):
    """Starts and ends boxes. Each method raises DriverError, and may take any time."""

    async def boxes(self) -> tuple[Instance, ...] | None:
        """Return the present boxes, also those that boot; None if it can't know."""

    async def want(self, count: int) -> None:
        """Make ``count`` boxes in all, ending none. Raise DriverLimit if that isn't allowed."""

    async def end(self, names: Iterable[str]) -> None:
        """End these boxes, which are drained and empty. The wanted number falls with them.

        A box that is gone already is no error.
        """

    async def close(self) -> None:
        """Release its resources."""


def checked(name: str, age: float, zone: str = "") -> Instance:
    """Return an instance from a program's or service's values; DriverError if they are invalid."""
    if not is_name(name):
        raise DriverError(f"no box's name: {name[:80]!r}")
    if not 0 <= age < 1e9:
        raise DriverError(f"no age of a box: {age}")
    return Instance(name, float(age), zone[:63])
