"""The position token: compact, and only tokens that we can have written are accepted."""

from __future__ import annotations

import base64

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.wire.position import (
    MAX_CHARACTERS,
    MAX_LOGS,
    MAX_SEQ,
    UNKNOWN,
    Listed,
    Position,
    decode,
    encode,
    log_hash,
)
from newsfabric.store.logs import Log

HEAD = b"\x03" + bytes(6)
# 2025-01-01T00:00:00Z
NOW = 1_735_689_600_000
HOUR = 3_600_000

TIMES = st.integers(0, 2**48 - 1)
HASHES = st.binary(min_size=5, max_size=5)
LISTED = st.dictionaries(
    HASHES, st.builds(Listed, st.integers(0, MAX_SEQ), TIMES), max_size=MAX_LOGS
)
POSITIONS = st.builds(Position, TIMES, LISTED)


def spelt(packed: bytes) -> str:
    return base64.urlsafe_b64encode(packed).rstrip(b"=").decode()


@given(POSITIONS)
@example(Position(1_500, {b"aaaaa": Listed(7, 0)}))
@example(Position(1_500, {b"aaaaa": Listed(7, 501)}))
@example(Position(1_500, {b"aaaaa": Listed(7, 9_000)}))
def test_what_was_encoded_is_decoded_with_times_of_whole_seconds_and_never_a_later_one(
    position: Position,
) -> None:
    decoded = decode(encode(position))
    assert decoded.time_ms == position.time_ms
    marks = {hash_: listed.mark for hash_, listed in decoded.listed.items()}
    assert marks == {hash_: listed.mark for hash_, listed in position.listed.items()}
    for hash_, listed in position.listed.items():
        told_ms, whole_ms = decoded.listed[hash_].whole_ms, min(listed.whole_ms, position.time_ms)
        assert whole_ms - 1000 < told_ms <= whole_ms
        assert told_ms == 0 or (position.time_ms - told_ms) % 1000 == 0


@given(POSITIONS)
def test_a_position_that_was_decoded_is_encoded_as_it_was(position: Position) -> None:
    token = encode(position)
    assert encode(decode(token)) == token


def test_times_are_cut_to_whole_seconds_before_the_positions() -> None:
    listed = {
        b"aaaaa": Listed(1, NOW),
        b"bbbbb": Listed(2, NOW - 1),
        b"ccccc": Listed(3, NOW - 1000),
        b"ddddd": Listed(4, NOW + 5000),
    }
    decoded = decode(encode(Position(NOW, listed)))
    times = [one.whole_ms - NOW for one in decoded.listed.values()]
    assert times == [0, -1000, -1000, 0]


@given(
    st.text(max_size=200) | st.binary(max_size=200).map(spelt),
)
@example(spelt(HEAD))
@example(spelt(HEAD + b"aaaaa\x01\x00"))
def test_anything_else_is_a_value_error_or_our_own_spelling(text: str) -> None:
    try:
        position = decode(text)
    except ValueError:
        return
    assert position == UNKNOWN or encode(position) == text


@given(st.binary(min_size=6, max_size=60))
def test_bytes_behind_our_version_are_refused_or_our_own_spelling(rest: bytes) -> None:
    text = spelt(b"\x03" + rest)
    try:
        position = decode(text)
    except ValueError:
        return
    assert encode(position) == text


@given(POSITIONS, st.data())
def test_a_token_that_was_tampered_with_never_raises_anything_but_value_error(
    position: Position, data: st.DataObject
) -> None:
    text = encode(position)
    at = data.draw(st.integers(0, len(text) - 1))
    changed = text[:at] + data.draw(st.characters()) + text[at + 1 :]
    try:
        found = decode(changed)
    except ValueError:
        return
    assert found == UNKNOWN or encode(found) == changed


def test_four_logs_take_about_sixty_characters() -> None:
    logs = [Log("oregon", f"oregon-router-{n}", NOW) for n in range(4)]
    listed = {log_hash(log): Listed(2_000_000, NOW + 598_000) for log in logs}
    assert len(encode(Position(NOW + 599_000, listed))) == 58


def test_the_largest_token_is_as_long_as_promised() -> None:
    listed = {n.to_bytes(5, "big"): Listed(MAX_SEQ, 0) for n in range(1, MAX_LOGS + 1)}
    token = encode(Position(2**48 - 1, listed))
    assert len(token) == MAX_CHARACTERS
    assert decode(token).listed == {hash_: Listed(MAX_SEQ, 0) for hash_ in listed}


