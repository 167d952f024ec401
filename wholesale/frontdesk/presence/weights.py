"""The share of the next readers that each box should get. Pure arithmetic.

A frontdesk's knowledge is old: reports are a second or two apart, and readers choose by a reply
that a cache has kept for its ``ttl``. So the share is computed for all readers that will arrive
before new knowledge has an effect (:data:`HORIZON`), not only for the next one. The boxes are
filled like connected vessels, the emptiest first, up to the level at which these readers are used
up. This bound keeps weights from oscillating: within one horizon a box can't overtake the others.

Three bounds apply. A box gets at most :data:`MOST` times its even share, and at first only that
share: a new box is cold, and each topic's first reader costs it a read of the store. It gets no
more than it has room for. And every box gets a little, so that a wrong report doesn't exclude it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

# Seconds until a reply has no effect any more: a cache's ttl, a reader's delay, a report.
HORIZON: Final = 10.0
# Readers are expected at the rate of the last second, and at least this share of all capacity in a
# horizon: without arrivals the division matters little, and the next second may bring a crowd.
LEAST_EXPECTED: Final = 0.02
# Times its even share. The share of one box among few is bounded as well (MOST_OF_ALL).
MOST: Final = 4.0
MOST_OF_ALL: Final = 0.75
LEAST: Final = 0.1
# Of the search for the level: fine enough for one reader of a million.
_HALVINGS: Final = 40
# Seconds after becoming ready in which a box's bound grows from its even share to the most.
FULL_SHARE_AFTER: Final = 30.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Vessel:
    """A box: ``connections`` of ``capacity`` (above 0), ready for ``age`` seconds."""

    connections: int
    capacity: int
    connects_per_second: float
    age: float


def shares(vessels: Sequence[Vessel]) -> list[float]:
    """Return the share of new readers of each of ``vessels``, none of them full; 1.0 in all."""
    capacity = sum(vessel.capacity for vessel in vessels)
    rate = sum(vessel.connects_per_second for vessel in vessels)
    expected = max(rate * HORIZON, LEAST_EXPECTED * capacity)
    even = [expected * vessel.capacity / capacity for vessel in vessels]
    room = [float(vessel.capacity - vessel.connections) for vessel in vessels]
    most = [_most(v, e, r, expected) for v, e, r in zip(vessels, even, room, strict=True)]
    found = _poured(vessels, most, expected)
    found = [max(f, min(e * LEAST, r)) for f, e, r in zip(found, even, room, strict=True)]
    return [f / sum(found) for f in found]


def _most(vessel: Vessel, even: float, room: float, expected: float) -> float:
    grown = min(1.0, max(0.0, vessel.age) / FULL_SHARE_AFTER)
    bound = even * (1.0 + (MOST - 1.0) * grown)
    return min(bound, max(even, expected * MOST_OF_ALL), room)


def _poured(vessels: Sequence[Vessel], most: Sequence[float], amount: float) -> list[float]:
    """Return each box's part of ``amount``, up to ``most``, with all at one level if possible.

    The sum is below ``amount`` only where all bounds are reached.
    """
    low, high = (
        0.0,
        max((v.connections + m) / v.capacity for v, m in zip(vessels, most, strict=True)),
    )
    for _ in range(_HALVINGS):
        level = (low + high) / 2
        if sum(_up_to(level, vessels, most)) < amount:
            low = level
        else:
            high = level
    return _up_to(high, vessels, most)


def _up_to(level: float, vessels: Sequence[Vessel], most: Sequence[float]) -> list[float]:
    return [
        min(max(0.0, level * vessel.capacity - vessel.connections), bound)
        for vessel, bound in zip(vessels, most, strict=True)
    ]
