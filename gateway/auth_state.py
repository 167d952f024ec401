"""The auth state of a reader: who it is, if it has logged in, and its bad tokens. Pure.

On the Tornado engine each connection has one. On the native engine the data plane keeps it for the
control plane, as bytes that mean nothing to it (docs/design/0015).
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Final

import orjson

from newsfabric.tokens import Login


@dataclasses.dataclass(frozen=True, slots=True)
class AuthState:
    """``login`` is None as long as the reader is nobody in particular."""

    login: Login | None = None
    bad_tokens: int = 0


ANONYMOUS: Final = AuthState()
# Those of readers who speak often are read once.
_READ: Final = 4_096


def encode_auth(auth: AuthState) -> bytes:
    """``auth`` as bytes, for :func:`decode_auth` alone."""
    login, who = auth.login, None
    if login is not None:
        who = (login.user, login.topics, login.issued_ms, login.expires_ms, login.ends_ms)
    return orjson.dumps([auth.bad_tokens, who])


@functools.lru_cache(_READ)
def decode_auth(data: bytes) -> AuthState:
    """What :func:`encode_auth` made; ValueError for anything else. b"" is ANONYMOUS."""
    if not data:
        return ANONYMOUS
    try:
        bad_tokens, who = orjson.loads(data)
        return AuthState(None if who is None else _login(*who), int(bad_tokens))
    except (orjson.JSONDecodeError, TypeError, ValueError) as exc:
        raise ValueError("an auth state that we didn't make") from exc


def _login(user: str, topics: list[str], issued_ms: int, expires_ms: int, ends_ms: int) -> Login:
    return Login(
        user=str(user),
        topics=tuple(map(str, topics)),
        issued_ms=int(issued_ms),
        expires_ms=int(expires_ms),
        ends_ms=int(ends_ms),
    )
