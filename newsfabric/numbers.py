"""Whole numbers that strangers write: one function for all of them. Pure.

``int`` alone accepts signs, spaces, underscores and the digits of every script, needs time that
grows with the square of the length, and raises beyond 4,300 digits. Here a number is ASCII digits,
each number has one form, and **the value that was checked is the value that is used**.
"""

from __future__ import annotations

import re
from typing import Any, Final, TypeGuard

# 2**63 - 1 has nineteen digits: a longer number is out of all bounds here.
_WHOLE: Final = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)


def whole_number(text: str, lowest: int, highest: int) -> int:
    """Return the number in ``text``, from ``lowest`` to ``highest``; ValueError for any other text.

    Digits alone, without leading zeros.
    """
    if _WHOLE.fullmatch(text) is None or not lowest <= (number := int(text)) <= highest:
        raise ValueError(f"not a whole number from {lowest} to {highest}")
    return number


def is_whole(value: Any, lowest: int, highest: int) -> TypeGuard[int]:
    """Return whether ``value``, from JSON or an AMQP table, is an integer in these bounds."""
    return isinstance(value, int) and not isinstance(value, bool) and lowest <= value <= highest


def is_number(value: Any, lowest: float, highest: float) -> TypeGuard[float]:
    """Return whether ``value`` is a number in these finite bounds. NaN is in no bounds."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and lowest <= value <= highest
