"""Auth states: the bytes about a reader that the data plane keeps for its control plane."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.answers.access import ANONYMOUS, AuthState, decode_auth, encode_auth
from newsfabric.tokens import MAX_PATTERN_BYTES, MAX_PATTERNS, Login

# The most bytes that the data plane accepts.
MOST_BYTES = 1024

logins = st.builds(
    Login,
    user=st.text("abc42_-", min_size=1, max_size=64),
    topics=st.lists(st.text("ab.*#", min_size=1, max_size=20), max_size=32).map(tuple),
    issued_ms=st.integers(0, 2**53),
    expires_ms=st.integers(0, 2**53),
    ends_ms=st.integers(0, 2**53),
)


@given(st.builds(AuthState, st.none() | logins, st.integers(0, 9)))
def test_an_auth_state_says_what_was_put_into_it(auth: AuthState) -> None:
    assert decode_auth(encode_auth(auth)) == auth


def test_nobody_in_particular_has_none() -> None:
    assert decode_auth(b"") == ANONYMOUS


def test_the_longest_fits() -> None:
    most = MAX_PATTERN_BYTES // MAX_PATTERNS
    login = Login(
        user="x" * 64,
        topics=("x" * most,) * MAX_PATTERNS,
        issued_ms=2**53,
        expires_ms=2**53,
        ends_ms=2**53,
    )
    assert len(encode_auth(AuthState(login, 9))) <= MOST_BYTES


@pytest.mark.parametrize(
    "data", [b"x", b"[]", b"7", b"[1,2]", b"[1,[1,2]]", b"\xff", b'["a",null]']
)
def test_what_we_didnt_make_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match="auth state"):
        decode_auth(data)
