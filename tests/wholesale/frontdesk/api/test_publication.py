"""``POST /publish`` bodies as AMQP messages."""

from __future__ import annotations

import contextlib
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from newsfabric.amqp import Message
from newsfabric.messages.envelope import DEFAULT_LIMITS, MAX_INTEGER, receive
from wholesale.common.http import HttpProblem
from wholesale.frontdesk.api.publication import parse_document, parse_publication

NOW_MS = 1_735_689_600_000


def parse(document: Any, *, key: str | None = None) -> Message:
    raw = document if isinstance(document, bytes) else orjson.dumps(document)
    return parse_publication(
        parse_document(raw),
        idempotency_key=key,
        fresh_id="fresh",
        now_ms=NOW_MS,
        limits=DEFAULT_LIMITS,
    )


def problem(document: Any, *, key: str | None = None) -> tuple[int, str]:
    with pytest.raises(HttpProblem) as caught:
        parse(document, key=key)
    return caught.value.status, caught.value.document["error"]["detail"]


def test_every_field_finds_its_place():
    message = parse(
        {
            "topic": "news.world",
            "body": {"headline": "ü"},
            "key": "story",
            "version": 3,
            "message_id": "m1",
            "app_id": "cms",
            "type": "story",
            "expiration": 60_000,
            "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        }
    )
    properties = message.properties
    assert (message.topic, message.body) == ("news.world", '{"headline":"ü"}'.encode())
    assert (properties.message_id, properties.app_id, properties.type) == ("m1", "cms", "story")
    assert (properties.expiration, properties.content_type) == ("60000", "application/json")
    assert properties.headers == {
        "key": "story",
        "version": 3,
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "timestamp_in_ms": NOW_MS,
    }
    assert properties.reply_to is None
    assert receive(message, now_ms=NOW_MS).version == 3


def test_the_idempotency_key_is_the_message_id():
    assert parse({"topic": "t", "body": 1}, key="k").properties.message_id == "k"
    assert parse({"topic": "t", "body": 1, "message_id": "k"}, key="k").properties.message_id == "k"


def test_without_either_it_gets_one():
    assert parse({"topic": "t", "body": 1}).properties.message_id == "fresh"


def test_two_that_differ_are_refused():
    assert problem({"topic": "t", "body": 1, "message_id": "a"}, key="b")[0] == 400


@pytest.mark.parametrize("body", [None, False, 0, "", [], {}])
def test_any_json_value_is_a_body(body: Any):
    assert parse({"topic": "t", "body": body}).body == orjson.dumps(body)


@pytest.mark.parametrize(
    ("document", "detail"),
    [
        (b"", "the request has no body"),
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        ([1], "expected a JSON object"),
        ({"body": 1}, "topic is required"),
        ({"topic": "", "body": 1}, "topic is required"),
        ({"topic": 7, "body": 1}, "topic must be a string"),
        ({"topic": "t"}, "body is required"),
        ({"topic": "t", "body": 1, "Key": "x"}, "unknown field 'Key'"),
        ({"topic": "t" * 256, "body": 1}, "topic has 256 bytes, at most 255"),
        ({"topic": "t", "body": 1, "key": "ü" * 128}, "key has 256 bytes, at most 255"),
        ({"topic": "t", "body": 1, "version": True}, "version must be a whole number"),
        ({"topic": "t", "body": 1, "version": 1.5}, "version must be a whole number"),
        ({"topic": "t", "body": 1, "version": MAX_INTEGER + 1}, "version must be a whole number"),
        ({"topic": "t", "body": 1, "expiration": "5"}, "expiration must be a whole number"),
        ({"topic": "t", "body": 1, "expiration": -5}, "expiration must be a whole number"),
    ],
)
def test_what_amqp_cant_carry_is_refused_with_the_reason(document: Any, detail: str):
    status, error = problem(document)
    assert (status, error[: len(detail)]) == (400, detail)


def test_an_idempotency_key_that_is_too_long_is_refused():
    assert problem({"topic": "t", "body": 1}, key="k" * 256)[0] == 400


def test_a_body_that_is_too_large_is_413():
    assert problem({"topic": "t", "body": "x" * 65_536})[0] == 413


@given(st.binary(max_size=200))
def test_no_bytes_do_anything_but_parse_or_be_refused(raw: bytes):
    with contextlib.suppress(HttpProblem):
        assert parse(raw).topic
