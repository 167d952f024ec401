"""Messages that wait for the store, and the order in which they leave."""

from __future__ import annotations

import pytest
from core_cluster import EPOCH, message
from hypothesis import given
from hypothesis import strategies as st

from newsfabric.amqp import Delivery
from newsfabric.messages.envelope import receive
from newsfabric.topics import CLASSES, TopicClass
from wholesale.common.source import QueueSource
from wholesale.router.jobs import Claim, RoutingJob
from wholesale.router.waiting import WaitingJobs


def job(topic_class: TopicClass, number: int = 0) -> RoutingJob:
    submission = receive(message(message_id=str(number)), now_ms=EPOCH)
    claim = Claim(Delivery(message(), False, number, 0), QueueSource(), None, None)
    return RoutingJob(submission, topic_class, 0, [claim], 0.0)


def test_gold_leaves_before_silver_and_silver_before_bronze():
    waiting = WaitingJobs(bronze_room=5)
    jobs = [job(each) for each in ("bronze", "silver", "gold", "silver", "gold", "bronze")]
    for each in jobs:
        waiting.queue_job(each, under_way=1)
    first = waiting.take_jobs(3)
    assert first == [jobs[2], jobs[4], jobs[1]]
    assert waiting.take_jobs(100) == [jobs[3], jobs[0], jobs[5]]
    assert len(waiting) == 0


def test_with_more_under_way_than_there_is_room_each_newcomer_costs_the_oldest_bronze():
    waiting = WaitingJobs(bronze_room=2)
    silver = [job("silver") for _ in range(2)]
    bronze = [job("bronze") for _ in range(3)]
    assert [waiting.queue_job(each, under_way=2) for each in bronze] == [None] * 3
    assert [waiting.queue_job(each, under_way=3) for each in silver] == [bronze[0], bronze[1]]
    assert waiting.take_jobs(100) == [*silver, bronze[2]]
    assert waiting.queue_job(bronze[0], under_way=3) == bronze[0]


def test_without_bronze_nothing_goes_however_much_is_under_way():
    waiting = WaitingJobs(bronze_room=2)
    jobs = [job("silver"), job("gold")]
    assert [waiting.queue_job(each, under_way=1000) for each in jobs] == [None, None]


def test_what_waits_for_nobody_can_be_taken_out():
    waiting = WaitingJobs(bronze_room=2)
    kept, gone = job("silver"), job("gold")
    gone.claims.clear()
    for each in (kept, gone):
        waiting.queue_job(each, under_way=1)
    assert waiting.remove_unclaimed() == [gone]
    assert waiting.take_jobs(10) == [kept]


def test_a_room_for_nothing_is_refused():
    with pytest.raises(ValueError, match="bronze_room"):
        WaitingJobs(bronze_room=0)


@given(st.lists(st.sampled_from([*CLASSES]) | st.integers(1, 5)), st.integers(1, 4))
def test_each_job_leaves_once_taken_or_dropped_and_only_bronze_is_dropped(
    steps: list[TopicClass | int], room: int
):
    waiting = WaitingJobs(bronze_room=room)
    put: list[RoutingJob] = []
    left: list[RoutingJob] = []
    for step in steps:
        if isinstance(step, int):
            left += waiting.take_jobs(step)
            continue
        put.append(job(step))
        dropped = waiting.queue_job(put[-1], under_way=len(waiting) + 1)
        if dropped is not None:
            assert dropped.topic_class == "bronze"
            left.append(dropped)
    left += waiting.take_jobs(len(put))
    assert sorted(map(id, left)) == sorted(map(id, put))
    for topic_class in CLASSES:
        ours = [each for each in left if each.topic_class == topic_class]
        assert ours == [each for each in put if each.topic_class == topic_class]
