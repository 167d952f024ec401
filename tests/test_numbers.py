"""Whole numbers from strangers: a number within its bounds, or an error."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from newsfabric.numbers import is_number, is_whole, whole_number
from newsfabric.topics import parse_duration

# Texts that int() accepts, and many that it doesn't.
DIGITS = st.text("0123456789 +-_.eE\u0661\uff11\u00b2\n\0", max_size=25)
NUMBERS = st.integers() | st.integers().map(str) | DIGITS | st.text()
HIGHEST = 2**63 - 1


@given(NUMBERS.map(str), st.integers(0, 3), st.integers(0, HIGHEST))
@example("0000000019999", 1, 200)
@example("1_0", 0, 100)
@example("\u0661", 0, 100)
@example("9" * 5_000, 0, HIGHEST)
@example(str(HIGHEST), 0, HIGHEST)
@example(str(HIGHEST + 1), 0, HIGHEST)
def test_a_number_is_what_is_written_and_in_its_bounds(
    text: str, lowest: int, highest: int
) -> None:
    if text == _as_we_write(text) and lowest <= int(text) <= highest:
        assert whole_number(text, lowest, highest) == int(text)
    else:
        with pytest.raises(ValueError, match="whole number") as caught:
            whole_number(text, lowest, highest)
        # Logs and replies don't grow with the input.
        assert len(str(caught.value)) < 100


def _as_we_write(text: str) -> str | None:
    try:
        return str(int(text))
    except ValueError:
        return None


@given(st.integers(0, HIGHEST), st.integers(0, HIGHEST))
def test_every_number_in_its_bounds_is_taken(number: int, highest: int) -> None:
    if number <= highest:
        assert whole_number(str(number), 0, highest) == number
    else:
        with pytest.raises(ValueError, match="whole number"):
            whole_number(str(number), 0, highest)


@pytest.mark.parametrize(
    "text", ["", "00", "007", "+7", "-7", "-0", " 7", "7 ", "7\n", "7_0", "7.0", "7e1", "0x7", "٧"]
)
def test_there_is_one_way_to_write_a_number(text: str) -> None:
    with pytest.raises(ValueError, match="not a whole number from 0 to 100"):
        whole_number(text, 0, 100)


@pytest.mark.parametrize("value", [True, False, 1.0, "1", None, [1], math.nan, math.inf, 10**400])
def test_what_json_may_hold_beside_whole_numbers_is_none(value: Any) -> None:
    assert not is_whole(value, 0, HIGHEST)


@given(st.integers(), st.integers(), st.integers())
def test_a_whole_number_of_json_is_in_its_bounds(value: int, lowest: int, highest: int) -> None:
    assert is_whole(value, lowest, highest) == (lowest <= value <= highest)


@pytest.mark.parametrize(
    "value", [True, "1", None, math.nan, math.inf, -math.inf, -0.1, 10.1, 10**400, -(10**400)]
)
def test_a_number_of_json_is_finite_and_in_its_bounds(value: Any) -> None:
    assert not is_number(value, 0, 10)


@given(st.floats(0, 10) | st.integers(0, 10))
def test_a_number_of_json_may_have_a_fraction(value: float) -> None:
    assert is_number(value, 0, 10)


@pytest.mark.parametrize("text", ["9" * 10 + "s", "٩s", "1_0s", "+1s", " 1s", "1s\n", "01s"])
def test_a_duration_is_written_in_one_way_too(text: str) -> None:
    with pytest.raises(ValueError, match=r"number|duration"):
        parse_duration(text)
