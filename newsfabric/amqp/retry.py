"""Retries of one channel: backoff, and one log line per new failure."""

from __future__ import annotations

import asyncio
import logging

from newsfabric.backoff import Backoff
from newsfabric.errors import LinkError
from newsfabric.line_limits import RepeatedFailures

logger = logging.getLogger(__name__)


def broker_backoff() -> Backoff:
    """Return the backoff for requests of one process to a broker: pauses of at most 2 s.

    A node boots in some eight seconds, in which the pauses grow to their longest. On average a
    process then waits for half the longest pause more.
    """
    return Backoff(base=0.2, cap=2.0, reset_after=60.0)


class Retry:
    """A pause between tries of ``what``, and log lines while these fail."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._backoff = broker_backoff()
        self._failures = RepeatedFailures()

    def succeeded(self) -> None:
        """Note that this try worked, so far."""
        self._backoff.succeeded(asyncio.get_running_loop().time())

    async def failed(self, error: LinkError) -> None:
        """Note that this try failed, or worked until now; return when the next is due."""
        now = asyncio.get_running_loop().time()
        if self._failures.should_log(str(error), now):
            logger.warning("%s: %s; trying again", self._what, error)
        await asyncio.sleep(self._backoff.failed(now))
