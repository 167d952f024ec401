import io
import sys
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from newsfabric.errors import ConfigError
from newsfabric.messages.envelope import receive
from operations.cli.messages import (
    headline,
    make_message,
    message_line,
    read_body,
    rejection,
    rejection_line,
)


def test_a_body_is_the_argument_itself() -> None:
    assert read_body('{"a": "ü"}') == '{"a": "ü"}'.encode()


def test_what_the_shell_gave_as_bytes_stays_those_bytes() -> None:
    assert read_body(b"\xff{".decode("utf-8", "surrogateescape")) == b"\xff{"


def test_a_body_can_come_from_a_file_or_stdin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "body.json"
    file.write_bytes(b"[1]")
    assert read_body(f"@{file}") == b"[1]"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"[2]")))
    assert read_body("-") == b"[2]"
    with pytest.raises(ConfigError, match=r"none\.json: No such file"):
        read_body(f"@{tmp_path / 'none.json'}")


def test_a_message_is_what_the_fabric_accepts() -> None:
    message = make_message(
        "news.breaking", b"{}", message_id="m", app_id="a", now_ms=1000, key="k", version=3
    )
    submission = receive(message, now_ms=2000)
    assert (submission.key, submission.version, submission.published_ms) == ("k", 3, 1000)
    assert (submission.message_id, submission.app_id) == ("m", "a")


def test_without_key_and_version_there_is_no_header_for_them() -> None:
    message = make_message("a", b"{}", message_id="m", app_id="a", now_ms=1)
    assert message.properties.headers == {"timestamp_in_ms": 1}


def test_what_amqp_cannot_carry_is_refused_here() -> None:
    with pytest.raises(ConfigError, match="the topic has 256 bytes; AMQP takes at most 255"):
        make_message("x" * 256, b"{}", message_id="m", app_id="a", now_ms=1)


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ({"headline": "H", "summary": "S"}, "H"),
        ({"headline": "", "summary": "S"}, "S"),
        ({"x": 1}, '{"x":1}'),
        ([1, 2], "[1,2]"),
        (None, "null"),
        ({"headline": "a\nb\x1b[31mc"}, "a b [31mc"),
        ({"headline": "x" * 200}, "x" * 119 + "…"),
    ],
)
def test_a_headline_is_one_short_line_that_does_nothing_to_a_terminal(
    body: object, shown: str
) -> None:
    assert headline(body) == shown


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(json_values)
def test_any_body_and_any_time_can_be_shown(value: object) -> None:
    try:
        body = orjson.loads(orjson.dumps(value))
    except orjson.JSONEncodeError:
        return
    fields = {"published": 10**17, "topic": "t", "body": body, "version": None}
    line = message_line(fields, None)
    assert "\n" not in line
    assert line.startswith("--:--:--  t  ")


def test_a_rejected_message_is_reported_in_the_fabrics_words() -> None:
    entry = {
        "payload": "/3s=",
        "payload_encoding": "base64",
        "payload_bytes": 2,
        "properties": {
            "app_id": "desk",
            "message_id": "m",
            "headers": {
                "reason": "not_utf8",
                "detail": "position 0",
                "topic": "news.x",
                "region": "oregon",
                "router": "oregon-router-1",
                "rejected_at": 0,
            },
        },
    }
    found = rejection(entry)
    assert found["body"] == "\\xff{"
    assert (found["reason"], found["topic"], found["bytes"]) == ("not_utf8", "news.x", 2)
    assert rejection_line(found).endswith("not_utf8: position 0  (news.x, 2 bytes by desk)")


def test_a_rejected_message_without_properties_can_be_shown() -> None:
    # RabbitMQ writes an empty list where there are no properties.
    found = rejection({"payload": "x", "payload_encoding": "string", "properties": []})
    assert rejection_line(found).startswith("--:--:--  None")
