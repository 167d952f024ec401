"""Runs of numbers, compared with a set of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.logs.runs import Run, Runs

pairs = st.lists(st.tuples(st.integers(1, 60), st.integers(0, 8)), max_size=30)


def made(given_: list[tuple[int, int]]) -> tuple[Runs, set[int]]:
    runs, numbers = Runs(), set[int]()
    for first, more in given_:
        runs.add(first, first + more)
        numbers.update(range(first, first + more + 1))
    return runs, numbers


def runs_of(numbers: set[int]) -> list[Run]:
    found: list[Run] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number - 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return found


@given(pairs)
def test_they_are_the_numbers_that_were_added(added: list[tuple[int, int]]):
    runs, numbers = made(added)
    assert list(runs) == runs_of(numbers)
    assert [n for n in range(75) if n in runs] == sorted(numbers)
    assert (len(runs), runs.numbers) == (len(runs_of(numbers)), len(numbers))
    assert runs.top == max(numbers, default=0)
    assert runs.unbroken == min({*range(1, 76)} - numbers) - 1


@given(pairs, st.integers(1, 70), st.integers(0, 20))
def test_holes_are_the_numbers_that_werent(added: list[tuple[int, int]], first: int, more: int):
    runs, numbers = made(added)
    wanted = set(range(first, first + more + 1)) - numbers
    assert list(runs.holes(first, first + more)) == runs_of(wanted)


@pytest.mark.parametrize(
    ("added", "found"),
    [
        ([(1, 1), (2, 2), (3, 9)], [(1, 9)]),
        ([(5, 6), (1, 2), (3, 4)], [(1, 6)]),
        ([(1, 9), (3, 4)], [(1, 9)]),
        ([(3, 4), (6, 7), (1, 9)], [(1, 9)]),
        ([(1, 1), (3, 3)], [(1, 1), (3, 3)]),
    ],
)
def test_neighbours_become_one(added: list[Run], found: list[Run]):
    assert list(Runs(added)) == found
