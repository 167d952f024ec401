"""A map that is bounded in entries and in bytes."""

from __future__ import annotations

from gateway.past.bounded import BoundedMap


def filled(most: int, most_bytes: int, *entries: tuple[str, int]) -> BoundedMap[str, str]:
    """Return a map with these names and weights, set in this order; each value is its name."""
    made: BoundedMap[str, str] = BoundedMap(most, most_bytes)
    for name, weight in entries:
        made.set(name, name, weight)
    return made


def kept(made: BoundedMap[str, str]) -> list[str]:
    return [name for name in "abc" if made.get(name) == name]


def test_beyond_its_bytes_what_was_set_longest_ago_goes_first() -> None:
    made = filled(9, 10, ("a", 4), ("b", 4), ("c", 4))
    assert (kept(made), made.bytes) == (["b", "c"], 8)


def test_beyond_its_entries_too() -> None:
    made = filled(2, 100, ("a", 1), ("b", 1), ("c", 1))
    assert (kept(made), made.bytes) == (["b", "c"], 2)


def test_the_last_one_stays_whatever_it_weighs() -> None:
    made = filled(9, 10, ("a", 4), ("b", 40))
    assert (kept(made), made.bytes) == (["b"], 40)


def test_what_is_set_again_counts_once_and_is_young_again() -> None:
    made = filled(9, 10, ("a", 4), ("b", 4), ("a", 2))
    assert (kept(made), made.bytes) == (["a", "b"], 6)
    made.set("c", "c", 6)
    assert kept(made) == ["a", "c"]


def test_what_is_touched_is_young_again() -> None:
    made = filled(9, 10, ("a", 4), ("b", 4))
    made.touch("a")
    made.set("c", "c", 4)
    assert kept(made) == ["a", "c"]


def test_what_is_dropped_or_cleared_counts_no_more() -> None:
    made = filled(9, 10, ("a", 4), ("b", 4))
    made.drop("a")
    made.drop("unknown")
    assert (made.get("a"), len(made), made.bytes) == (None, 1, 4)
    made.clear()
    assert (len(made), made.bytes) == (0, 0)
