"""Log lines that are limited to one in a while."""

from __future__ import annotations

from newsfabric.line_limits import REPEAT_SECONDS, LineLimit, RepeatedFailures


def test_a_limited_line_counts_those_that_were_left_out() -> None:
    limit = LineLimit(every=10.0)
    assert [limit.may_log(now) for now in (0.0, 1.0, 9.9, 10.0, 30.0)] == [0, None, None, 2, 0]


def test_the_same_failure_is_logged_once_in_a_while() -> None:
    failures = RepeatedFailures()
    assert failures.should_log("refused", 0.0)
    assert not failures.should_log("refused", REPEAT_SECONDS - 0.1)
    assert failures.should_log("refused", REPEAT_SECONDS)
    assert not failures.should_log("refused", REPEAT_SECONDS + 1)


def test_another_failure_is_logged_at_once() -> None:
    failures = RepeatedFailures()
    assert failures.should_log("refused", 0.0)
    assert failures.should_log("timed out", 1.0)
    assert failures.should_log("refused", 2.0)


def test_after_it_has_worked_every_failure_is_logged() -> None:
    failures = RepeatedFailures()
    assert failures.should_log("refused", 0.0)
    failures.ended()
    assert failures.should_log("refused", 1.0)
