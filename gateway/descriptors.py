"""How many descriptors this process may have, and how many of them readers may take."""

from __future__ import annotations

import contextlib
import resource
from typing import Final

# Broker, store, admin pages, logs and libraries want some as well.
_RESERVE: Final = 256
_ENDLESS: Final = 1 << 30


def raise_limit() -> None:
    """Have as many as the system lets us: the limit that a login gives is made for people."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # The system may have lowered what it allows since; then what we have must do.
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def connections_at_most() -> int:
    """How many connections of readers leave enough for all else."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _ENDLESS if soft == resource.RLIM_INFINITY else soft
    return limit - min(_RESERVE, limit // 2)
