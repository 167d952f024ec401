"""Verbs of strangers: each becomes an intent or a refusal, and never anything else."""

from __future__ import annotations

import json
from typing import Any, get_args

import orjson
import pytest
from envelopes import envelope
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.position import UNKNOWN, Listed, Position, decode, encode
from gateway.wire.protocol import (
    Bucket,
    History,
    Intent,
    LogIn,
    Ping,
    ReaderLimits,
    Refusal,
    Rewind,
    SetMark,
    Subscribe,
    Throttle,
    Unsubscribe,
    Verbs,
    error_push,
    too_many,
)
from newsfabric.closing import ErrorCode
from newsfabric.topics import TopicPolicy, TopicTable

TABLE = TopicTable(
    [
        TopicPolicy(pattern="news.*"),
        TopicPolicy(pattern="user.*", access="owner"),
        TopicPolicy(pattern="desk.#", access="registered"),
    ]
)
POSITION = encode(
    Position(1_735_689_600_900, {b"abcde": Listed(mark=5_000, whole_ms=1_735_689_600_000)})
)
LIMITS = ReaderLimits(verbs=4, verbs_per_second=2.0, refusals=3, topics=2)
VERBS = Verbs(TABLE, LIMITS)


def read(**verb: Any) -> Intent:
    return VERBS.read(json.dumps(verb))


def refused(**verb: Any) -> tuple[int, str]:
    intent = read(**verb)
    assert isinstance(intent, Refusal), intent
    assert not intent.temporary
    return int(intent.code), intent.reason


def test_verbs_become_intents() -> None:
    topic = "news.breaking"
    assert read(action="subscribe", topic=topic) == Subscribe(topic=topic)
    assert read(action="subscribe", topic=topic, position=POSITION, ref=7) == Subscribe(
        topic=topic, position=POSITION, ref=7
    )
    assert read(action="subscribe", topic=topic, rewind=3) == Subscribe(
        topic=topic, rewind=Rewind(count=3)
    )
    assert read(action="subscribe", topic=topic, rewind="5m") == Subscribe(
        topic=topic, rewind=Rewind(seconds=300.0)
    )
    assert read(action="unsubscribe", topic=topic, ref="a") == Unsubscribe(topic=topic, ref="a")
    assert read(action="history", topic=topic) == History(topic=topic, limit=20)
    before = envelope(1).id
    assert read(action="history", topic=topic, limit=5, before=before) == History(
        topic=topic, limit=5, before=before
    )
    assert read(action="ping", ref=1.5) == Ping(ref=1.5)
    assert read(action="ping", limits=True) == Ping(limits=LIMITS)
    assert read(action="ping", limits="yes") == Ping()


@pytest.mark.parametrize("text", ["", "{", "[1]", "1", "null", '"ping"', b"\xff\xfe", "{}" * 2])
def test_what_is_no_json_object_is_a_bad_request(text: str | bytes) -> None:
    intent = VERBS.read(text)
    assert isinstance(intent, Refusal)
    assert (intent.code, intent.ref) == (ErrorCode.BAD_REQUEST, None)


@pytest.mark.parametrize("action", [None, 1, "", "shout", "__init__", ["ping"]])
def test_an_unknown_verb_is_a_bad_request_with_its_ref(action: Any) -> None:
    intent = read(action=action, ref="r1")
    assert isinstance(intent, Refusal)
    assert (intent.code, intent.ref) == (107, "r1")


@pytest.mark.parametrize("action", ["ack", "read", "dismiss"])
def test_marks_become_intents(action: Any) -> None:
    id_ = envelope(1).id
    assert read(action=action, topic="user.7", id=id_, ref=1) == SetMark(
        topic="user.7", id=id_, kind=action, ref=1
    )


@pytest.mark.parametrize("id_", [None, 7, "", envelope(1).id.upper(), envelope(1).id + "0", []])
def test_what_is_no_id_cant_be_marked(id_: Any) -> None:
    assert refused(action="read", topic="user.7", id=id_) == (107, "id must be a message's id")


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ("news.breaking", 107),
        ("desk.plans", 107),
        ("nothing", 102),
        ("user.*", 107),
        ("user." + "x" * 65, 107),
        (None, 107),
    ],
)
def test_only_individual_messages_can_be_marked(topic: Any, code: int) -> None:
    assert refused(action="dismiss", topic=topic, id=envelope(1).id)[0] == code


@pytest.mark.parametrize(
    "topic", [None, 5, "", ".", "a..b", "news.*", "news breaking", "ä", "x" * 300]
)
@pytest.mark.parametrize("action", ["subscribe", "unsubscribe", "history"])
def test_a_malformed_topic_is_a_bad_request(action: str, topic: Any) -> None:
    assert refused(action=action, topic=topic)[0] == 107


@pytest.mark.parametrize("action", ["subscribe", "history"])
@pytest.mark.parametrize("topic", ["weather.oslo", "user.7.8", "_fabric.revoked"])
def test_topics_that_there_arent(action: str, topic: str) -> None:
    assert refused(action=action, topic=topic)[0] == 102


