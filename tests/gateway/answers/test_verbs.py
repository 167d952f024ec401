"""Verbs of strangers: each becomes an intent or a refusal, and never anything else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from documented_verbs import VERBS as DOCUMENTED
from documented_verbs import DocumentedVerb
from envelopes import envelope

from gateway.answers.history import History
from gateway.answers.login import LogIn
from gateway.answers.mark import SetMark
from gateway.answers.ping import Ping
from gateway.answers.subscribe import Subscribe
from gateway.answers.unsubscribe import Unsubscribe
from gateway.answers.verb import Verb
from gateway.answers.verbs import BY_ACTION, Intent, VerbParser
from gateway.answers.verbs import TABLE as VERB_TABLE
from gateway.wire.position import UNKNOWN, Listed, Position, decode, encode
from gateway.wire.protocol import ReaderLimits, Rewind, VerbRefusal
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
VERBS = VerbParser(TABLE, LIMITS)


def read(**verb: Any) -> Intent:
    return VERBS.parse(json.dumps(verb))


def refused(**verb: Any) -> tuple[int, str]:
    intent = read(**verb)
    assert isinstance(intent, VerbRefusal), intent
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
    intent = VERBS.parse(text)
    assert isinstance(intent, VerbRefusal)
    assert (intent.code, intent.ref) == (ErrorCode.BAD_REQUEST, None)


@pytest.mark.parametrize("action", [None, 1, "", "shout", "__init__", ["ping"]])
def test_an_unknown_verb_is_a_bad_request_with_its_ref(action: Any) -> None:
    intent = read(action=action, ref="r1")
    assert isinstance(intent, VerbRefusal)
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
@pytest.mark.parametrize("action", [one for one, row in BY_ACTION.items() if row.topic != "none"])
def test_a_malformed_topic_is_a_bad_request(action: str, topic: Any) -> None:
    assert refused(action=action, topic=topic)[0] == 107


@pytest.mark.parametrize(
    "action", [one for one, row in BY_ACTION.items() if row.topic in ("readable", "past")]
)
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
    assert isinstance(intent, VerbRefusal)
    assert (intent.code, intent.ref) == (107, None)


def test_the_readers_page_has_each_verb_and_no_other() -> None:
    assert sorted(verb.action for verb in DOCUMENTED) == sorted(BY_ACTION)


@pytest.mark.parametrize("verb", DOCUMENTED, ids=lambda verb: verb.action)
def test_a_verb_of_the_page_is_read_as_the_verb_of_its_row(verb: DocumentedVerb) -> None:
    id_ = envelope(1).id
    intent = read(**verb.with_values({"topic": "user.7", "id": id_, "before": id_}), ref="r")
    assert (type(intent), intent.ref) == (BY_ACTION[verb.action].verb, "r")


def test_each_verb_has_one_row() -> None:
    assert len(BY_ACTION) == sum(len(row.actions) for row in VERB_TABLE)
    # A dataclass with slots is made of another class of its name, which stays.
    names = {verb.__name__ for verb in Verb.__subclasses__()}
    assert {row.verb.__name__ for row in VERB_TABLE} == names
    labels = [row.label for row in VERB_TABLE]
    assert len(set(labels)) == len(labels)
