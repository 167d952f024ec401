"""A time limit for a command: reports its waiting after two seconds, gives up at the limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Final

from newsfabric.errors import NewsfabricError
from newsfabric.safe_output import echo
from operations.worlds import WorldPlaces

PRINT_AFTER: Final = 2.0
# A broker that was killed is back in half of this time.
GIVE_UP_AFTER: Final = 30.0
# The largest number of parts of a world that a hint names.
_NAMED: Final = 3
HINT: Final = "`newsfabric status` shows what is left of the world, `newsfabric up` starts one"


class WaitLimit:
    """A count of the things waited for. Made by :func:`wait_limited`."""

    def __init__(
        self,
        limit: asyncio.Timeout,
        what: Callable[[], str],
        seconds: float | None,
        print_line: Callable[[str], None],
    ) -> None:
        self._limit = limit
        self._what = what
        self._seconds = seconds
        self._print_line = print_line
        self._loop = asyncio.get_running_loop()
        self._under_way = 0
        self._line: asyncio.TimerHandle | None = None

    def began(self) -> None:
        """Count one more thing to wait for."""
        self._under_way += 1
        if self._under_way == 1:
            self._begin_anew()

    def ended(self) -> None:
        """Count one as arrived. The time for the others begins anew: the world is alive."""
        self._under_way -= 1
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.rest()
        # Tasks that are cancelled because the time is over call ``ended``, too.
        if self._under_way and not self._limit.expired():
            self._line = self._loop.call_later(PRINT_AFTER, lambda: self._print_line(self._what()))
            if self._seconds is not None:
                self._limit.reschedule(self._loop.time() + self._seconds)

    def rest(self) -> None:
        """Cancel the report, and stop the time."""
        if self._line is not None:
            self._line.cancel()
            self._line = None
        if not self._limit.expired():
            self._limit.reschedule(None)


@asynccontextmanager
async def wait_limited(
    what: Callable[[], str],
    seconds: float | None,
    *,
    print_line: Callable[[str], None] = lambda text: echo(text, err=True),
    hint: Callable[[], str] = lambda: HINT,
) -> AsyncGenerator[WaitLimit]:
    """Print ``what`` (like "waiting for a receipt") after two seconds without an arrival.

    NewsfabricError, which ends with a ``hint``, after ``seconds`` without an arrival; None: no
    limit.
    """
    limit = asyncio.timeout(None)
    try:
        async with limit:
            wait = WaitLimit(limit, what, seconds, print_line)
            try:
                yield wait
            finally:
                wait.rest()
    except TimeoutError as exc:
        if not limit.expired():
            raise
        raise NewsfabricError(f"gave up {what()} after {seconds:g} s: {hint()}") from exc


def hint_about(world: WorldPlaces) -> str:
    """Return advice for an operator whose command gets no answer of ``world``."""
    names = world.unwell()
    if not names:
        return HINT
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    verb = "is" if len(names) == 1 else "are"
    return (
        f"{', '.join(names[:_NAMED])}{more} {verb} dead or stopped: `newsfabric chaos heal` starts "
        "what is"
    )
