import contextlib
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from newsfabric.errors import Disconnected
from newsfabric.reader.frames import (
    MAX_LINE_BYTES,
    EventStream,
    LineSplitter,
    closed,
    sockjs_messages,
)

STREAM = 'id: p1\ndata: {"a":1}\n\n: heartbeat\n\ndata: {"b":\ndata: "ü"}\n\nretry: 5\n\n'.encode()
EVENTS = [(b'{"a":1}', "p1"), ('{"b":\n"ü"}'.encode(), "p1")]


def pieces(cuts: list[int], whole: bytes) -> list[bytes]:
    edges = [0, *sorted(cut % (len(whole) + 1) for cut in cuts), len(whole)]
    return [whole[a:b] for a, b in itertools.pairwise(edges)]


@given(st.lists(st.integers(0, 1000)))
def test_events_come_out_the_same_however_the_stream_is_cut(cuts: list[int]) -> None:
    stream = EventStream()
    assert [event for piece in pieces(cuts, STREAM) for event in stream.feed(piece)] == EVENTS


def test_events_come_out_the_same_byte_by_byte_and_with_crlf() -> None:
    stream = EventStream()
    whole = STREAM.replace(b"\n", b"\r\n")
    assert [event for n in range(len(whole)) for event in stream.feed(whole[n : n + 1])] == EVENTS


def test_a_line_without_end_is_given_up() -> None:
    lines = LineSplitter()
    assert lines.feed(b"x" * MAX_LINE_BYTES) == []
    with pytest.raises(Disconnected, match="line without end"):
        lines.feed(b"x")


def test_an_event_without_end_is_given_up() -> None:
    stream = EventStream(100)
    assert stream.feed(b"data: x\n" * 33) == []
    with pytest.raises(Disconnected, match="event without end"):
        stream.feed(b"data: x\n")


def test_how_long_an_event_may_be_is_counted_for_each_anew() -> None:
    stream = EventStream(100)
    one = b"data: " + b"x" * 90 + b"\n\n"
    assert [event.data for event in stream.feed(one * 3)] == [b"x" * 90] * 3


@pytest.mark.parametrize("frame", ["o", "h", "", "h" * 2048])
def test_frames_without_news(frame: str) -> None:
    assert sockjs_messages(frame) == []


def test_an_array_frame_holds_messages() -> None:
    assert sockjs_messages(b'a["{\\"type\\":1}","\\u2028"]') == ['{"type":1}', "\u2028"]


def test_a_close_frame_ends_the_connection() -> None:
    with pytest.raises(Disconnected) as caught:
        sockjs_messages('c[1012,"this box is being drained"]')
    assert (caught.value.code, caught.value.reason) == (1012, "this box is being drained")
    assert caught.value.reconnect


@given(st.binary() | st.text())
def test_no_frame_raises_anything_but_disconnected(frame: bytes | str) -> None:
    with contextlib.suppress(Disconnected):
        assert isinstance(sockjs_messages(frame), list)


@pytest.mark.parametrize(
    ("code", "again"),
    [(1000, False), (1006, True), (1012, True), (4001, False), (4101, True), (4202, True)],
)
def test_the_range_of_a_code_says_whether_to_come_again(code: int, again: bool) -> None:
    assert closed(code, "").reconnect is again
