"""Limits of readers, the rate of their verbs, and refusals."""

from __future__ import annotations

import json

from gateway.wire.protocol import (
    Bucket,
    ReaderLimits,
    Throttle,
    VerbRefusal,
    error_push,
    subscription_refusal,
    too_many,
)
from newsfabric.closing import ErrorCode

LIMITS = ReaderLimits(verbs=4, verbs_per_second=2.0, refusals=3, topics=2)


def test_subscribing_twice_or_to_too_many_is_refused_when_its_turn_comes() -> None:
    assert subscription_refusal("news.x", {"news.y"}, LIMITS) is None
    again = subscription_refusal("news.x", {"news.x"}, LIMITS)
    assert again is not None
    assert (again.code, again.topic) == (105, "news.x")
    many = subscription_refusal("news.x", {"news.y", "news.z"}, LIMITS)
    assert many is not None
    assert many.code == 106


def test_a_bucket_full_of_verbs_is_welcome_then_refused_then_hung_up_on() -> None:
    reader = Bucket(LIMITS, now=0.0)
    verdicts = [reader.admit(now=0.0) for _ in range(8)]
    assert verdicts == [Throttle.ALLOW] * 4 + [Throttle.REFUSE] * 3 + [Throttle.CLOSE]


def test_verbs_are_welcome_again_after_a_pause() -> None:
    reader = Bucket(LIMITS, now=0.0)
    for _ in range(6):
        reader.admit(now=0.0)
    assert reader.admit(now=0.5) is Throttle.ALLOW
    assert reader.admit(now=0.5) is Throttle.REFUSE


def test_refusals_are_forgotten_once_the_bucket_is_half_full() -> None:
    reader = Bucket(LIMITS, now=0.0)
    for _ in range(7):
        reader.admit(now=0.0)
    assert reader.admit(now=10.0) is Throttle.ALLOW
    assert [reader.admit(now=10.0) for _ in range(4)][-1] is Throttle.REFUSE


def test_a_clock_that_goes_back_takes_nothing_away() -> None:
    reader = Bucket(LIMITS, now=0.0)
    assert reader.admit(now=100.0) is Throttle.ALLOW
    assert reader.admit(now=0.0) is Throttle.ALLOW


def test_an_error_push_tells_topic_and_ref_when_there_are_any() -> None:
    refusal = VerbRefusal(
        code=ErrorCode.UNKNOWN_TOPIC, reason="unknown topic", topic="a.b", ref="r"
    )
    assert json.loads(error_push(refusal)) == {
        "type": "error",
        "ref": "r",
        "topic": "a.b",
        "code": 102,
        "reason": "unknown topic",
        "temporary": False,
    }


def test_a_reader_over_the_rate_learns_when_to_go_on_and_the_rate() -> None:
    assert json.loads(error_push(too_many(LIMITS))) == {
        "type": "error",
        "code": 111,
        "reason": "too many requests",
        "temporary": True,
        "retry_after_ms": 1_000,
        "limits": {"topics": 2, "verbs": 4, "verbs_per_second": 2},
    }


def test_a_rate_that_is_no_whole_number_is_reported_as_it_is() -> None:
    assert ReaderLimits(verbs_per_second=0.5).public["verbs_per_second"] == 0.5
