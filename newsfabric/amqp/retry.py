"""Trying again on one channel's behalf: backoff, and one line in the log per news."""

from __future__ import annotations

import asyncio
import logging

from newsfabric.backoff import Backoff
from newsfabric.errors import LinkError
from newsfabric.line_limits import RepeatedFailures

logger = logging.getLogger(__name__)


def broker_backoff() -> Backoff:
    """For what one process asks of a broker: soon again, never later than 2 s.

    A node boots in some eight seconds, in which the pauses grow to their longest. What waits for it
    then waits for half of that more.
    """
    return Backoff(base=0.2, cap=2.0, reset_after=60.0)


class Retry:
    """Waits between the tries of ``what``, and says what is wrong while it is."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._backoff = broker_backoff()
        self._failures = RepeatedFailures()

    def succeeded(self) -> None:
        """This try worked, so far."""
        self._backoff.succeeded(asyncio.get_running_loop().time())

    async def failed(self, error: LinkError) -> None:
        """This try failed, or worked until now; returns when the next is due."""
        now = asyncio.get_running_loop().time()
        if self._failures.should_log(str(error), now):
            logger.warning("%s: %s; trying again", self._what, error)
        await asyncio.sleep(self._backoff.failed(now))
