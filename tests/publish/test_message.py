"""A publisher's submission as a message, and the receipt."""

from __future__ import annotations

import dataclasses
import enum
import itertools
import math
from typing import Any

import pytest

from newsfabric.amqp import Message, Properties
from newsfabric.errors import Rejected
from newsfabric.messages.control import Receipt
from newsfabric.publish.message import (
    Published,
    check_limits,
    make_message,
    pauses,
    published,
)

NOW = 1_735_689_600_123


def test_each_given_field_has_its_place() -> None:
    message = make_message(
        "news.x",
        {"headline": "é"},
        {
            "key": "story-1",
            "version": 0,
            "message_id": "m-1",
            "type": "story",
            "expiration": 60_000,
            "traceparent": "00-1-2-01",
        },
        app_id="cms",
        now_ms=NOW,
    )
    assert message.body == '{"headline":"é"}'.encode()
    headers = {
        "timestamp_in_ms": NOW,
        "key": "story-1",
        "version": 0,
        "traceparent": "00-1-2-01",
    }
    assert message.properties == Properties(
        content_type="application/json",
        headers=headers,
        message_id="m-1",
        app_id="cms",
        type="story",
        expiration="60000",
        timestamp=NOW // 1000,
    )


@pytest.mark.parametrize(
    ("body", "sent"),
    [("[1]", b"[1]"), (b"[1]", b"[1]"), ([1], b"[1]"), (None, b"null"), ({}, b"{}")],
)
def test_text_and_bytes_are_json_already(body: Any, sent: bytes) -> None:
    assert make_message("t", body, {}, app_id="a", now_ms=NOW).body == sent


@pytest.mark.parametrize(
    ("body", "place", "after"),
    [
        ('{"headline": "Comet \ud83d"}', 20, '\'{"headline": "Comet \''),
        ({"headline": "Comet \ud83d"}, 20, '\'{"headline": "Comet \''),
        (["x", "\ude00"], 7, '\'["x", "\''),
    ],
)
def test_half_an_emoji_is_rejected_and_it_says_where(body: Any, place: int, after: str) -> None:
    with pytest.raises(Rejected) as error:
        make_message("t", body, {}, app_id="a", now_ms=NOW)
    assert error.value.reason == "not_json"
    assert error.value.detail == f"a lone surrogate at character {place} of the body, after {after}"


@dataclasses.dataclass
class Quote:
    price: float | None


@pytest.mark.parametrize(
    ("body", "where"),
    [
        (math.inf, "body is inf"),
        ({"prices": [1.0, None, 1e400]}, "body.prices.2 is inf"),
        ({"null": {"change": -math.inf}}, "body.null.change is -inf"),
        ((Quote(1.0), Quote(math.nan)), "body.1.price is nan"),
        ([enum.Enum("Odd", {"LOTS": math.inf})["LOTS"]], "body.0 is inf"),  # type: ignore[misc]
    ],
)
def test_a_number_that_json_has_not_is_rejected_and_it_says_where(body: Any, where: str) -> None:
    with pytest.raises(Rejected) as error:
        make_message("t", body, {}, app_id="a", now_ms=NOW)
    assert error.value.reason == "not_json"
    assert error.value.detail == f"{where}: JSON has no infinity and no NaN"


def test_null_is_sent_where_it_was_given() -> None:
    body = {"price": None, "of": [Quote(None), "null", 1.5]}
    message = make_message("t", body, {}, app_id="a", now_ms=NOW)
    assert message.body == b'{"price":null,"of":[{"price":null},"null",1.5]}'


def test_what_is_no_json_at_all_is_the_callers_error() -> None:
    with pytest.raises(TypeError, match="not JSON serializable"):
        make_message("t", {"a": {1}}, {}, app_id="a", now_ms=NOW)


def test_each_message_gets_a_name_of_its_own() -> None:
    made = [make_message("t", "{}", {}, app_id="a", now_ms=NOW) for _ in range(2)]
    one, two = (message.properties.message_id for message in made)
    assert one
    assert one != two


def test_a_receipt_says_what_became_of_it() -> None:
    receipt = Receipt(
        status="routed", region="r", router="r-1", topic="t", id="i", identity="d", repeated=True
    )
    found = Published(
        message_id="m",
        routed=True,
        id="i",
        identity="d",
        region="r",
        router="r-1",
        repeated=True,
    )
    assert published(receipt, "m") == found


def test_a_rejection_is_an_error() -> None:
    receipt = Receipt(
        status="rejected", region="r", router="r-1", topic="t", reason="not_json", detail="why"
    )
    with pytest.raises(Rejected, match="not_json: why"):
        published(receipt, "m")


def made(body: str, **options: Any) -> Message:
    return make_message("t", body, options, app_id="a", now_ms=NOW)


def test_what_routers_take_is_within_the_limits() -> None:
    check_limits(made('"' + 65_534 * "x" + '"', key=255 * "k"))


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (made('"' + 65_535 * "x" + '"'), "too_large: 65537 bytes, at most 65536; it was not sent"),
        (made("1", key=128 * "é"), "bad_header: key has 256 bytes, at most 255"),
        (made("1", traceparent=300 * "0"), "bad_header: traceparent has 300 bytes, at most 255"),
    ],
)
def test_what_is_beyond_them_is_rejected_in_a_routers_words(message: Message, why: str) -> None:
    with pytest.raises(Rejected, match=f"^{why}$"):
        check_limits(message)


def test_it_waits_twice_as_long_each_time_up_to_the_last() -> None:
    assert list(itertools.islice(pauses(2.0, 10.0), 5)) == [2.0, 4.0, 8.0, 10.0, 10.0]
