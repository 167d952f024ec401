"""What a command waits for: it says so after a moment, and doesn't wait for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Final

from newsfabric.errors import NewsfabricError
from newsfabric.safe_output import echo
from operations.worlds import World

SAY_AFTER: Final = 2.0
# A broker that was killed is back in half of that.
GIVE_UP_AFTER: Final = 30.0
# How many parts of a world a hint names.
_NAMED: Final = 3
HINT: Final = "`newsfabric status` shows what is left of the world, `newsfabric up` starts one"


class WaitLimit:
    """Counts what is waited for. Made by :func:`wait_limited`."""

    def __init__(
        self,
        limit: asyncio.Timeout,
        what: Callable[[], str],
        seconds: float | None,
        say: Callable[[str], None],
    ) -> None:
        self._limit = limit
        self._what = what
        self._seconds = seconds
        self._say = say
        self._loop = asyncio.get_running_loop()
        self._under_way = 0
        self._line: asyncio.TimerHandle | None = None

    def began(self) -> None:
        """One more thing is waited for."""
        self._under_way += 1
        if self._under_way == 1:
            self._begin_anew()

    def ended(self) -> None:
        """One of them has come. For the others the time begins anew: the world is there."""
        self._under_way -= 1
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.rest()
        # What is cancelled because the time is over ends, too.
        if self._under_way and not self._limit.expired():
            self._line = self._loop.call_later(SAY_AFTER, lambda: self._say(self._what()))
            if self._seconds is not None:
                self._limit.reschedule(self._loop.time() + self._seconds)

    def rest(self) -> None:
        """Say nothing more, and let the time not run."""
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
    say: Callable[[str], None] = lambda text: echo(text, err=True),
    hint: Callable[[], str] = lambda: HINT,
) -> AsyncGenerator[WaitLimit]:
    """Say ``what`` (like "waiting for a receipt") when nothing has come for two seconds.

    NewsfabricError, which ends with a ``hint``, when nothing has come for ``seconds``; with None it
    waits for as long as its block does.
    """
    limit = asyncio.timeout(None)
    try:
        async with limit:
            wait = WaitLimit(limit, what, seconds, say)
            try:
                yield wait
            finally:
                wait.rest()
    except TimeoutError as exc:
        if not limit.expired():
            raise
        raise NewsfabricError(f"gave up {what()} after {seconds:g} s: {hint()}") from exc


def hint_about(world: World) -> str:
    """What to do when nothing comes of ``world``."""
    names = world.unwell()
    if not names:
        return HINT
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    verb = "is" if len(names) == 1 else "are"
    return (
        f"{', '.join(names[:_NAMED])}{more} {verb} dead or stopped: `newsfabric chaos heal` starts "
        "what is"
    )