def test_logins_carry_a_token_that_no_log_shows() -> None:
    assert read(action="login", token="secret", ref=1) == LogIn(token="secret", ref=1)
    assert read(action="refresh", token="secret") == LogIn(token="secret", refresh=True)
    assert "secret" not in repr(read(action="login", token="secret"))
    for token in (None, 7, ["secret"], {"a": 1}):
        assert refused(action="login", token=token)[0] == 107


@pytest.mark.parametrize("rewind", [0, -1, 1001, True, 1.5, "", "5", "5x", "0s", "8d", [], {}])
def test_a_rewind_that_makes_no_sense_is_a_bad_request(rewind: Any) -> None:
    assert refused(action="subscribe", topic="news.x", rewind=rewind)[0] == 107


@pytest.mark.parametrize("position", [1, [], {}, True])
def test_a_position_that_is_no_text_is_a_bad_request(position: Any) -> None:
    assert refused(action="subscribe", topic="news.x", position=position)[0] == 107


@pytest.mark.parametrize("position", ["", "x" * 3000, "a b", "ü", POSITION + "A", POSITION[:-1]])
def test_a_position_that_cant_be_ours_is_unrecoverable(position: str) -> None:
    assert refused(action="subscribe", topic="news.x", position=position)[0] == 112


def test_a_position_of_another_release_is_taken_and_says_nothing() -> None:
    intent = read(action="subscribe", topic="news.x", position="AQGU")
    assert isinstance(intent, Subscribe)
    assert decode(intent.position or "") == UNKNOWN


@pytest.mark.parametrize("limit", [0, 101, -1, "5", 1.5, True])
def test_a_history_limit_out_of_range_is_a_bad_request(limit: Any) -> None:
    assert refused(action="history", topic="news.x", limit=limit)[0] == 107


@pytest.mark.parametrize(
    "before", [1, "", "x" * 36, "-" * 36, "00000000-0000-0000-0000-000000000000"]
)
def test_a_history_before_no_id_is_a_bad_request(before: Any) -> None:
    assert refused(action="history", topic="news.x", before=before)[0] == 107


@pytest.mark.parametrize("ref", [{}, [], {"a": 1}, "x" * 129, "ä" * 65])
def test_a_ref_that_is_no_short_scalar_isnt_echoed(ref: Any) -> None:
    intent = read(action="ping", ref=ref)
    assert isinstance(intent, Refusal)
    assert (intent.code, intent.ref) == (107, None)


def test_subscribing_twice_or_to_too_many_is_refused_when_its_turn_comes() -> None:
    verb = Subscribe(topic="news.x", ref=1)
    assert VERBS.clash(verb, {"news.y"}) is None
    again = VERBS.clash(verb, {"news.x"})
    assert again is not None
    assert (again.code, again.ref) == (105, 1)
    many = VERBS.clash(verb, {"news.y", "news.z"})
    assert many is not None
    assert many.code == 106


def test_a_bucket_full_of_verbs_is_welcome_then_refused_then_hung_up_on() -> None:
    reader = Bucket(LIMITS, now=0.0)
    verdicts = [reader.admit(now=0.0) for _ in range(8)]
    assert verdicts == [Throttle.ALLOW] * 4 + [Throttle.REFUSE] * 3 + [Throttle.HANG_UP]


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
    refusal = Refusal(code=ErrorCode.UNKNOWN_TOPIC, reason="unknown topic", topic="a.b", ref="r")
    assert json.loads(error_push(refusal)) == {
        "type": "error",
        "ref": "r",
        "topic": "a.b",
        "code": 102,
        "reason": "unknown topic",
        "temporary": False,
    }


def test_who_says_too_much_is_told_when_to_go_on_and_how_much_there_may_be() -> None:
    assert json.loads(error_push(too_many(LIMITS))) == {
        "type": "error",
        "code": 111,
        "reason": "too many requests",
        "temporary": True,
        "retry_after_ms": 1_000,
        "limits": {"topics": 2, "verbs": 4, "verbs_per_second": 2},
    }


def test_a_rate_that_is_no_whole_number_is_told_as_it_is() -> None:
    assert ReaderLimits(verbs_per_second=0.5).told["verbs_per_second"] == 0.5


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
VALUES = st.recursive(
    SCALARS | st.sampled_from(["news.a", "user.1", "5m", envelope(1).id]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.sampled_from(
    ["action", "topic", "ref", "rewind", "position", "limit", "before", "token", "id"]
)
ACTIONS = st.sampled_from(["subscribe", "unsubscribe", "history", "ping", "login", "ack"])


@given(st.dictionaries(FIELDS, VALUES), ACTIONS | VALUES)
def test_any_object_becomes_an_intent(fields: dict[str, Any], action: Any) -> None:
    intent = VERBS.read(json.dumps({**fields, "action": action}))
    assert isinstance(intent, get_args(Intent))
    if isinstance(intent, Refusal):
        push = orjson.loads(error_push(intent))
        assert push["code"] in set(ErrorCode)
        assert len(error_push(intent)) < 1000


@given(st.binary(max_size=200) | st.text(max_size=200))
def test_any_bytes_become_an_intent(data: bytes | str) -> None:
    assert isinstance(VERBS.read(data), get_args(Intent))
