"""Frames: the same bytes give the same messages, however they are cut; pika is the other side."""

from __future__ import annotations

import struct
from typing import Any

import pika.frame
import pika.spec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from newsfabric.amqp.fields import MAX_TABLE_BYTES, OVERSIZE
from newsfabric.amqp.message import Message, Properties, Undecodable
from newsfabric.amqp.properties import decode_properties, encode_properties
from newsfabric.amqp.wire import (
    MAX_BODY,
    MAX_HEADER,
    MAX_UNFINISHED,
    FrameReader,
    ReturnReason,
    WireError,
    encode_ack,
    encode_publish,
    encode_reject,
)

FRAME_MAX = 4096

MESSAGE = Message(
    "news.breaking",
    b'{"headline":"x"}',
    Properties(
        content_type="application/json",
        headers={"key": "story", "version": 3},
        delivery_mode=2,
        correlation_id="c",
        reply_to="r",
        expiration="1000",
        message_id="m",
        timestamp=1_700_000_000,
        type="t",
        app_id="a",
    ),
)


class RecordingSink:
    """A sink that records all calls."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    def on_deliver(
        self, channel: int, consumer: str, tag: int, redelivered: bool, message: Message
    ) -> None:
        self.events.append(("deliver", channel, consumer, tag, redelivered, message))

    def on_return(self, channel: int, reason: ReturnReason, message: Message) -> None:
        self.events.append(("return", channel, reason, message))

    def on_confirm(self, channel: int, tag: int, multiple: bool, taken: bool) -> None:
        self.events.append(("confirm", channel, tag, multiple, taken))

    def on_frame(self, frame: bytes) -> None:
        self.events.append(("frame", frame))


def content(channel: int, method: Any, message: Message, frame_max: int = FRAME_MAX) -> bytes:
    """Return a broker's bytes: pika's frame of ``method``, then our header and body."""
    publish = encode_publish(channel, "", message, mandatory=False, frame_max=frame_max)
    first = 8 + struct.unpack_from(">I", publish, 3)[0]
    frame: bytes = pika.frame.Method(channel, method).marshal()
    return frame + publish[first:]


def deliver(tag: int, message: Message = MESSAGE, channel: int = 1, again: bool = False) -> bytes:
    method = pika.spec.Basic.Deliver("consumer", tag, again, "postoffice", message.topic)
    return content(channel, method, message)


STREAM = b"".join(
    [
        deliver(1),
        pika.frame.Method(1, pika.spec.Basic.Ack(7, True)).marshal(),
        pika.frame.Heartbeat().marshal(),
        content(2, pika.spec.Basic.Return(312, "NO_ROUTE", "news", "news.breaking"), MESSAGE),
        pika.frame.Method(2, pika.spec.Basic.Nack(8, False)).marshal(),
        deliver(2, Message("empty", b""), again=True),
        deliver(3, Message("large", b"0123456789" * 1000), channel=3),
    ]
)
EVENTS = [
    ("deliver", 1, "consumer", 1, False, MESSAGE),
    ("confirm", 1, 7, True, True),
    ("frame", pika.frame.Heartbeat().marshal()),
    ("return", 2, ReturnReason(312, "NO_ROUTE", "news"), MESSAGE),
    ("confirm", 2, 8, False, False),
    ("deliver", 1, "consumer", 2, True, Message("empty", b"")),
    ("deliver", 3, "consumer", 3, False, Message("large", b"0123456789" * 1000)),
]


@pytest.mark.parametrize("step", [1, 2, 3, 7, 8, 9, 100, 4096, len(STREAM)])
def test_the_same_comes_out_however_the_stream_is_cut(step: int) -> None:
    seen = RecordingSink()
    reader = FrameReader(seen, FRAME_MAX)
    for at in range(0, len(STREAM), step):
        reader.feed(STREAM[at : at + step])
    assert seen.events == EVENTS


def test_messages_on_two_channels_may_interleave() -> None:
    one, two = deliver(1, channel=1), deliver(1, Message("other", b"body"), channel=2)
    seen = RecordingSink()
    first = 8 + struct.unpack_from(">I", one, 3)[0]
    FrameReader(seen, FRAME_MAX).feed(one[:first] + two + one[first:])
    assert [event[-1].topic for event in seen.events] == ["other", "news.breaking"]


def frame(kind: int, payload: bytes, channel: int = 1) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def padded(size: int, message_id: bytes = b"m1") -> bytes:
    """Return a content header of a message without a body whose header table has ``size`` bytes."""
    flags, table = 1 << 13 | 1 << 7, b"\x01pS" + struct.pack(">I", size - 7) + b"x" * (size - 7)
    properties = struct.pack(">HI", flags, len(table)) + table + bytes((len(message_id),))
    return struct.pack(">HHQ", 60, 0, 0) + properties + message_id


def first_of(raw: bytes) -> bytes:
    return raw[: 8 + struct.unpack_from(">I", raw, 3)[0]]


METHOD = first_of(deliver(1))


@pytest.mark.parametrize("step", [1000, 4096, MAX_HEADER // 2, 2 * MAX_HEADER])
@pytest.mark.parametrize("size", [FRAME_MAX + 300, MAX_HEADER - 100])
def test_a_header_larger_than_was_agreed_is_read(size: int, step: int) -> None:
    seen = RecordingSink()
    reader = FrameReader(seen, FRAME_MAX)
    stream = METHOD + frame(2, padded(size)) + deliver(2)
    for at in range(0, len(stream), step):
        reader.feed(stream[at : at + step])
    large, after = (event[-1] for event in seen.events)
    assert large.properties.message_id == "m1"
    assert set(large.properties.headers) == {"p" if size < MAX_TABLE_BYTES else OVERSIZE}
    assert after == MESSAGE


def test_of_headers_that_are_not_looked_into_the_beginning_is_kept() -> None:
    seen = RecordingSink()
    FrameReader(seen, FRAME_MAX).feed(METHOD + frame(2, padded(100_000)))
    kept = seen.events[0][-1].properties.headers[OVERSIZE]
    assert isinstance(kept, Undecodable)
    assert len(kept) == MAX_TABLE_BYTES


@pytest.mark.parametrize("frame_max", [FRAME_MAX, 131_072])
def test_of_a_body_that_nobody_takes_the_beginning_is_kept(frame_max: int) -> None:
    seen = RecordingSink()
    body = b"0123456789" * 200_000
    method = pika.spec.Basic.Deliver("consumer", 1, False, "postoffice", "large")
    FrameReader(seen, frame_max).feed(content(1, method, Message("large", body), frame_max))
    assert seen.events[0][-1] == Message("large", body[:MAX_BODY])


@pytest.mark.parametrize(
    "bad",
    [
        deliver(1)[:-1] + b"\0",
        struct.pack(">BHI", 1, 1, FRAME_MAX + 1) + b"x",
        struct.pack(">BHI", 3, 1, FRAME_MAX + 1) + b"x",
        struct.pack(">BHI", 8, 0, 2**32 - 1) + b"x",
        METHOD + struct.pack(">BHI", 2, 1, MAX_HEADER + 1) + b"x",
        # Whole frames that are too large, received at once.
        frame(1, b"x" * (FRAME_MAX + 1)),
        # A body or a header with no method before it.
        frame(3, b"x"),
        frame(2, struct.pack(">HHQH", 60, 0, 1, 0)),
        # A longer body than the header announced.
        deliver(1, Message("a", b"")) + frame(3, b"x"),
        # A second method or header before the first message has ended.
        METHOD + METHOD,
        METHOD + 2 * frame(2, struct.pack(">HHQH", 60, 0, 1, 0)),
        b"".join(first_of(deliver(1, channel=n)) for n in range(1, MAX_UNFINISHED + 2)),
        # Truncated inside.
        frame(1, struct.pack(">HH", 60, 60)),
        frame(1, struct.pack(">HH", 60, 60) + b"\x05tag"),
        frame(1, struct.pack(">HH", 60, 50) + b"\0"),
        frame(1, struct.pack(">HH", 60, 80) + b"\0"),
        METHOD + frame(2, b"\0\x3c"),
    ],
)
def test_what_is_no_amqp_raises(bad: bytes) -> None:
    with pytest.raises(WireError):
        FrameReader(RecordingSink(), FRAME_MAX).feed(bad)


contents = st.binary(max_size=60).map(lambda raw: frame(2, struct.pack(">HHQ", 60, 0, 3) + raw))
headers_of_two = st.sampled_from([b"", b"\1xV", b"\1xS\xff\xff\xff\xff", b"\xffx"]).map(
    lambda raw: frame(
        2, struct.pack(">HHQHI", 60, 0, 2, 1 << 13, len(raw)) + raw if raw else b"\0" * 14
    )
)
anything = st.lists(
    st.one_of(
        st.sampled_from([METHOD, deliver(1), STREAM, frame(3, b"x"), frame(3, b"xyz")]),
        st.builds(frame, st.sampled_from([1, 2, 3, 4, 8, 65, 206]), st.binary(max_size=40)),
        st.builds(
            lambda method, raw: frame(1, struct.pack(">HH", 60, method) + raw),
            st.sampled_from([50, 60, 80, 120]),
            st.binary(max_size=40),
        ),
        contents,
        headers_of_two,
        st.binary(max_size=30),
    ),
    max_size=6,
).map(b"".join)


def read(pieces: list[bytes]) -> tuple[list[Any], bool]:
    """Return all events, and whether the reader accepted all bytes."""
    seen = RecordingSink()
    reader = FrameReader(seen, FRAME_MAX)
    try:
        for piece in pieces:
            reader.feed(piece)
    except WireError:
        return seen.events, False
    return seen.events, True


@given(anything, st.lists(st.integers(0, 3000), max_size=20))
def test_any_bytes_cut_anywhere_give_what_they_give_whole(raw: bytes, cuts: list[int]) -> None:
    at = sorted({cut % (len(raw) + 1) for cut in cuts})
    pieces = [raw[one:two] for one, two in zip([0, *at], [*at, len(raw)], strict=True)]
    assert read(pieces) == read([raw])


@given(st.binary(max_size=200))
def test_any_properties_decode_and_can_be_sent_on(raw: bytes) -> None:
    encode_properties(decode_properties(raw))


@given(st.integers(0, 2**16 - 1), st.binary(max_size=60))
def test_any_flags_decode_and_can_be_sent_on(flags: int, raw: bytes) -> None:
    encode_properties(decode_properties(struct.pack(">H", flags) + raw))


def test_properties_that_can_not_be_followed_are_one_undecodable_header() -> None:
    raw = struct.pack(">H", 1 << 6) + b"\0"
    found = decode_properties(raw)
    assert found == Properties(headers={OVERSIZE: raw})
    assert isinstance(found.headers[OVERSIZE], Undecodable)


def test_properties_come_back_as_they_were() -> None:
    assert decode_properties(encode_properties(MESSAGE.properties)) == MESSAGE.properties


def test_properties_that_the_fabric_has_no_use_for_are_stepped_over() -> None:
    theirs = pika.spec.BasicProperties(
        content_encoding="gzip", priority=5, user_id="guest", cluster_id="c", app_id="a", type="t"
    )
    raw = b"".join(theirs.encode())
    assert decode_properties(raw) == Properties(app_id="a", type="t", user_id="guest")


def frames_of(raw: bytes) -> list[Any]:
    frames = []
    while raw:
        used, frame = pika.frame.decode_frame(raw)
        frames.append(frame)
        raw = raw[used:]
    return frames


def test_pika_reads_what_is_published() -> None:
    method, header, body = frames_of(
        encode_publish(5, "news", MESSAGE, mandatory=True, frame_max=FRAME_MAX)
    )
    assert (method.channel_number, header.channel_number, body.channel_number) == (5, 5, 5)
    assert method.method.exchange == "news"
    assert method.method.routing_key == "news.breaking"
    assert method.method.mandatory is True
    assert header.body_size == len(MESSAGE.body)
    assert header.properties.headers == {"key": "story", "version": 3}
    assert header.properties.timestamp == 1_700_000_000
    assert body.fragment == MESSAGE.body


@pytest.mark.parametrize("size", [0, 1, FRAME_MAX - 8, FRAME_MAX - 7, 3 * FRAME_MAX])
def test_a_body_is_cut_into_frames_that_were_agreed(size: int) -> None:
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    raw = encode_publish(1, "", Message("k", body), mandatory=False, frame_max=FRAME_MAX)
    frames = frames_of(raw)[2:]
    assert b"".join(frame.fragment for frame in frames) == body
    assert all(len(frame.fragment) + 8 <= FRAME_MAX for frame in frames)


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        (Message("k" * 256, b""), "256 bytes"),
        (Message("k", b"", Properties(message_id="m" * 300)), "300 bytes"),
        (Message("k", b"", Properties(timestamp=-1)), "64 bits"),
        (Message("k", b"", Properties(delivery_mode=256)), "octet"),
        (Message("k", b"", Properties(headers={"h": "x" * FRAME_MAX})), "properties of"),
        (Message("k\ud800", b""), "not text"),
    ],
)
def test_a_message_with_no_amqp_form_is_refused(message: Message, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        encode_publish(1, "", message, mandatory=False, frame_max=FRAME_MAX)


@pytest.mark.parametrize("multiple", [False, True])
def test_acks_and_rejects_are_pikas(multiple: bool) -> None:
    ack = pika.frame.Method(3, pika.spec.Basic.Ack(9, multiple)).marshal()
    reject = pika.frame.Method(3, pika.spec.Basic.Reject(9, multiple)).marshal()
    assert encode_ack(3, 9, multiple=multiple) == ack
    assert encode_reject(3, 9, requeue=multiple) == reject
