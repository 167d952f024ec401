"""Commands, in the form that the protocol's page gives."""

from __future__ import annotations

import struct

import pytest
from envelopes import envelope
from fake_dataplane import READER, ReceivedCommand, decoded
from hypothesis import given
from hypothesis import strategies as st

from gateway.answers.access import AuthState, decode_auth
from gateway.native import commands
from gateway.native.table import VERSION
from gateway.native.wire import WireError
from gateway.process.settings import GatewaySettings, NativeSettings, TokenSettings
from gateway.wire.frames import Framing
from gateway.wire.publication import Publication
from newsfabric.closing import CLOSE_REASONS, INTERNAL, INVALID_TOKEN, REBALANCE, CloseReason
from newsfabric.messages.envelope import taken_ms
from newsfabric.tokens import Login
from newsfabric.topics import SlowPolicy, TopicPolicy

# A list of one.
ALONE = b"\x01\0" + READER
POLICY = TopicPolicy(pattern="news.*", topic_class="gold", keep=10, slow="conflate", latest=True)
TOPIC = ("news.breaking", 1)
# The same as bytes.
TOPIC_BYTES = b"\x0dnews.breaking" + b"\x01"


def publication(number: int = 1, **fields: object) -> Publication:
    return Publication(envelope(number, **fields), POLICY, "AQ")


def message_bytes(of: Publication, *, version: int = -1, key: bytes = b"") -> bytes:
    push = of.frame(Framing.RAW)
    return (
        bytes.fromhex(of.envelope.id.replace("-", ""))
        + version.to_bytes(8, "little", signed=True)
        + struct.pack("<H", len(key)) + key
        + struct.pack("<I", len(push)) + push
    )  # fmt: skip


def command(kind: int, body: bytes) -> bytes:
    return (1 + len(body)).to_bytes(4, "little") + bytes((kind,)) + body


def test_hello() -> None:
    assert commands.hello() == b"\x07\0\0\0\x01nfdp" + VERSION.to_bytes(2, "little")


def test_publish() -> None:
    made = publication(key="k\u00fc", version=3, expires_ms=77)
    key = "k\u00fc".encode()
    expected = message_bytes(made, version=3, key=key)
    mark = b'\n["oregon","oregon-router-1",%d,1]' % made.envelope.epoch
    assert commands.publish(258, made) == command(
        24, struct.pack("<H", len(mark)) + mark
    ) + command(3, b"\x02\x01\0\0\0\0\0\0" + TOPIC_BYTES + expected)


def test_what_is_measured_has_a_stamp_before_it() -> None:
    made = publication()
    plain = commands.publish(1, made)
    made.way = "postoffice.1"
    series = b"gold,oregon,postoffice.1"
    stamp = taken_ms(made.envelope).to_bytes(8, "little") + bytes((len(series),)) + series
    assert commands.publish(1, made) == command(23, stamp) + plain


def test_a_series_with_too_long_a_name_is_not_measured() -> None:
    made = publication()
    plain = commands.publish(1, made)
    made.way = "x" * 60
    assert commands.publish(1, made) == plain


def test_a_message_without_key_and_version() -> None:
    made = publication(key=None, version=None)
    assert b"".join(commands._message(made)) == message_bytes(made)


def test_batch() -> None:
    old, new = publication(1), publication(2)
    made = commands.batch(258, "news.breaking", POLICY, [old, new])
    messages = b"\x02\0\0\0" + message_bytes(old) + message_bytes(new)
    assert made == command(15, b"\x02\x01\0\0\0\0\0\0" + TOPIC_BYTES + messages)


def test_subscribe_with_its_messages() -> None:
    one = publication(1)
    made = commands.acceptance(
        "news.breaking", POLICY, batch=0, seen=True, ref=b'"r"', push=b"{}", messages=[one]
    )
    rest = bytes(8) + b"\x01" + b"\x03\0" + b'"r"' + b"\x02\0\0\0{}"
    assert made == TOPIC_BYTES + rest + b"\x01\0\0\0" + message_bytes(one)
    assert commands.subscribe(READER, made) == command(5, ALONE + made)


def test_subscribe_with_a_batch() -> None:
    made = commands.acceptance("news.breaking", POLICY, batch=513, seen=False, ref=b"", push=b"{}")
    rest = b"\x01\x02\0\0\0\0\0\0" + b"\0" + b"\0\0" + b"\x02\0\0\0{}" + b"\0\0\0\0"
    assert made == TOPIC_BYTES + rest


@pytest.mark.parametrize(
    ("slow", "number"), [("disconnect", 0), ("conflate", 1), ("drop_oldest", 2)]
)
def test_a_topics_policy_for_slow_readers_is_in_its_answer(slow: SlowPolicy, number: int) -> None:
    policy = TopicPolicy(pattern="news.*", slow=slow)
    (made,) = decoded(commands.batch(1, "news.breaking", policy, []))
    assert made.fields["topic"] == ("news.breaking", number)


def test_an_answer_names_each_reader_that_gets_it() -> None:
    both = READER + struct.pack("<HII", 9, 9, 9)
    made = commands.acceptance("news.a", POLICY, batch=7, seen=True, ref=b"", push=b"{}")
    assert commands.subscribe(both, made) == command(5, b"\x02\0" + both + made)
    assert commands.reply(both, b"{}") == command(7, b"\x02\0" + both + b"\x02\0\0\0{}")


