"""The newest messages that fit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.past.bounded import newest_that_fit


def test_the_newest_that_fit_are_given_oldest_first() -> None:
    words = ["aaaa", "bb", "ccc"]
    assert newest_that_fit(words, len, 9) == words
    assert newest_that_fit(words, len, 8) == ["bb", "ccc"]
    assert newest_that_fit(words, len, 5) == ["bb", "ccc"]
    assert newest_that_fit(words, len, 4) == ["ccc"]


def test_if_the_newest_doesnt_fit_nothing_older_comes_in_its_stead() -> None:
    assert newest_that_fit(["a", "bbbb"], len, 3) == []
    assert newest_that_fit(["a", "bbbb", "c"], len, 3) == ["c"]


def test_of_nothing_nothing_fits_and_what_has_no_size_always_does() -> None:
    assert newest_that_fit([], len, 0) == []
    assert newest_that_fit(["a", "", ""], len, 0) == ["", ""]


def test_what_doesnt_fit_is_not_measured_further() -> None:
    measured: list[str] = []

    def size(word: str) -> int:
        measured.append(word)
        return len(word)

    assert newest_that_fit(["a", "bbbb", "c"], size, 3) == ["c"]
    assert measured == ["c", "bbbb"]


def test_what_is_given_is_a_list_of_its_own() -> None:
    words = ["a"]
    found = newest_that_fit(words, len, 9)
    found.clear()
    assert words == ["a"]


@given(st.lists(st.integers(0, 9), max_size=20), st.integers(0, 60))
def test_as_many_as_fit_and_not_one_more(sizes: list[int], most: int) -> None:
    found = newest_that_fit(sizes, lambda size: size, most)
    older = sizes[: len(sizes) - len(found)]
    assert older + found == sizes
    assert sum(found) <= most
    assert not older or older[-1] + sum(found) > most
