"""User marks that wait: their order, and the number of look-ups of a missing message."""

from __future__ import annotations

import pytest
from envelopes import START_MS, envelope

from newsfabric.amqp.message import Delivery, Message
from newsfabric.messages.mailbox import UserMark
from wholesale.common.source import QueueSource
from wholesale.mailbox.waiting import DELAYS, MarkJob, WaitingMarks

SOURCE = QueueSource()


def job(number: int = 1, user: str = "42") -> MarkJob:
    mark = UserMark(topic=f"user.{user}", id=envelope(number).id, kind="read", at_ms=START_MS)
    return MarkJob(mark, Delivery(Message("", b""), False, number, 0), SOURCE, started=0.0)


def test_marks_are_taken_in_the_order_in_which_they_came() -> None:
    waiting, jobs = WaitingMarks(), [job(n) for n in range(5)]
    for each in jobs:
        waiting.add_job(each)
    assert waiting.take_jobs(2, 0.0) == jobs[:2]
    assert waiting.take_jobs(9, 0.0) == jobs[2:]
    assert waiting.take_jobs(9, 0.0) == []
    assert waiting.due_in(0.0) is None


def test_one_whose_message_isnt_there_comes_again_a_few_times_ever_later() -> None:
    waiting, lost, now = WaitingMarks(), job(), 100.0
    for delay in DELAYS:
        assert waiting.retry_later(lost, now)
        assert waiting.due_in(now) == pytest.approx(delay)
        assert waiting.take_jobs(9, now + delay - 0.01) == []
        now += delay + 0.01
        assert waiting.take_jobs(9, now) == [lost]
    assert not waiting.retry_later(lost, now)
    assert len(waiting) == 0


def test_one_user_keeps_few_waiting_for_what_isnt_there() -> None:
    waiting = WaitingMarks(later=5, later_of_a_user=2)
    assert [waiting.retry_later(job(n), 0.0) for n in range(3)] == [True, True, False]
    assert waiting.retry_later(job(7, user="43"), 0.0)
    waiting.take_jobs(9, 1.0)
    assert waiting.retry_later(job(8), 1.0)


def test_all_users_together_keep_a_bounded_number_waiting() -> None:
    waiting = WaitingMarks(later=5, later_of_a_user=2)
    taken = [waiting.retry_later(job(n, user=str(n)), 0.0) for n in range(7)]
    assert taken == [True] * 5 + [False] * 2


def test_what_the_broker_has_taken_back_can_be_taken_out() -> None:
    waiting, jobs = WaitingMarks(later=2, later_of_a_user=2), [job(n) for n in range(4)]
    waiting.add_job(jobs[0])
    waiting.add_job(jobs[1])
    waiting.retry_later(jobs[2], 0.0)
    waiting.retry_later(jobs[3], 0.0)
    assert waiting.remove_if(lambda each: each in (jobs[1], jobs[2], jobs[3])) == 3
    assert waiting.take_jobs(9, 100.0) == [jobs[0]]
    assert waiting.retry_later(jobs[1], 0.0)
    assert waiting.retry_later(jobs[2], 0.0)
