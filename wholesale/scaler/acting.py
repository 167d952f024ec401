"""The driver's caller: gets the list of boxes and passes the decisions on, one call at a time.

A driver may fail, hang, or be at its limit. Each call has a time limit; after a failure the next
call waits, with back-off; ``/scale`` and metrics show the last failure. Decisions made meanwhile
aren't queued: the next call carries the newest decision.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from newsfabric.backoff import Backoff
from newsfabric.line_limits import RepeatedFailures
from wholesale.scaler import counters
from wholesale.scaler.choice import Decision
from wholesale.scaler.drivers import MAX_TEXT, Driver, DriverError, DriverLimit, Instance

logger = logging.getLogger(__name__)

LIST_EVERY: Final = 5.0
TIMEOUT: Final = 30.0
# A list that is older than this doesn't show which boxes may be ended.
STALE: Final = 60.0

OnList = Callable[[tuple[Instance, ...] | None], None]


@dataclasses.dataclass(slots=True)
class Trouble:
    """The last failure of a driver. ``since`` is on the clock of :class:`Acting`."""

    action: str
    text: str
    since: float
    limit: bool


class Acting:
    """Passes the last decision of :meth:`decided` to ``driver``, and each list to ``on_list``."""

    def __init__(
        self,
        driver: Driver,
        on_list: OnList,
        clock: Callable[[], float],
        *,
        every: float = LIST_EVERY,
        timeout: float = TIMEOUT,
        backoff: Backoff | None = None,
    ) -> None:
        self._driver = driver
        self._on_list = on_list
        self._clock = clock
        self._every = every
        self._timeout = timeout
        self._backoff = backoff or Backoff(base=1.0, cap=60.0)
        self._failures = RepeatedFailures()
        self._decision: Decision | None = None
        self._new = asyncio.Event()
        self._listed_at: float | None = None
        self._not_before = 0.0
        self._requested: int | None = None
        self.trouble: Trouble | None = None

    @property
    def well(self) -> bool:
        """True while the list is recent and no call failed since; a limit isn't a failure."""
        at = self._listed_at
        fresh = at is not None and self._clock() - at <= STALE
        return fresh and (self.trouble is None or self.trouble.limit)

    def decided(self, decision: Decision) -> None:
        """Set the decision to carry out, in place of the one before."""
        self._decision = decision
        if decision.want is not None or decision.end:
            self._new.set()

    def driver_document(self) -> dict[str, Any]:
        """Return the driver's part of ``/scale``."""
        trouble = self.trouble
        state = "well" if self.well else "starting" if self._listed_at is None else "stale"
        if trouble is not None:
            state = "limit" if trouble.limit else "failing"
        now = self._clock()
        return {
            "state": state,
            "trouble": trouble and trouble.text,
            "trouble_for_s": trouble and round(now - trouble.since, 1),
            "list_age_s": None if self._listed_at is None else round(now - self._listed_at, 1),
            "told": self._requested,
        }

    async def run(self) -> None:
        """List and act until cancelled."""
        while True:
            await self.round()
            self._new.clear()
            try:
                async with asyncio.timeout(self._every):
                    await self._new.wait()
            except TimeoutError:
                continue
            # Decisions arrive each second; the driver isn't called more often.
            await asyncio.sleep(min(1.0, self._every))

    async def round(self) -> None:
        """Get the list, then carry out the decision, unless the driver must rest."""
        if self._clock() < self._not_before:
            return
        counters.DRIVER_WELL.set(await self._list_and_act())

    async def _list_and_act(self) -> bool:
        if not await self._try("boxes", self._list):
            return False
        decision, self._decision = self._decision, None
        if decision is None:
            return True
        good = True
        if decision.end:
            names = decision.end
            good = await self._try("end", lambda: self._driver.end(names))
        want = decision.want
        if want is not None:
            self._requested = want
            good = await self._try("want", lambda: self._driver.want(want)) and good
        asked = {"boxes"} | ({"end"} if decision.end else set()) | ({"want"} if want else set())
        if self.trouble is not None and self.trouble.action not in asked:
            # The call that failed isn't wanted any more.
            self.trouble = None
        return good

    async def _list(self) -> None:
        found = await self._driver.boxes()
        self._listed_at = self._clock()
        self._on_list(found)

    async def _try(self, action: str, call: Callable[[], Awaitable[None]]) -> bool:
        try:
            async with asyncio.timeout(self._timeout):
                await call()
        except DriverLimit as exc:
            self._failed(action, str(exc), limit=True)
            return False
        except TimeoutError:
            self._failed(action, f"{action}: no answer within {self._timeout:g} s", limit=False)
            return False
        except DriverError as exc:
            self._failed(action, str(exc), limit=False)
            return False
        except Exception as exc:
            # Drivers are other people's code, or clouds: no error of theirs may stop the scaler.
            self._failed(action, f"{action}: {type(exc).__name__}: {exc}", limit=False)
            return False
        counters.DRIVER.labels(action, "done").inc()
        if self.trouble is None or self.trouble.action == action:
            self._works()
        return True

    def _works(self) -> None:
        self._backoff.succeeded(self._clock())
        self.trouble = None
        self._failures.ended()

    def _failed(self, action: str, text: str, *, limit: bool) -> None:
        now = self._clock()
        text = " ".join(text.split())[:MAX_TEXT]
        counters.DRIVER.labels(action, "limit" if limit else "failed").inc()
        since = self.trouble.since if self.trouble is not None else now
        self.trouble = Trouble(action, text, since, limit)
        self._not_before = now + self._backoff.failed(now)
        if self._failures.should_log(text, now):
            logger.warning("driver: %s", text)
