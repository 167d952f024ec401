"""What a frontdesk's ``/board.json`` says of a fabric's readers. Pure.

It comes from another machine: whatever is no number in bounds counts as nothing known.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from newsfabric.numbers import is_number

# More than the fabric is for.
_MOST: Final = 1e9


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Crowded:
    """All regions of a fabric together."""

    readers: int = 0
    connects_per_second: float = 0.0
    deliveries_per_second: float = 0.0


def read_board(document: Any) -> Crowded:
    """The crowd in a parsed ``board.json``; ValueError if it isn't one."""
    regions = document.get("regions") if isinstance(document, dict) else None
    if not isinstance(regions, list):
        raise ValueError("not a board.json: no regions")
    totals = [region.get("totals") for region in regions if isinstance(region, dict)]
    known = [each for each in totals if isinstance(each, dict)]
    if not known:
        raise ValueError("not a board.json: no totals")
    return Crowded(
        readers=int(min(_MOST, sum(_number(each, "readers") for each in known))),
        connects_per_second=sum(_number(each, "connects_per_second") for each in known),
        deliveries_per_second=sum(_number(each, "deliveries_per_second") for each in known),
    )


def _number(totals: dict[str, Any], name: str) -> float:
    value = totals.get(name)
    return float(value) if is_number(value, 0, _MOST) else 0.0
