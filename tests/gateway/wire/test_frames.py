"""Frames: each transport's form has the same message, whatever the message contains."""

from __future__ import annotations

import json

import pytest
from envelopes import envelope
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.frames import (
    TEXT,
    Framing,
    disconnect_push,
    encode_push,
    frame_as,
    messages_push,
    sockjs_close,
    sockjs_element,
    sse_event,
    websocket_close,
    websocket_frame,
)
from gateway.wire.publication import Publication
from newsfabric.closing import DRAIN
from newsfabric.topics import TopicPolicy

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
TRICKY = '{"a": "Ünï \u2028\u2029 \ufeff \U0001f600 \\u0000 </script>",\r\n"b":\n[1,\r2]}'


def publication(body: bytes, position: str | None = "AQ") -> Publication:
    return Publication(
        envelope(1, body=body), TopicPolicy(pattern="#", topic_class="gold"), position
    )


def events(stream: bytes) -> list[dict[str, str]]:
    """Parse text/event-stream strictly: every kind of line ending ends a line."""
    found = []
    for block in stream.decode().replace("\r\n", "\n").replace("\r", "\n").split("\n\n"):
        fields: dict[str, str] = {}
        for line in filter(None, block.split("\n")):
            name, _, value = line.partition(": ")
            fields[name] = fields.get(name, "") + value
        if fields:
            found.append(fields)
    return found


def test_a_message_push_has_its_fields_in_order_and_its_body_as_json() -> None:
    push = publication(b'{"headline":"x"}').frame(Framing.RAW)
    assert json.loads(push) == {
        "type": "message",
        "topic": "news.breaking",
        "id": envelope(1).id,
        "key": None,
        "version": None,
        "published": envelope(1).published_ms,
        "origin": "oregon",
        "class": "gold",
        "position": "AQ",
        "body": {"headline": "x"},
    }
    assert push.startswith(b'{"type":"message","topic":')


def test_the_bodys_bytes_are_the_publishers() -> None:
    assert (
        publication(b"[1.0, 1e400,  -0]").frame(Framing.RAW).endswith(b'"body":[1.0, 1e400,  -0]}')
    )


def test_a_frame_is_made_once() -> None:
    one = publication(b"{}")
    for framing in Framing:
        assert one.frame(framing) is one.frame(framing)


@pytest.mark.parametrize("body", [TRICKY.encode(), b'"\\n\\r"', b"\n\r[\n]\r"])
def test_every_variant_carries_the_same_message(body: bytes) -> None:
    one = publication(body)
    expected = json.loads(one.frame(Framing.RAW))
    assert json.loads(json.loads(one.frame(Framing.SOCKJS))) == expected
    (event,) = events(one.frame(Framing.SSE))
    assert json.loads(event["data"]) == expected
    assert event["id"] == "AQ"


@given(JSON)
def test_any_json_survives_sockjs_and_sse(value: object) -> None:
    push = encode_push("x", value=value, n=1)
    assert json.loads(json.loads(frame_as(push, Framing.SOCKJS))) == json.loads(push)
    (event,) = events(frame_as(push, Framing.SSE))
    assert json.loads(event["data"]) == json.loads(push)


@given(st.text())
def test_a_sockjs_element_has_no_character_that_browsers_mangle(text: str) -> None:
    element = sockjs_element(text.encode("utf-8", "replace")).decode()
    for character in "\u200c\u2028\u2029\ufeff\ufffe\ud800\U0001f600\u0300\x00":
        assert character not in element
    assert all(ord(character) <= 0xFFFF for character in element)


def test_sockjs_escapes_an_emoji_as_a_surrogate_pair_and_leaves_text_alone() -> None:
    assert sockjs_element("Zürich 東京 \U0001f600\u2028".encode()) == (
        '"Zürich 東京 \\ud83d\\ude00\\u2028"'.encode()
    )


@pytest.mark.parametrize(
    ("size", "head"),
    [
        (0, b"\x81\x00"),
        (125, b"\x81\x7d"),
        (126, b"\x81\x7e\x00\x7e"),
        (65535, b"\x81\x7e\xff\xff"),
        (65536, b"\x81\x7f\x00\x00\x00\x00\x00\x01\x00\x00"),
    ],
)
def test_websocket_lengths(size: int, head: bytes) -> None:
    """RFC 6455 section 5.2: the shortest form."""
    assert websocket_frame(TEXT, b"x" * size) == head + b"x" * size


def test_close_frames() -> None:
    assert websocket_close(1012, "bye") == b"\x88\x05\x03\xf4bye"
    assert len(websocket_close(4000, "x" * 500)) == 127
    assert sockjs_close(3000, 'Go "away"!') == b'c[3000,"Go \\"away\\"!"]'


def test_an_event_without_position_leaves_the_readers_last_id_alone() -> None:
    assert sse_event(b"{}") == b"data: {}\n\n"


def test_a_disconnect_push_says_all_that_the_reader_needs() -> None:
    assert json.loads(disconnect_push(DRAIN, 1500)) == {
        "type": "disconnect",
        "code": 1012,
        "reason": "this box is being drained",
        "reconnect": True,
        "retry_after_ms": 1500,
    }


def test_history_embeds_messages_as_they_are() -> None:
    push = messages_push(None, "a.b", [b'{"n":1}', b'{"n":2}'], more=True)
    assert json.loads(push) == {
        "type": "history",
        "topic": "a.b",
        "more": True,
        "messages": [{"n": 1}, {"n": 2}],
    }
