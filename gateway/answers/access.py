"""Logins of readers, and the topics that a login may read. Pure.

On the Tornado engine each connection has an :class:`AuthState`. On the native engine the data plane
keeps it for the control plane, as opaque bytes (docs/design/0015).

Access to a verb's topic is checked when the verb's turn comes, on each engine and transport. A
malformed topic has no policy, and is refused before.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Final

import orjson

from gateway.wire.protocol import VerbRefusal
from newsfabric.closing import ErrorCode
from newsfabric.tokens import Login
from newsfabric.topics import TopicPolicy, matches, owner_of


@dataclasses.dataclass(frozen=True, slots=True)
class AuthState:
    """A reader's login (None while the reader is anonymous), and how many bad tokens it sent."""

    login: Login | None = None
    bad_tokens: int = 0


ANONYMOUS: Final = AuthState()
# Decoded states in the cache: the states of busy readers aren't decoded at each verb.
_READ: Final = 4_096


def encode_auth(auth: AuthState) -> bytes:
    """Return ``auth`` as bytes, which only :func:`decode_auth` reads."""
    login, who = auth.login, None
    if login is not None:
        who = (login.user, login.topics, login.issued_ms, login.expires_ms, login.ends_ms)
    return orjson.dumps([auth.bad_tokens, who])


@functools.lru_cache(_READ)
def decode_auth(data: bytes) -> AuthState:
    """Return the state that :func:`encode_auth` encoded, ANONYMOUS for b""; else ValueError."""
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


def may_read(topic: str, policy: TopicPolicy, login: Login | None) -> bool:
    """Return whether a reader with ``login`` may read ``topic``, which has this ``policy``.

    The patterns in a token never grant access to another user's topic.
    """
    if policy.access == "public":
        return True
    if login is None:
        return False
    if policy.access == "owner":
        return owner_of(topic) == login.user
    return policy.access == "registered" or any(matches(one, topic) for one in login.topics)


def refusal(topic: str, policy: TopicPolicy, login: Login | None) -> VerbRefusal | None:
    """Return the refusal to a reader with ``login``; None if the reader may read ``topic``."""
    if may_read(topic, policy, login):
        return None
    if login is None:
        code, reason = ErrorCode.UNAUTHORIZED, "log in to read this topic"
    else:
        code, reason = ErrorCode.PERMISSION_DENIED, "this topic isn't yours to read"
    return VerbRefusal(code=code, reason=reason, topic=topic)
