"""The WebSocket parser, with bytes fed whole and one at a time."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.frames import BINARY, CLOSE, PING, PONG, TEXT
from gateway.wire.rfc6455 import FrameParser, Received, accept_key
from newsfabric.closing import INVALID_PAYLOAD, PROTOCOL_ERROR, TOO_BIG, UNFINISHED

MASK = b"\x11\x22\x33\x44"


def frame(opcode: int, payload: bytes = b"", *, fin: bool = True, mask: bytes = MASK) -> bytes:
    size = len(payload)
    head = bytes((opcode | (0x80 if fin else 0),))
    if size < 126:
        head += bytes((0x80 | size,))
    elif size < 65536:
        head += b"\xfe" + size.to_bytes(2, "big")
    else:
        head += b"\xff" + size.to_bytes(8, "big")
    return head + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(payload))


def parse(data: bytes, max_bytes: int = 1000) -> tuple[list[Received], FrameParser]:
    parser = FrameParser(max_bytes)
    return parser.feed(data), parser


def test_the_handshake_of_the_rfc() -> None:
    """RFC 6455 section 1.3."""
    headers = {
        "Host": "x",
        "Upgrade": "WebSocket",
        "Connection": "keep-alive, Upgrade",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    assert accept_key(headers) == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    for name, value, complaint in [
        ("Host", "", "Not a WebSocket handshake."),
        ("Upgrade", "h2c", 'Can "Upgrade" only to "WebSocket".'),
        ("Connection", "close", '"Connection" must be "Upgrade".'),
        ("Sec-WebSocket-Key", "short", "Not a WebSocket handshake."),
        ("Sec-WebSocket-Key", "ключ", "Not a WebSocket handshake."),
        ("Sec-WebSocket-Key", "dGhl", "Not a WebSocket handshake."),
    ]:
        with pytest.raises(ValueError, match=complaint):
            accept_key({**headers, name: value})


def test_the_parser_knows_since_when_a_message_is_unfinished() -> None:
    parser = FrameParser(1000)
    assert parser.unfinished_since(1.0) is None
    parser.feed(frame(TEXT, b"ab")[:3])
    assert parser.unfinished_since(2.0) == 2.0
    parser.feed(frame(TEXT, b"ab")[3:5])
    assert parser.unfinished_since(3.0) == 2.0
    # The end of one message, and the start of another.
    parser.feed(frame(TEXT, b"ab")[5:] + frame(TEXT, b"ab")[:1])
    assert parser.unfinished_since(4.0) == 4.0
    parser.feed(frame(TEXT, b"ab")[1:])
    assert parser.unfinished_since(5.0) is None


def test_a_ping_within_a_message_doesnt_make_it_younger() -> None:
    parser = FrameParser(1000)
    parser.feed(frame(TEXT, b"a", fin=False))
    assert parser.unfinished_since(1.0) == 1.0
    assert [r.opcode for r in parser.feed(frame(PING))] == [PING]
    assert parser.unfinished_since(2.0) == 1.0
    parser.stop(UNFINISHED)
    assert parser.feed(frame(0, b"b")) == []
    assert parser.violation is UNFINISHED


def test_messages_and_control_frames() -> None:
    data = frame(TEXT, b"a") + frame(PING, b"p") + frame(BINARY, b"\xff") + frame(PONG)
    received, parser = parse(data + frame(CLOSE, b"\x03\xe8bye"))
    assert [(r.opcode, r.payload) for r in received] == [
        (TEXT, b"a"),
        (PING, b"p"),
        (BINARY, b"\xff"),
        (PONG, b""),
        (CLOSE, b"\x03\xe8bye"),
    ]
    assert parser.violation is None


def test_fragments_are_joined_and_control_frames_come_between() -> None:
    data = frame(TEXT, b"a", fin=False) + frame(PING) + frame(0, b"b", fin=False) + frame(0, b"c")
    received, _ = parse(data)
    assert [(r.opcode, r.payload) for r in received] == [(PING, b""), (TEXT, b"abc")]


@pytest.mark.parametrize("size", [0, 1, 125, 126, 999, 1000])
def test_all_lengths_up_to_the_limit(size: int) -> None:
    received, parser = parse(frame(TEXT, b"x" * size))
    assert received == [Received(TEXT, b"x" * size)]
    assert parser.violation is None


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x81\x01a", PROTOCOL_ERROR),
        (b"\xc1\x80" + MASK, PROTOCOL_ERROR),
        (frame(3), PROTOCOL_ERROR),
        (frame(0xB), PROTOCOL_ERROR),
        (frame(PING, fin=False), PROTOCOL_ERROR),
        (frame(PING, b"x" * 126), PROTOCOL_ERROR),
        (frame(0, b"x"), PROTOCOL_ERROR),
        (frame(TEXT, b"a", fin=False) + frame(TEXT, b"b"), PROTOCOL_ERROR),
        (frame(CLOSE, b"\x03"), PROTOCOL_ERROR),
        (frame(CLOSE, b"\x03\xed"), PROTOCOL_ERROR),
        (frame(CLOSE, b"\x03\xf7"), PROTOCOL_ERROR),
        (frame(CLOSE, b"\x13\x88"), PROTOCOL_ERROR),
        (frame(CLOSE, b"\x03\xe8\xff"), INVALID_PAYLOAD),
        (frame(TEXT, b"\xff"), INVALID_PAYLOAD),
        (frame(TEXT, b"\xed\xa0\x80"), INVALID_PAYLOAD),
        (frame(TEXT, b"x" * 1001), TOO_BIG),
        (frame(TEXT, b"x" * 600, fin=False) + frame(0, b"x" * 600), TOO_BIG),
        (b"\x81\xff" + (2**63 - 1).to_bytes(8, "big"), TOO_BIG),
        (b"\x81\xff" + (2**63).to_bytes(8, "big"), PROTOCOL_ERROR),
        (b"\x81\xfe\x00\x7d", PROTOCOL_ERROR),
        (b"\x81\xff" + (2**16 - 1).to_bytes(8, "big"), PROTOCOL_ERROR),
    ],
)
def test_violations(data: bytes, reason: object) -> None:
    _, parser = parse(data)
    assert parser.violation is reason


def test_what_came_before_a_violation_counts_and_nothing_after() -> None:
    received, parser = parse(frame(TEXT, b"a") + frame(3) + frame(TEXT, b"b"))
    assert received == [Received(TEXT, b"a")]
    assert parser.feed(frame(TEXT, b"c")) == []


def test_an_over_long_message_is_refused_before_it_has_come() -> None:
    parser = FrameParser(1000)
    parser.feed(frame(TEXT, b"x" * 5000)[:8])
    assert parser.violation is TOO_BIG


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (frame(TEXT, b"a\xff", fin=False), INVALID_PAYLOAD),
        (frame(TEXT, b"a\xff" + b"b" * 90)[:8], INVALID_PAYLOAD),
        (
            frame(TEXT, b"\xc3", fin=False) + frame(PING) + frame(0, b"x", fin=False),
            INVALID_PAYLOAD,
        ),
        (frame(TEXT, b"\xed\xa0\x80", fin=False), INVALID_PAYLOAD),
        (frame(0, b"x" * 90)[:2], PROTOCOL_ERROR),
        (frame(TEXT, b"a", fin=False) + frame(TEXT, b"b" * 90)[:2], PROTOCOL_ERROR),
    ],
)
def test_what_can_become_no_message_is_refused_before_it_is_whole(
    data: bytes, reason: object
) -> None:
    _, parser = parse(data)
    assert parser.violation is reason


def test_a_character_may_be_cut_between_frames_and_reads() -> None:
    data = frame(TEXT, b"\xc3", fin=False) + frame(PING) + frame(0, b"\xa9\xf0\x9f", fin=False)
    data += frame(0, b"\x98\x80") + frame(TEXT, b"next")
    parser = FrameParser(1000)
    received = [event for byte in data for event in parser.feed(bytes((byte,)))]
    assert [r.payload for r in received] == [b"", "é\U0001f600".encode(), b"next"]
    assert parser.violation is None


def test_endless_empty_fragments_are_refused_too() -> None:
    _, parser = parse(frame(TEXT, fin=False) + frame(0, fin=False) * 1001)
    assert parser.violation is TOO_BIG


def test_a_message_in_tiny_fragments_takes_no_more_memory_than_another() -> None:
    parser, fragment = FrameParser(16_384), frame(0, b"xy", fin=False)
    parser.feed(frame(TEXT, b"xy", fin=False))
    tracemalloc.start()
    try:
        for _ in range(8_000):
            parser.feed(fragment)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert parser.violation is None
    assert held < 2 * 16_384


@given(st.lists(st.binary(max_size=300), max_size=5), st.data())
def test_however_the_bytes_are_cut_the_messages_are_the_same(
    payloads: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(
        frame(BINARY, p, mask=data.draw(st.binary(min_size=4, max_size=4))) for p in payloads
    )
    parser, received, at = FrameParser(1000), [], 0
    while at < len(stream):
        step = data.draw(st.integers(1, 50))
        received += parser.feed(stream[at : at + step])
        at += step
    assert received == [Received(BINARY, p) for p in payloads]
