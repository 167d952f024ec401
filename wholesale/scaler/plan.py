"""The settings of a scaler: the properties of boxes, and the safety margins. Pure."""

from __future__ import annotations

import dataclasses
import math
from typing import Final

from newsfabric.errors import ConfigError
from wholesale.scaler.drivers import MOST_BOXES

# Ten times the intended load of one box; larger values must be mistakes.
MOST_PER_BOX: Final = 1_000_000
# Seconds from a reader's arrival to a driver's call. Load reports are a second apart, growth is
# measured over twenty, drivers are called every few; frontdesks send readers to new boxes
# gradually.
NOTICE: Final = 30.0

_DAY: Final = 86_400.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ScalingPlan:
    """The bounds on the number of boxes, and the properties of one. Times in seconds.

    ``per_box`` is the capacity of a box; boxes' own reports count within a factor of two of it.
    ``headroom`` is the share of each box that is kept free. ``boot`` is from requesting a box until
    it takes readers, ``drain`` is the time that it needs to leave. ``zones`` share the boxes
    evenly, and one may be lost. A box takes ``connects_per_box`` arrivals a second. There are
    ``least`` to ``most`` boxes; their number falls only after ``calm`` seconds in which fewer were
    enough.
    """

    per_box: int = 100_000
    headroom: float = 0.3
    boot: float = 180.0
    drain: float = 120.0
    zones: int = 3
    connects_per_box: float = 2000.0
    least: int = 2
    most: int = 200
    calm: float = 600.0

    def __post_init__(self) -> None:
        _within("per box", self.per_box, 1, MOST_PER_BOX)
        _within("headroom", self.headroom, 0.0, 0.9)
        _within("boot", self.boot, 1.0, _DAY)
        _within("drain", self.drain, 0.0, _DAY)
        _within("zones", self.zones, 1, 16)
        _within("connects per box", self.connects_per_box, 1.0, 1e6)
        _within("least", self.least, 0, MOST_BOXES)
        _within("most", self.most, max(1, self.least), MOST_BOXES)
        _within("calm", self.calm, 1.0, _DAY)

    @property
    def lead(self) -> float:
        """Seconds from a reader's arrival until a box that is requested because of it is ready."""
        return self.boot + NOTICE

    @property
    def patience(self) -> float:
        """Seconds in which fewer boxes must have been enough before one is removed.

        Never less than the time for one box to leave and another to come: otherwise a wave that is
        longer than ``calm`` would find neither.
        """
        return max(self.calm, self.boot + self.drain)

    @property
    def overdue(self) -> float:
        """The age from which a box that was never ready counts as failed."""
        return 3.0 * self.boot + NOTICE


def _within(what: str, value: float, lowest: float, highest: float) -> None:
    if not (math.isfinite(value) and lowest <= value <= highest):
        raise ConfigError(f"{what} must be from {lowest:g} to {highest:g}, not {value:g}")
