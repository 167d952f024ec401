"""Keeps plan and reality the same: look, carry out, wait, for ever.

Any number of keepers may run for a region. Each acts on what it sees alone, what one has done
the next finds done, and deleting what is gone is no error; so they need no leader. Jitter keeps
them from doing the same thing in the same moment.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from newsfabric import metrics
from newsfabric.amqp.complaints import Complaints
from newsfabric.backoff import Backoff
from newsfabric.service import Readiness
from newsfabric.topics import TopicTable
from newsfabric.topology import Cluster
from shovels.apply import Brokers, Done, Look, Status, carry_out, look, states
from shovels.homes import Absences

logger = logging.getLogger(__name__)

# How often a settled keeper looks, in seconds: one listing of a broker costs it some ms.
INTERVAL: Final = 5.0
# A plan that isn't fulfilled is tried again soon: at start brokers come up one by one.
BASE: Final = 0.25

ROUNDS: Final = metrics.counter("shovels_rounds", "Rounds of the keeper", ["outcome"])
ACTIONS: Final = metrics.counter(
    "shovels_actions", "Changes that the keeper made or tried", ["verb", "kind", "outcome"]
)
RUNNING: Final = metrics.gauge("shovels_running", "The region's shovels that say they run")
WANTED: Final = metrics.gauge("shovels_wanted", "The region's shovels that there should be")


class Pace:
    """When to look again: every :data:`INTERVAL` once settled, else with backoff up to that."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._backoff = Backoff(base=BASE, cap=INTERVAL, reset_after=2 * INTERVAL)

    def settled(self, now: float) -> float:
        """Seconds to wait after a round that left nothing to do."""
        self._backoff.succeeded(now)
        return INTERVAL * self._rng.uniform(0.8, 1.2)

    def unsettled(self, now: float) -> float:
        """Seconds to wait after a round that failed somewhere or changed something."""
        return self._backoff.failed(now, self._rng)


class Keeper:
    """The keeper of one region."""

    def __init__(
        self, brokers: Brokers, region: str, topics: TopicTable, rng: random.Random | None = None
    ) -> None:
        self._brokers = brokers
        self._region = region
        self._topics = topics
        self._pace = Pace(rng or random.Random())  # noqa: S311 - jitter, not a secret
        self._absences = Absences()
        self._complaints = Complaints()
        self._own = [Cluster(region, "client"), Cluster(region, "core")]
        self._as_planned = False
        self._all_run = False

    def readiness(self) -> Readiness:
        """Ready when the last round found nothing to do and every shovel of the region runs."""
        return Readiness.of(plan=self._as_planned, shovels=self._all_run)

    async def run(self, stop: asyncio.Event) -> None:
        """Keep until ``stop`` is set."""
        loop = asyncio.get_running_loop()
        while not stop.is_set():
            settled = await self.round()
            now = loop.time()
            wait = self._pace.settled(now) if settled else self._pace.unsettled(now)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await stop.wait()

    async def round(self) -> bool:
        """Look and do what there is to do; whether plan and reality were the same already."""
        found = await look(self._brokers, self._region, self._topics, self._absences.observe)
        done = await carry_out(self._brokers, found)
        await self._watch(found)
        self._as_planned = not done and not found.unreachable
        ROUNDS.labels("settled" if self._as_planned else "unsettled").inc()
        self._tell(found, done)
        return self._as_planned and self._all_run

    async def _watch(self, found: Look) -> None:
        statuses = await states(self._brokers, self._own)
        running = {
            (status.cluster, shovel.name)
            for status in statuses.values()
            if isinstance(status, Status)
            for shovel in status.shovels
            if shovel.state == "running"
        }
        RUNNING.set(len(running & found.shovels))
        WANTED.set(len(found.shovels))
        self._all_run = found.shovels <= running

    def _tell(self, found: Look, done: Sequence[Done]) -> None:
        now = asyncio.get_running_loop().time()
        for each in done:
            action = each.action
            outcome = "failed" if each.error else "done"
            ACTIONS.labels(action.verb, action.kind, outcome).inc()
            if not each.error:
                what = f"{action.verb} {action.kind} {action.name}"
                logger.info("%s: %s", action.cluster, what)
        wrong = [f"{cluster} is away: {why}" for cluster, why in found.unreachable.items()]
        wrong += [f"{d.action.kind} {d.action.name}: {d.error}" for d in done if d.error]
        if not wrong:
            self._complaints.over()
        elif self._complaints.is_news("; ".join(wrong), now):
            logger.warning("not as planned, trying again: %s", "; ".join(wrong))
