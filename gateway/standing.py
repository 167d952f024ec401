"""Where a reader stands with its gateway: who it is, if it has said so, and its bad tokens. Pure.

On the Tornado engine each connection has one. On the native engine the data plane keeps it for the
control plane, as bytes that mean nothing to it (a *badge*), so a control plane that comes
anew knows every reader.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Final

import orjson

from newsfabric.tokens import Login


@dataclasses.dataclass(frozen=True, slots=True)
class Standing:
    """``login`` is None as long as the reader is nobody in particular."""

    login: Login | None = None
    bad_tokens: int = 0


STRANGER: Final = Standing()
# The longest that the data plane takes.
MAX_BADGE: Final = 1024
# Badges of readers who speak often are read once.
_READ: Final = 4_096


def encode_badge(standing: Standing) -> bytes:
    """``standing`` as bytes, for :func:`decode_badge` alone."""
    login, who = standing.login, None
    if login is not None:
        who = (login.user, login.topics, login.issued_ms, login.expires_ms, login.ends_ms)
    return orjson.dumps([standing.bad_tokens, who])


@functools.lru_cache(_READ)
def decode_badge(badge: bytes) -> Standing:
    """What :func:`encode_badge` made; ValueError for anything else. Nothing is a stranger's."""
    if not badge:
        return STRANGER
    try:
        bad_tokens, who = orjson.loads(badge)
        login = None if who is None else _login(*who)
        return Standing(login, int(bad_tokens))
    except (orjson.JSONDecodeError, TypeError, ValueError) as exc:
        raise ValueError("a badge that we didn't make") from exc


def _login(user: str, topics: list[str], issued_ms: int, expires_ms: int, ends_ms: int) -> Login:
    return Login(
        user=str(user),
        topics=tuple(map(str, topics)),
        issued_ms=int(issued_ms),
        expires_ms=int(expires_ms),
        ends_ms=int(ends_ms),
    )
