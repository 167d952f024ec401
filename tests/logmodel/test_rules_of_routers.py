"""Worked examples, in numbers, of a router's rules: numbering, the directory, closing."""

from __future__ import annotations

from collections.abc import Mapping

from logmodel.closing import Closing
from logmodel.directory import Directory, DirectoryRow, ModelEnding
from logmodel.numbering import Numbering
from logmodel.rows import VOID, ModelRow
from newsfabric.store.logs import Log

LOG = Log("A", "A1", 1_000_000)
MESSAGE = ModelRow(identity=7, topic="a", routed_at=1001.0)


def begun(at: float = 0.0) -> Numbering:
    numbering = Numbering(LOG)
    numbering.renewed(asked_at=at)
    return numbering


# Numbering: cases that tests/wholesale/router/test_numbering.py doesn't test on the project's own.


def test_nothing_is_numbered_before_the_directory_row_is_written() -> None:
    numbering = Numbering(LOG)
    assert not numbering.may_give(now=0.0)
    numbering.renewed(asked_at=0.0)
    assert numbering.may_give(now=0.0)


def test_what_is_stored_alone_is_not_settled() -> None:
    numbering = begun()
    numbering.stored(numbering.give())
    assert numbering.low == 0


def test_what_is_stored_and_too_old_to_publish_is_settled() -> None:
    numbering = begun()
    numbering.expired(numbering.give())
    assert numbering.low == 1


def test_six_numbers_are_under_way_at_most() -> None:
    numbering = begun()
    for _ in range(6):
        assert numbering.may_give(now=1.0)
        numbering.give()
    assert not numbering.may_give(now=1.0)
    numbering.confirmed(1)
    assert numbering.may_give(now=1.0)


def test_only_a_number_that_was_never_tried_ends_void() -> None:
    assert Numbering.ends_void(held=151.0, tried=False)
    assert not Numbering.ends_void(held=151.0, tried=True)
    assert not Numbering.ends_void(held=149.0, tried=False)


# The directory.


def test_the_row_of_a_living_router_moves_with_each_beat() -> None:
    directory = Directory()
    row = directory.first(None)
    assert row == DirectoryRow(version=1, low=0)
    moved = directory.moved(row, low=3)
    assert moved == DirectoryRow(version=2, low=3)


def test_an_epoch_that_is_taken_is_refused() -> None:
    assert Directory().first(DirectoryRow(version=4, low=9)) is None
    assert Directory().first(DirectoryRow(version=5, low=9, ended=9)) is None


def test_low_never_goes_back() -> None:
    directory = Directory()
    moved = directory.moved(DirectoryRow(version=4, low=9), low=7)
    assert moved is not None
    assert moved.low == 9


def test_a_router_whose_log_was_closed_is_refused() -> None:
    row = DirectoryRow(version=4, low=9, ended=11)
    assert Directory().moved(row, low=12) is None
    assert Directory().finished(row, 12) is None


def test_a_row_that_moved_since_it_was_watched_is_not_closed() -> None:
    watched = DirectoryRow(version=4, low=9)
    ending = ModelEnding(11, frozenset({10}))
    assert Directory().closed(watched, watched._replace(version=5), ending) is None
    assert Directory().closed(watched, watched, ending) == DirectoryRow(
        version=5, low=9, ended=11, voids=frozenset({10})
    )


def test_of_two_closers_one_is_refused() -> None:
    watched = DirectoryRow(version=4, low=9)
    closed = Directory().closed(watched, watched, ModelEnding(11, frozenset()))
    assert closed is not None
    assert Directory().closed(watched, closed, ModelEnding(12, frozenset())) is None


# Closing.


def end_of(low: int, rows: Mapping[int, tuple[ModelRow | None, ModelRow | None]]) -> ModelEnding:
    ending, _ = Closing("A", "A2").end_of(
        DirectoryRow(version=1, low=low), lambda n: rows.get(n, (None, None))
    )
    return ending


def test_a_log_ends_with_the_last_message_that_is_found() -> None:
    # 10 was never written, 11 has both rows.
    assert end_of(9, {11: (MESSAGE, MESSAGE)}) == ModelEnding(11, frozenset({10}))


def test_the_example_of_the_design_note_ends_at_eleven() -> None:
    # 12 was being written when the power failed: it has an index row and no message.
    rows = {11: (MESSAGE, MESSAGE), 12: (MESSAGE, None)}
    assert end_of(9, rows) == ModelEnding(11, frozenset({10}))


def test_a_log_of_which_nothing_is_found_ends_at_low() -> None:
    assert end_of(9, {}) == ModelEnding(9, frozenset())


def test_one_row_without_the_other_is_no_message() -> None:
    rows = {10: (MESSAGE, None), 11: (None, MESSAGE), 12: (MESSAGE, MESSAGE)}
    assert end_of(9, rows) == ModelEnding(12, frozenset({10, 11}))


def test_the_search_ends_after_six_numbers_in_a_row_without_a_row() -> None:
    assert end_of(0, {6: (MESSAGE, MESSAGE)}).ended == 6
    assert end_of(0, {7: (MESSAGE, MESSAGE)}).ended == 0


def test_a_void_row_shows_that_there_may_be_more() -> None:
    rows = {6: (VOID, None), 12: (MESSAGE, MESSAGE)}
    ending = end_of(0, rows)
    assert ending.ended == 12
    assert 6 in ending.voids
