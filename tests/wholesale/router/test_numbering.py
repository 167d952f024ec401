"""The numbers of one log, the events that settle them, and its lease."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from wholesale.router.numbering import LEASE, Numbering


def listed(*, window: int = 4) -> Numbering:
    numbering = Numbering(window=window)
    numbering.renewed(100.0)
    return numbering


def test_nothing_is_given_out_before_the_log_is_in_the_directory():
    numbering = Numbering()
    assert not numbering.has_lease(0.0)
    numbering.renewed(0.0)
    assert numbering.has_lease(0.0)


def test_numbers_run_from_one_without_gaps():
    numbering = listed()
    assert [numbering.give() for _ in range(3)] == [1, 2, 3]
    assert numbering.last == 3


def test_low_stands_before_the_first_number_that_isnt_settled():
    numbering = listed()
    for _ in range(4):
        numbering.give()
    numbering.settle(2)
    numbering.settle(4)
    assert numbering.low == 0
    numbering.settle(1)
    assert numbering.low == 2
    numbering.settle(3)
    assert numbering.low == 4


@given(st.integers(1, 300), st.randoms(use_true_random=False))
def test_low_is_all_that_is_settled_in_whatever_order(count: int, rng: random.Random):
    numbering = listed(window=count)
    order = [numbering.give() for _ in range(count)]
    rng.shuffle(order)
    settled: set[int] = set()
    for number in order:
        numbering.settle(number)
        settled.add(number)
        assert numbering.low == min(set(range(1, count + 2)) - settled) - 1
    assert numbering.room == count


def test_no_more_than_the_window_are_under_way():
    numbering = listed(window=2)
    numbering.give()
    numbering.give()
    assert numbering.room == 0
    numbering.settle(2)
    assert numbering.room == 0
    numbering.settle(1)
    assert numbering.room == 2


def test_a_lease_is_fifteen_seconds_from_the_start_of_the_write():
    numbering = listed()
    assert LEASE == 15.0
    assert numbering.has_lease(114.9)
    assert not numbering.has_lease(115.0)
    # A late answer to an earlier write doesn't shorten the lease.
    numbering.renewed(110.0)
    numbering.renewed(105.0)
    assert numbering.has_lease(124.9)


def test_a_log_that_others_have_closed_has_no_lease():
    numbering = listed()
    numbering.is_closed = True
    assert not numbering.has_lease(100.0)
