"""The limit of this process's file descriptors, and the readers' share of it."""

from __future__ import annotations

import contextlib
import resource
from typing import Final

# For the broker, the store, the admin port, log files and libraries.
_RESERVE: Final = 256
_ENDLESS: Final = 1 << 30


def raise_limit() -> None:
    """Raise the soft limit to the hard limit: the soft limit of a login is meant for people."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Fails if the system has lowered its own bound since; then the limit stays as it is.
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def connections_at_most() -> int:
    """Return the highest number of readers' connections that leaves enough for all else."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _ENDLESS if soft == resource.RLIM_INFINITY else soft
    return limit - min(_RESERVE, limit // 2)