def test_a_log_is_its_region_its_router_and_when_it_began() -> None:
    log = Log("oregon", "router-1", 5)
    others = [
        log._replace(region="dublin"),
        log._replace(router="router-2"),
        log._replace(epoch=6),
        # The same letters in another place.
        Log("oregonr", "outer-1", 5),
    ]
    assert len({log_hash(one) for one in (log, *others)}) == 5
    assert log_hash(Log("oregon", "router-1", 5)) == log_hash(log)


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"\x10" + bytes(6),
        b"\x03\0\0\0\0\0",
        HEAD + b"abcd",
        HEAD + b"abcde",
        HEAD + b"abcde\x80",
        HEAD + b"abcde\x80\x00\x00",
        HEAD + b"abcde" + b"\xff" * 9 + b"\x01\x00",
        HEAD + b"abcde\x01",
        HEAD + b"abcde\x01\x80",
        HEAD + b"abcde\x01\x80\x00",
        HEAD + b"abcde\x01\x01",
        b"\x03" + b"\xff" * 6 + b"abcde\x01" + b"\xff" * 6 + b"\x01",
        HEAD + b"bbbbb\x01\x00aaaaa\x01\x00",
        HEAD + b"aaaaa\x01\x00aaaaa\x01\x00",
        HEAD + b"".join(n.to_bytes(5, "big") + b"\x01\x00" for n in range(1, 66)),
    ],
    ids=[
        "empty",
        "no version of ours",
        "cut-off time",
        "cut-off hash",
        "no number",
        "cut-off number",
        "padded number",
        "number too large",
        "no time of the log",
        "cut-off time of the log",
        "padded time of the log",
        "a time before the first",
        "a time too large",
        "out of order",
        "twice",
        "too many",
    ],
)
def test_malformed_tokens_are_refused(packed: bytes) -> None:
    with pytest.raises(ValueError, match="position"):
        decode(spelt(packed))


def test_a_token_that_is_too_long_is_refused_unread() -> None:
    with pytest.raises(ValueError, match="too long"):
        decode("A" * (MAX_CHARACTERS + 1))


def test_another_spelling_of_the_same_bytes_is_refused() -> None:
    text = encode(Position(0, {b"\xff\xff\xff\xff\xff": Listed(1, 0)}))
    assert "_" in text
    with pytest.raises(ValueError, match="position"):
        decode(text.replace("_", "/"))
    with pytest.raises(ValueError, match="position"):
        decode(text + "=")


@pytest.mark.parametrize("version", [0, 1, 2, 4, 15])
def test_a_token_of_another_version_says_nothing(version: int) -> None:
    assert decode(spelt(bytes((version,)) + b"whatever")) == UNKNOWN


def test_of_a_log_that_is_listed_all_numbers_up_to_the_mark_are_covered() -> None:
    # However long ago it began.
    for epoch in (NOW, NOW - 100 * HOUR):
        log = Log("oregon", "oregon-router-1", epoch)
        position = Position(NOW, {log_hash(log): Listed(7, NOW - 5_000)})
        assert [position.covers(log, seq) for seq in (1, 7, 8, 9)] == [True, True, False, False]


def test_a_log_that_isnt_listed_is_covered_if_it_began_six_hours_before() -> None:
    position = Position(NOW, {b"abcde": Listed(7, NOW)})
    old, young = (Log("oregon", "r", NOW - 6 * HOUR + more) for more in (0, 1))
    assert position.covers(old, 1)
    assert position.covers(old, 10**9)
    assert not position.covers(young, 1)
    # There is no number 0: a log without messages lacks nothing.
    assert position.covers(young, 0)


def test_a_position_that_says_nothing_covers_nothing() -> None:
    assert not UNKNOWN.covers(Log("oregon", "r", 0), 1)
    assert not UNKNOWN.covers(Log("oregon", "r", NOW), 1)


def test_a_read_begins_half_a_minute_before_what_the_position_lacks() -> None:
    log = Log("oregon", "oregon-router-1", NOW - HOUR)
    listed = Position(NOW, {log_hash(log): Listed(7, NOW - 5_000)})
    assert listed.since_ms(log) == NOW - 35_000
    # Of a log that isn't listed it lacks everything.
    assert Position(NOW, {}).since_ms(log) == NOW - HOUR - 30_000
