"""The readers of a fabric, read from a frontdesk's ``/board.json``. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, Final

from operations.board_document import parse_board

# Above the largest number that a fabric is built for.
_MOST: Final = 1e9


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Crowded:
    """The sums over all regions of a fabric."""

    readers: int = 0
    connects_per_second: float = 0.0
    deliveries_per_second: float = 0.0


def read_board(document: Any) -> Crowded:
    """Return the sums in a parsed ``board.json``; ValueError if it isn't one."""
    # The number of readers in a region that doesn't answer is unknown.
    regions = [region for region in parse_board(document).regions if not region.is_unheard]
    totals = [region.totals for region in regions]
    if all(each.readers is None for each in totals):
        raise ValueError("not a board: no region reports its readers")
    return Crowded(
        readers=int(_sum(each.readers for each in totals)),
        connects_per_second=_sum(each.connects for each in totals),
        deliveries_per_second=_sum(each.deliveries for each in totals),
    )


def _sum(known: Iterable[float | None]) -> float:
    return min(_MOST, sum(each or 0.0 for each in known))
