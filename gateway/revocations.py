"""Users whose tokens aren't good any more, and since when: what every gateway has to know. Pure.

A revocation is a message on the fabric's own topic (``_fabric.revoked``). It reaches a gateway as
any gold message does, and is read from the store by one that starts. Of a user only the
latest counts; a token that was issued later than that is good again.

Bounded: of more users than ``limit`` those revoked longest ago are forgotten first, and so are
those whose tokens must have ended by now.
"""

from __future__ import annotations

from collections.abc import Iterator

import orjson

from newsfabric.envelope import MAX_MS, Envelope
from newsfabric.numbers import is_whole
from newsfabric.tokens import Login, is_user


def decode_revocation(envelope: Envelope) -> tuple[str, int]:
    """User and time (ms since the epoch) of a revocation; ValueError if it is none."""
    fields = orjson.loads(envelope.body)
    if not isinstance(fields, dict):
        raise ValueError("a revocation is an object")
    user, at_ms = fields.get("user"), fields.get("at")
    if not isinstance(user, str) or not is_user(user):
        raise ValueError("a revocation names a user")
    if not is_whole(at_ms, 0, MAX_MS):
        raise ValueError("a revocation has a time")
    return user, int(at_ms)


class Revocations:
    """Who was revoked when. ``ttl`` seconds later no token of before is good anyhow."""

    def __init__(self, ttl: float, *, limit: int = 100_000) -> None:
        self._ttl_ms = int(ttl * 1000)
        self.limit = limit
        # In the order in which they were heard of, which is nearly that of their times.
        self._at_ms: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._at_ms)

    def add(self, user: str, at_ms: int, now_ms: int) -> bool:
        """``user`` was revoked at ``at_ms``. False if that is nothing new."""
        known = self._at_ms.get(user)
        if (known is not None and at_ms <= known) or at_ms + self._ttl_ms < now_ms:
            return False
        self._at_ms.pop(user, None)
        self._at_ms[user] = at_ms
        while len(self._at_ms) > self.limit or self._first() + self._ttl_ms < now_ms:
            del self._at_ms[next(iter(self._at_ms))]
        return True

    def revokes(self, login: Login) -> bool:
        """Whether ``login`` isn't good any more (RFC 7519's ``iat`` is a whole second at worst)."""
        at_ms = self._at_ms.get(login.user)
        return at_ms is not None and login.issued_ms <= at_ms

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return iter(self._at_ms.items())

    def _first(self) -> int:
        return next(iter(self._at_ms.values()))
