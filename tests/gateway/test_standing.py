"""Badges: what the data plane keeps of a reader for its control plane."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.standing import MAX_BADGE, STRANGER, Standing, decode_badge, encode_badge
from newsfabric.tokens import MAX_PATTERN_BYTES, MAX_PATTERNS, Login

logins = st.builds(
    Login,
    user=st.text("abc42_-", min_size=1, max_size=64),
    topics=st.lists(st.text("ab.*#", min_size=1, max_size=20), max_size=32).map(tuple),
    issued_ms=st.integers(0, 2**53),
    expires_ms=st.integers(0, 2**53),
    ends_ms=st.integers(0, 2**53),
)


@given(st.builds(Standing, st.none() | logins, st.integers(0, 9)))
def test_a_badge_says_what_was_put_into_it(standing: Standing) -> None:
    assert decode_badge(encode_badge(standing)) == standing


def test_nobody_in_particular_has_none() -> None:
    assert decode_badge(b"") == STRANGER


def test_the_longest_fits() -> None:
    most = MAX_PATTERN_BYTES // MAX_PATTERNS
    login = Login(
        user="x" * 64,
        topics=("x" * most,) * MAX_PATTERNS,
        issued_ms=2**53,
        expires_ms=2**53,
        ends_ms=2**53,
    )
    assert len(encode_badge(Standing(login, 9))) <= MAX_BADGE


@pytest.mark.parametrize(
    "badge", [b"x", b"[]", b"7", b"[1,2]", b"[1,[1,2]]", b"\xff", b'["a",null]']
)
def test_what_we_didnt_make_is_a_value_error(badge: bytes) -> None:
    with pytest.raises(ValueError, match="badge"):
        decode_badge(badge)
