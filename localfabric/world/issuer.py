"""A world's own issuer of readers' tokens: a key pair, and tokens for any user.

For one machine and for trying things out. A real fabric gets the keys of the site's accounts
(``--token-keys``), and issues no tokens.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from localfabric.world.layout import READERS_AUDIENCE, READERS_ISSUER
from localfabric.world.paths import Paths
from localfabric.world.state import write_private
from newsfabric.errors import ConfigError, WorldError
from newsfabric.tokens import MAX_PATTERN_BYTES, MAX_PATTERNS, is_user
from newsfabric.tokens.operator_tokens import key_pair, signed
from newsfabric.topics import is_pattern


def make_keys(paths: Paths) -> None:
    """Make a key pair: the gateways' half and ours, readable only by the world's owner."""
    private, public = key_pair()
    write_private(paths.token_key, private)
    write_private(paths.token_keys, public)


def issue(
    paths: Paths, user: str, topics: Sequence[str], ttl: float, *, operator: bool = False
) -> str:
    """Return a token of ``user`` for ``ttl`` seconds from now; WorldError if there can't be one.

    The token of an ``operator`` opens the operations board, too.
    """
    if not is_user(user):
        raise WorldError(f"{user!r} is no user's id (letters, digits, _ and -, at most 64)")
    for pattern in topics:
        if not is_pattern(pattern):
            raise WorldError(f"{pattern!r} is no pattern of topics")
    if len(topics) > MAX_PATTERNS or sum(map(len, topics)) > MAX_PATTERN_BYTES:
        raise WorldError(f"at most {MAX_PATTERNS} patterns of {MAX_PATTERN_BYTES} bytes together")
    now = time.time()
    claims: dict[str, Any] = {"sub": user, "iat": now, "exp": now + ttl}
    claims |= {"aud": READERS_AUDIENCE, "iss": READERS_ISSUER}
    if operator:
        claims["operator"] = True
    if topics:
        claims["topics"] = list(topics)
    try:
        return signed(paths.token_key, claims)
    except ConfigError as exc:
        raise WorldError(f"this world has no key for tokens: {exc}") from exc
