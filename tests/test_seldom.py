"""Lines that are said once in a while instead of each time."""

from __future__ import annotations

from newsfabric.seldom import REPEAT_SECONDS, Complaints, Seldom


def test_what_is_said_seldom_counts_what_was_left_unsaid() -> None:
    seldom = Seldom(every=10.0)
    assert [seldom.may_say(now) for now in (0.0, 1.0, 9.9, 10.0, 30.0)] == [0, None, None, 2, 0]


def test_the_same_is_said_once_in_a_while() -> None:
    complaints = Complaints()
    assert complaints.is_news("refused", 0.0)
    assert not complaints.is_news("refused", REPEAT_SECONDS - 0.1)
    assert complaints.is_news("refused", REPEAT_SECONDS)
    assert not complaints.is_news("refused", REPEAT_SECONDS + 1)


def test_something_else_is_news() -> None:
    complaints = Complaints()
    assert complaints.is_news("refused", 0.0)
    assert complaints.is_news("timed out", 1.0)
    assert complaints.is_news("refused", 2.0)


def test_after_it_has_worked_everything_is() -> None:
    complaints = Complaints()
    assert complaints.is_news("refused", 0.0)
    complaints.over()
    assert complaints.is_news("refused", 1.0)