def test_unsubscribe_reply_and_close() -> None:
    assert commands.unsubscribe(READER, "news.a", b"{}") == command(
        6, ALONE + b"\x06news.a" + b"\x02\0\0\0{}"
    )
    assert commands.reply(READER, b"{}") == command(7, ALONE + b"\x02\0\0\0{}")
    assert commands.close(READER, INTERNAL) == command(
        9, ALONE + b"\x08internal" + (5_000).to_bytes(4, "little")
    )


def test_an_auth_state_says_whose_it_is_and_when_it_ends() -> None:
    login = Login(user="42", topics=("a.#",), issued_ms=1, expires_ms=2, ends_ms=3)
    auth = AuthState(login, 2)
    (made,) = decoded(commands.auth(READER, auth, b"{}"))
    assert made.name == "auth"
    blob = made.fields.pop("auth")
    assert decode_auth(blob) == auth
    assert made.fields == {
        "connections": READER, "user": "42", "issued_ms": 1, "ends_ms": 3, "push": b"{}"
    }  # fmt: skip
    (nobodys,) = decoded(commands.auth(READER, AuthState(None, 1), b"{}"))
    assert (nobodys.fields["user"], nobodys.fields["ends_ms"]) == ("", 0)


@pytest.mark.parametrize(
    ("made", "name", "fields"),
    [
        (commands.evict([("42", 5), ("7", 6)], INVALID_TOKEN), "evict", {
            "reason": "invalid_token", "users": [("42", 5), ("7", 6)]}),
        (commands.shed(REBALANCE, 3, 2_000), "shed", {
            "reason": "rebalance", "count": 3, "retry_ms": 2_000}),
        (commands.drain(1.5, 9), "drain", {"spread_ms": 1_500, "per_second": 9}),
        (commands.drain(0.0, 9), "drain", {"spread_ms": 0, "per_second": 9}),
        (commands.remember(b"xyz"), "remember", {"blob": b"xyz"}),
        (commands.count(), "count", {}),
    ],
)  # fmt: skip
def test_the_other_end_reads_the_fields_by_name(
    made: bytes, name: str, fields: dict[str, object]
) -> None:
    assert decoded(made) == [ReceivedCommand(name, fields)]


def test_what_has_become_of_connections_that_were_handed_over() -> None:
    assert commands.gone("192.0.2.1") == command(21, b"\x09192.0.2.1")
    made = commands.kept({"192.0.2.1": 2, "::1": 1})
    first, second = b"\x09192.0.2.1\x02\0\0\0", b"\x03::1\x01\0\0\0"
    assert made == command(22, b"\x02\0\0\0" + first + second)


def test_settings_are_sent_by_name() -> None:
    settings = GatewaySettings(
        name="box",
        region="oregon",
        heartbeat=0.05,
        drain_seconds=0.0,
        origins=("https://a.example",),
        tokens=TokenSettings(keys="keys.pem", cookie="session"),
        per_address=3,
        native=NativeSettings(proxy_from=("10.0.0.0/8", "2001:db8::/32")),
    )
    (made,) = decoded(commands.settings(settings, capacity=7, handovers=9))
    fields = made.fields
    wanted = {
        "capacity": 7, "heartbeat_ms": 50, "linger_ms": 5_000, "message_bytes": 16_384,
        "verbs": 256, "verbs_per_second": 10, "hard_bytes": 4 << 20, "soft_ms": 10_000,
        "fanout_chunk": 32, "deflate_bytes": 256, "identities": 1_550_000,
        "identity_ms": 900_000, "alone_ms": 60_000, "drain_ms": 0,
        "drain_per_second": 2_000, "origins": ["https://a.example"],
        "cookie": "session", "pong_ms": 2_000, "per_address": 3,
        "websocket": True, "sockjs_cookie": False, "handovers": 9,
        "proxy_from": ["10.0.0.0/8", "2001:db8::/32"],
        "outbox_bytes": 256 << 20, "stalled_ms": 30_000,
    }  # fmt: skip
    assert {name: fields[name] for name in wanted} == wanted
    assert [CloseReason(**reason) for reason in fields["reasons"]] == list(CLOSE_REASONS)
    assert fields["errors"]["already_subscribed"] == 105


def test_any_origin_is_an_empty_list() -> None:
    (made,) = decoded(commands.settings(GatewaySettings(name="b", region="r"), capacity=1))
    assert made.fields["origins"] == []


@given(
    st.binary(max_size=300), st.text(max_size=80), st.one_of(st.none(), st.integers(0, 2**53 - 1))
)
def test_the_other_end_reads_what_was_written(push: bytes, key: str, version: int | None) -> None:
    made = publication(key=key or None, version=version)
    _, read = decoded(commands.publish(1, made))
    assert read.fields["topic"] == TOPIC
    message = read.fields["message"]
    assert (message["key"], message["version"]) == (key, -1 if version is None else version)
    (replied,) = decoded(commands.reply(READER, push))
    assert replied.fields == {"connections": READER, "push": push}


def test_a_command_that_is_too_long_is_an_error_here() -> None:
    with pytest.raises(WireError):
        commands.reply(READER, bytes(16 << 20))
