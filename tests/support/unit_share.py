"""The share of examples that ``make unit`` tries: a fifth. Everywhere else tests try all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import settings


def some(values: Sequence[Any]) -> Sequence[Any]:
    """Return all ``values``; in ``make unit`` the first of each five."""
    return values[:: max(1, 100 // settings.default.max_examples)]


def examples(count: int) -> int:
    """Return ``count``; in ``make unit`` a fifth, and at least one."""
    return len(some(range(count)))
