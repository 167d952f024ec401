"""Events, from a data plane that may send anything."""

from __future__ import annotations

import itertools
import struct

import pytest
from fake_dataplane import (
    READER,
    attached,
    counters,
    event,
    handover,
    published,
    refused,
    verbs,
)
from hypothesis import given
from hypothesis import strategies as st

from gateway.native.events import (
    AttachedEvent,
    CountersEvent,
    Decoder,
    Event,
    FullEvent,
    HandoverEvent,
    PublishedEvent,
    RefusedEvent,
    VerbsEvent,
)
from gateway.native.wire import WireError

ALL: list[tuple[bytes, Event]] = [
    (
        attached(pid=7, attachment=2, readers=3, port=8080, blob=b"marks"),
        AttachedEvent(pid=7, attachment=2, readers=3, ports=[8080], blob=b"marks"),
    ),
    (verbs(b"{}", b""), VerbsEvent([(READER, b"", b"{}"), (READER, b"", b"")])),
    (verbs(b"{}", auth=b"me"), VerbsEvent([(READER, b"me", b"{}")])),
    (verbs(b"{}", connections=2 * READER), VerbsEvent([(2 * READER, b"", b"{}")])),
    (verbs(), VerbsEvent([])),
    (published(2**40), PublishedEvent(2**40)),
    (handover("2001:db8::1"), HandoverEvent("2001:db8::1")),
    (event(139, b"\x09192.0.2.1"), FullEvent("192.0.2.1")),
    (
        counters(readers__websocket=3, accepts=9),
        CountersEvent({"readers.websocket": 3, "accepts": 9}),
    ),
    (refused("bad magic"), RefusedEvent("bad magic")),
]


@pytest.mark.parametrize(("data", "expected"), ALL)
def test_each_event_is_read(data: bytes, expected: Event) -> None:
    assert list(Decoder().feed(data)) == [expected]


def test_bytes_may_come_one_at_a_time() -> None:
    decoder, found = Decoder(), []
    for data, _ in ALL:
        for byte in data:
            found += list(decoder.feed(bytes((byte,))))
    assert found == [expected for _, expected in ALL]


@given(st.lists(st.integers(0, 200), max_size=8))
def test_bytes_may_come_in_any_pieces(cuts: list[int]) -> None:
    everything = b"".join(data for data, _ in ALL)
    edges = sorted({0, len(everything), *(cut for cut in cuts if cut < len(everything))})
    decoder, found = Decoder(), []
    for start, end in itertools.pairwise(edges):
        found += list(decoder.feed(everything[start:end]))
    assert found == [expected for _, expected in ALL]


@pytest.mark.parametrize(("data", "expected"), ALL)
def test_a_body_cut_short_or_too_long_is_refused(data: bytes, expected: Event) -> None:
    kind, body = data[4], data[5:]
    for end in range(len(body)):
        with pytest.raises(WireError):
            list(Decoder().feed(event(kind, body[:end])))
    with pytest.raises(WireError):
        list(Decoder().feed(event(kind, body + b"x")))


@pytest.mark.parametrize(
    "data",
    [
        bytes(4),
        struct.pack("<I", (16 << 20) + 1),
        event(128, b""),
        event(1, b"nfdp\x01\0"),
        event(129, struct.pack("<H", 6) + bytes(19)),
        event(130, struct.pack("<I", 2**32 - 1)),
        event(130, struct.pack("<IH", 1, 2**16 - 1) + READER),
        verbs(b"{}", connections=b""),
        event(133, b"\x01\xff"),
    ],
    ids=[
        "empty",
        "endless",
        "unknown",
        "a command",
        "another version",
        "count",
        "connections",
        "nobody",
        "not UTF-8",
    ],
)
def test_what_is_not_the_protocol_is_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        list(Decoder().feed(data))


def test_what_was_whole_before_the_garbage_is_still_passed_on() -> None:
    events = Decoder().feed(published(1) + bytes(4))
    assert next(events) == PublishedEvent(1)
    with pytest.raises(WireError):
        next(events)


@given(st.binary(max_size=200))
def test_any_bytes_are_events_or_an_error(data: bytes) -> None:
    try:
        found = list(Decoder().feed(data))
    except WireError:
        return
    assert len(found) <= len(data) // 5
