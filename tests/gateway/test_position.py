"""The position token: compact, and nothing is accepted that we can't have written."""

from __future__ import annotations

import base64
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.position import (
    MAX_CHARACTERS,
    MAX_SEQ,
    MAX_STREAMS,
    UNKNOWN,
    Copy,
    Position,
    decode,
    encode,
    entry,
    stream_hash,
)

HEAD = b"\x02" + bytes(7)
HASHES = st.binary(min_size=5, max_size=5)
SEEN = st.dictionaries(HASHES, st.integers(0, MAX_SEQ), max_size=MAX_STREAMS)


TIMES = st.integers(0, 2**48 - 1)


def token(time_ms: int, since_ms: int, seen: Mapping[bytes, int]) -> str:
    return encode(time_ms, since_ms, [entry(hash_, seq) for hash_, seq in seen.items()])


@given(TIMES, TIMES, SEEN)
def test_what_was_encoded_is_decoded(time_ms: int, since_ms: int, seen: dict[bytes, int]) -> None:
    decoded = decode(token(time_ms, since_ms, seen))
    assert decoded == Position(min(time_ms, since_ms), since_ms, seen)


@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda b: base64.b64encode(b).decode()))
def test_anything_else_is_a_value_error_or_our_own_spelling(text: str) -> None:
    try:
        position = decode(text)
    except ValueError:
        return
    assert position == UNKNOWN or token(position.time_ms, position.since_ms, position.seen) == text


@given(SEEN.filter(bool), st.data())
def test_a_token_that_was_tampered_with_never_raises_anything_but_value_error(
    seen: dict[bytes, int], data: st.DataObject
) -> None:
    text = token(1, 1000, seen)
    at = data.draw(st.integers(0, len(text) - 1))
    changed = text[:at] + data.draw(st.characters()) + text[at + 1 :]
    try:
        position = decode(changed)
    except ValueError:
        return
    again = token(position.time_ms, position.since_ms, position.seen)
    assert position == UNKNOWN or again == changed


def test_four_streams_take_about_sixty_characters() -> None:
    seen = {stream_hash(f"oregon-router-{n}", 1_735_689_600_000): 2_000_000 for n in range(4)}
    assert len(token(1_735_689_600_000, 1_735_690_199_000, seen)) <= 62


def test_the_largest_token_is_as_long_as_promised() -> None:
    seen = {n.to_bytes(5, "big"): MAX_SEQ for n in range(1, MAX_STREAMS + 1)}
    assert len(token(0, 2**48 - 1, seen)) == MAX_CHARACTERS


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"\x10" + bytes(7),
        b"\x02\0\0\0\0\0",
        b"\x02" + bytes(6),
        b"\x02" + bytes(6) + b"\x80",
        b"\x02" + bytes(6) + b"\x80\x00",
        b"\x02" + b"\xff" * 6 + b"\x01",
        HEAD + b"abcd",
        HEAD + b"abcde",
        HEAD + b"abcde\x80",
        HEAD + b"abcde\x80\x00",
        HEAD + b"abcde" + b"\xff" * 10,
        HEAD + b"bbbbb\x01aaaaa\x01",
        HEAD + b"aaaaa\x01aaaaa\x01",
        HEAD + b"".join(n.to_bytes(5, "big") + b"\x01" for n in range(1, 66)),
    ],
    ids=[
        "empty",
        "no version of ours",
        "cut-off time",
        "no since",
        "cut-off since",
        "padded since",
        "a time after the last",
        "cut-off hash",
        "no seq",
        "cut-off seq",
        "padded seq",
        "seq too large",
        "out of order",
        "twice",
        "too many",
    ],
)
def test_malformed_tokens_are_refused(packed: bytes) -> None:
    with pytest.raises(ValueError, match="position"):
        decode(base64.urlsafe_b64encode(packed).rstrip(b"=").decode())


def test_another_spelling_of_the_same_bytes_is_refused() -> None:
    text = token(0, 0, {b"\xff\xff\xff\xff\xff": 1})
    with pytest.raises(ValueError, match="position"):
        decode(text.replace("_", "/"))
    with pytest.raises(ValueError, match="position"):
        decode(text + "=")


@pytest.mark.parametrize("version", [0, 1, 3, 15])
def test_a_token_of_another_version_says_nothing(version: int) -> None:
    packed = bytes((version,)) + b"whatever"
    assert decode(base64.urlsafe_b64encode(packed).rstrip(b"=").decode()) == UNKNOWN


def test_a_message_is_covered_when_one_of_its_copies_is() -> None:
    position = Position(1_000, 2_000, {b"aaaaa": 7})
    listed, beyond = Copy(b"aaaaa", 7, 5_000), Copy(b"aaaaa", 8, 10)
    early, late = Copy(b"bbbbb", 9, 1_000), Copy(b"bbbbb", 1, 1_001)
    assert position.covers([listed])
    assert position.covers([early])
    assert not position.covers([beyond])
    assert not position.covers([late])
    assert position.covers([beyond, late, early])
    assert not position.covers([])
