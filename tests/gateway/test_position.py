"""The position token: compact, and nothing is accepted that we can't have written."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.position import (
    MAX_CHARACTERS,
    MAX_SEQ,
    MAX_STREAMS,
    Position,
    decode,
    encode,
    entry,
    stream_hash,
)

HASHES = st.binary(min_size=5, max_size=5)
SEEN = st.dictionaries(HASHES, st.integers(0, MAX_SEQ), max_size=MAX_STREAMS)


def token(time_ms: int, seen: dict[bytes, int]) -> str:
    return encode(time_ms, [entry(hash_, seq) for hash_, seq in seen.items()])


@given(st.integers(0, 2**48 - 1), SEEN)
def test_what_was_encoded_is_decoded(time_ms: int, seen: dict[bytes, int]) -> None:
    assert decode(token(time_ms, seen)) == Position(time_ms, seen)


@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda b: base64.b64encode(b).decode()))
def test_anything_else_is_a_value_error_or_our_own_spelling(text: str) -> None:
    try:
        position = decode(text)
    except ValueError:
        return
    assert token(position.time_ms, dict(position.seen)) == text


@given(SEEN.filter(bool), st.data())
def test_a_token_that_was_tampered_with_never_raises_anything_but_value_error(
    seen: dict[bytes, int], data: st.DataObject
) -> None:
    text = token(1, seen)
    at = data.draw(st.integers(0, len(text) - 1))
    changed = text[:at] + data.draw(st.characters()) + text[at + 1 :]
    try:
        position = decode(changed)
    except ValueError:
        return
    assert token(position.time_ms, dict(position.seen)) == changed


def test_four_streams_take_about_sixty_characters() -> None:
    seen = {stream_hash(f"oregon-router-{n}", 1_735_689_600_000): 2_000_000 for n in range(4)}
    assert len(token(1_735_689_600_000, seen)) <= 60


def test_the_largest_token_is_as_long_as_promised() -> None:
    seen = {n.to_bytes(5, "big"): MAX_SEQ for n in range(1, MAX_STREAMS + 1)}
    assert len(token(2**48 - 1, seen)) == MAX_CHARACTERS


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"\x01\0\0\0\0\0",
        b"\x02" + bytes(6),
        b"\x01" + bytes(6) + b"abcd",
        b"\x01" + bytes(6) + b"abcde",
        b"\x01" + bytes(6) + b"abcde\x80",
        b"\x01" + bytes(6) + b"abcde\x80\x00",
        b"\x01" + bytes(6) + b"abcde" + b"\xff" * 10,
        b"\x01" + bytes(6) + b"bbbbb\x01aaaaa\x01",
        b"\x01" + bytes(6) + b"aaaaa\x01aaaaa\x01",
        b"\x01" + bytes(6) + b"".join(n.to_bytes(5, "big") + b"\x01" for n in range(1, 66)),
    ],
    ids=[
        "empty",
        "cut-off time",
        "other version",
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
    text = token(0, {b"\xff\xff\xff\xff\xff": 1})
    with pytest.raises(ValueError, match="position"):
        decode(text.replace("_", "/"))
    with pytest.raises(ValueError, match="position"):
        decode(text + "=")
