"""What a control plane leaves for the one that comes after it."""

from __future__ import annotations

import time

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.native.marks import Mark, Marks, decode_marks, encode_marks, resume
from gateway.position import decode
from gateway.streams import Lost, Streams

NOW_MS = int(time.time() * 1000)


def streams(*seqs: int) -> Streams:
    known = Streams(0.0)
    for seq in seqs:
        known.saw("oregon-router-1", 7, seq, routed_ms=NOW_MS, now=NOW_MS / 1000)
    return known


def test_marks_are_read_as_they_were_written() -> None:
    blob = encode_marks(streams(1, 2, 5), NOW_MS)
    assert decode_marks(blob) == Marks(NOW_MS, 0, 0, (Mark("oregon-router-1", 7, 2, NOW_MS),))


def test_a_stream_goes_on_where_it_was() -> None:
    later = Streams(0.0)
    resume(later, decode_marks(encode_marks(streams(1, 2, 5), NOW_MS)))
    assert later.mark("oregon-router-1", 7) == 2
    assert not later.seen("oregon-router-1", 7, 3)
    later.saw("oregon-router-1", 7, 4, routed_ms=NOW_MS, now=NOW_MS / 1000)
    assert later.missing() == {("oregon-router-1", 7): [(3, 3)]}


def test_what_was_given_up_is_known_to_the_next_one() -> None:
    before, later = streams(1, 2, 5), Streams(0.0)
    before.give_up(("oregon-router-1", 7), 3, 4, at_ms=NOW_MS)
    resume(later, decode_marks(encode_marks(before, NOW_MS)))
    stream = later.find(("oregon-router-1", 7))
    assert stream is not None
    assert (stream.mark, stream.lost) == (5, Lost(((3, 4),), NOW_MS, NOW_MS))
    assert later.lacks(decode(later.position(NOW_MS / 1000)))


@pytest.mark.parametrize(
    "lost",
    [7, [], [[], 1, 1], [[[2, 1]], 1, 1], [[[1]], 1, 1], [[[0, 1]], 1, 1], [[[1, 2]], -1, 1]],
)
def test_what_cant_have_been_given_up_is_refused(lost: object) -> None:
    with pytest.raises(ValueError, match=r"lost|marks|unpack"):
        decode_marks(orjson.dumps([3, 1, 1, 1, [["oregon-router-1", 7, 5, 1, lost]]]))


@pytest.mark.parametrize(
    "blob",
    [
        b"", b"{", b"7", b"[]", b"[3]", b"[2,0,0,[]]", b"[2,0,0,0,[]]", b"[3,-1,0,0,[]]",
        b"[3,0,-1,0,[]]", b"[3,0,0,-1,[]]", b"[3,0,0,[]]", b"[3,0,0,0,7]", b"[3,0,0,0,[7]]",
        b'[3,0,0,0,[["r",1,2]]]', b'[3,0,0,0,[["r",1,2,-3]]]', b'[3,0,0,0,[["r",true,2,3]]]',
        b'[3,0,0,0,[[1,1,2,3]]]', b'[3,0,0,0,[["r","1",2,3]]]', b"\xff", b'[3,0,0,0,{"a":1}]',
    ],
)  # fmt: skip
def test_what_isnt_marks_is_refused(blob: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - any one is a refusal
        decode_marks(blob)


@given(st.binary(max_size=100))
def test_any_bytes_are_marks_or_refused(blob: bytes) -> None:
    try:
        marks = decode_marks(blob)
    except ValueError:
        return
    assert marks.at_ms >= 0
