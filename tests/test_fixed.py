"""Dataclasses that are kept from changes only by mypy."""

from __future__ import annotations

import dataclasses

from newsfabric.fixed import fixed


@fixed(frozen=True, slots=True, kw_only=True)
class Point:
    """A value with two fields."""

    x: int
    y: int = 0


def test_values_with_the_same_fields_are_the_same() -> None:
    assert Point(x=1) == Point(x=1, y=0)
    assert len({Point(x=1), Point(x=1), Point(x=2)}) == 2


def test_one_is_changed_by_making_another() -> None:
    assert dataclasses.replace(Point(x=1), y=5) == Point(x=1, y=5)


def test_it_has_no_other_fields() -> None:
    assert Point.__slots__ == ("x", "y")
