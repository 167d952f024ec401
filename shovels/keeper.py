"""The keeper: makes the brokers equal the plan. It reads, acts, and waits, for ever.

Any number of keepers may run for a region, without a leader. Each acts only on its own reading; the
next one finds the work done, and deleting a deleted object is no error. Jitter keeps them from
doing the same thing at the same moment.

Meanwhile the keeper sends canaries through every shovel. A shovel that delivers none, or doesn't
reach the state "running", is recreated: deleted and made again. Only this action isn't idempotent,
so it has its own back-off.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
import math
import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from newsfabric import metrics
from newsfabric.amqp.spread import SpreadLink
from newsfabric.backoff import Backoff
from newsfabric.errors import ManagementError
from newsfabric.line_limits import RepeatedFailures
from newsfabric.messages.reports import MAX_SHOVELS, ShovelSeen
from newsfabric.process.figures import ProcessFigures, Wanted
from newsfabric.process.reporting import Reporting, Speaker
from newsfabric.process.service import Readiness
from newsfabric.tls import CERTIFICATES_END
from newsfabric.topics import TopicTable
from newsfabric.topology import Broker, KeptShovel, ShovelPlace, brokers_of, mask, region_links
from shovels.apply import (
    ManagementClients,
    RegionState,
    TriedAction,
    carry_out,
    read_state,
    restart,
)
from shovels.boxes import Boxes
from shovels.canaries import ARRIVED, SENT, Canaries
from shovels.nodes import Nodes
from shovels.replaced_queues import ReplacedQueues
from shovels.watch import CanaryWatch

logger = logging.getLogger(__name__)

# Seconds between two rounds of a settled keeper; one listing costs a broker some ms.
INTERVAL: Final = 5.0
# An unfulfilled plan is tried again soon: at the start brokers come up one by one.
BASE: Final = 0.25

ROUNDS: Final = metrics.counter("shovels_rounds", "Rounds of the keeper", ["outcome"])
ACTIONS: Final = metrics.counter(
    "shovels_actions", "Changes that the keeper made or tried", ["verb", "kind", "outcome"]
)
RUNNING: Final = metrics.gauge("shovels_running", "The region's shovels that report that they run")
WANTED: Final = metrics.gauge("shovels_wanted", "The region's planned shovels")
RESTARTS: Final = metrics.counter(
    "shovels_restarts",
    "Shovels made anew because they carried nothing, or didn't run",
    ["shovel"],
)
AGE: Final = metrics.gauge(
    "shovels_canary_age_seconds", "Age of the newest canary that arrived", ["shovel"]
)
UNFIT: Final = metrics.gauge(
    "shovels_unfit_brokers",
    "Shovels that don't work with a broker, which is avoided for them; restart it",
    ["cluster", "node"],
)
WAITING: Final = metrics.gauge(
    "shovels_waiting_queues",
    "Queues with other bounds than planned, which wait up to ten minutes to be made anew again",
)
REPORTS: Final = metrics.counter(
    "shovels_reports", "Reports to frontdesks, by outcome", ["outcome"]
)
# The figures of a keeper that the operations board shows.
FIGURES: Final = (
    Wanted(ROUNDS, "outcome"),
    Wanted(ACTIONS, "outcome"),
    Wanted(RUNNING),
    Wanted(WANTED),
    Wanted(RESTARTS),
    Wanted(SENT, "outcome"),
    Wanted(ARRIVED),
    Wanted(CERTIFICATES_END, "use"),
)


class RoundTimer:
    """The times of the rounds: each :data:`INTERVAL` once settled, else with back-off up to it."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._backoff = Backoff(base=BASE, cap=INTERVAL, reset_after=2 * INTERVAL)

    def settled(self, now: float) -> float:
        """Return the seconds to wait after a round without work."""
        self._backoff.succeeded(now)
        return INTERVAL * self._rng.uniform(0.8, 1.2)

    def unsettled(self, now: float) -> float:
        """Return the seconds to wait after a round with a failure or a change."""
        return self._backoff.failed(now, self._rng)


class Keeper:
    """Keeps the shovels of ``region``, with their queues and exchanges, as the topology wants."""

    def __init__(
        self,
        brokers: ManagementClients,
        region: str,
        topics: TopicTable,
        rng: random.Random | None = None,
        *,
        name: str | None = None,
    ) -> None:
        """Set the keeper's name on the board; several keepers of a region need different ones."""
        self._brokers = brokers
        self._region = region
        self._topics = topics
        rng = rng or random.Random()  # noqa: S311 - jitter, not a secret
        self._pace = RoundTimer(rng)
        self._links = region_links(brokers.fabric, region, topics)
        self.watch = CanaryWatch(self._links, rng)
        self._failures = RepeatedFailures()
        self._replaced_queues = ReplacedQueues()
        self._as_planned = False
        self._all_run = False
        self._draining = False
        # The number of shovels for which each broker is unfit.
        self._unfit: Counter[Broker] = Counter()
        self._nodes = Nodes(brokers_of(brokers.fabric), region, brokers.credentials)
        # Shovels' reported states in the last round, of the brokers that replied.
        self._states: Mapping[Broker, Mapping[str, str]] = {}
        self._reporting = Reporting(
            Speaker(
                kind="keeper",
                name=name or f"{region}-shovels",
                region=region,
                login=brokers.credentials.username,
            ),
            figures=ProcessFigures(FIGURES),
            readiness=self.readiness,
            draining=lambda: self._draining,
            more=self._seen,
            outcomes=REPORTS,
        )

    def readiness(self) -> Readiness:
        """Return ready if there is nothing to do, every shovel runs, and canaries arrive by each.

        A queue with other bounds, wanted by another release's keeper (shovels.replaced_queues),
        doesn't prevent readiness: an upgrade would wait for its own end. :data:`WAITING` and the
        log report it. A shovel may be elsewhere because a broker is unfit for it: that is its
        planned place.
        If it works nowhere, a keeper can do nothing more, and the broker is reported to operators.
        """
        return Readiness.of(
            plan=self._as_planned,
            shovels=self._all_run,
            canaries=self.watch.all_fresh(asyncio.get_running_loop().time()),
        )

    def canaries(self) -> dict[str, Any]:
        """Return the reply to ``/canaries``: the age of the newest canary of each shovel."""
        return self.watch.links_document(asyncio.get_running_loop().time())

    async def run(self, stop: asyncio.Event) -> None:
        """Keep the shovels until ``stop`` is set."""
        brokers = self._brokers
        canaries = Canaries(brokers.fabric, self._region, self.watch, brokers.credentials)
        boxes = Boxes(self._region, brokers_of(brokers.fabric), brokers.credentials)
        try:
            await canaries.open()
            async with asyncio.TaskGroup() as tasks:
                beside = [
                    tasks.create_task(canaries.run()),
                    tasks.create_task(self._nodes.run()),
                    tasks.create_task(boxes.run()),
                    tasks.create_task(self._reporting.run(SpreadLink(canaries.core))),
                ]
                self._show_ages()
                await self._keep(stop)
                self._draining = True
                for task in beside:
                    task.cancel()
        finally:
            await canaries.close()

    async def _keep(self, stop: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        # Otherwise the first round would wait for a broker that hangs.
        await self._nodes.ask_nodes()
        while not stop.is_set():
            settled = await self.round()
            now = loop.time()
            wait = self._pace.settled(now) if settled else self._pace.unsettled(now)
            await first_set(stop, self._nodes.changed, seconds=wait)

    async def round(self) -> bool:
        """Read and act once; return whether the brokers equalled the plan already."""
        now = asyncio.get_running_loop().time()
        self._nodes.changed.clear()
        seen = self._nodes.uptimes.observe(self._nodes.running, now)
        seen = dataclasses.replace(
            seen,
            full=self._nodes.full,
            unfit=self.watch.unfit(now),
            proven=self.watch.proven(now),
            back=self.watch.back(now),
            known=self.watch.known(),
            left=self.watch.left(now),
        )
        found = await read_state(self._brokers, self._region, self._topics, seen)
        plan = found.plan
        waiting = self._replaced_queues.waiting(found.actions, now)
        WAITING.set(len(waiting))
        found = dataclasses.replace(found, actions=self._replaced_queues.may(found.actions, now))
        done = await carry_out(self._brokers, found)
        self._replaced_queues.did(done, now)
        # Otherwise the stand-in for an unreliable broker would be made and removed again and again.
        self._nodes.uptimes.observe(dict.fromkeys(found.unread, False), now)
        unsteady = seen.young | found.unreachable.keys()
        self.watch.looked(plan.places, plan.present, now, unsteady=unsteady)
        await self._watch(found)
        moving = [name for name in plan.moving if not seen.unfit.get(name)]
        self._as_planned = not done and not found.unreachable and not moving
        self._unfit = Counter(broker for each in seen.unfit.values() for broker in each)
        UNFIT.clear()
        for broker, shovels in self._unfit.items():
            UNFIT.labels(str(broker.cluster), broker.name).set(shovels)
        settled = "waiting" if waiting else "settled"
        ROUNDS.labels(settled if self._as_planned else "unsettled").inc()
        self._log_round(found, done, waiting)
        return self._as_planned and self._all_run

    async def _watch(self, found: RegionState) -> None:
        hosts = self._brokers.shovel_hosts(self._region)
        self._states = {b: found.actual[b].states for b in hosts if b in found.actual}
        runs = [
            any(
                self._states.get(place.host, {}).get(link.name) == "running"
                for place in link.places()
            )
            for link in self._links
        ]
        RUNNING.set(sum(runs))
        WANTED.set(len(self._links))
        hopeless = self.watch.hopeless(asyncio.get_running_loop().time())
        self._all_run = all(
            run or link.id in hopeless for link, run in zip(self._links, runs, strict=True)
        )
        await self._distrust(found.unreachable.keys() - found.unread)

    async def _distrust(self, away: Collection[Broker]) -> None:
        due: dict[Broker, list[KeptShovel]] = {}
        now = asyncio.get_running_loop().time()
        for link in self.watch.due(self._states, away, now, full=self._nodes.full):
            due.setdefault(self.watch.place(link).host, []).append(link)
        await asyncio.gather(*(self._recreate(host, links) for host, links in due.items()))

    async def _recreate(self, host: Broker, links: Iterable[KeptShovel]) -> None:
        """Recreate ``links`` on ``host``, one by one; stop if the broker doesn't reply."""
        for link in links:
            state = self._states[host].get(link.name, "missing")
            why = "runs and brings nothing" if state == "running" else f"is {state}"
            logger.warning("%s on %s %s: recreating it", link.id, host, why)
            try:
                await restart(self._brokers, host, link.name)
            except ManagementError as exc:
                logger.warning("%s: %s", link.id, mask(str(exc)))
                if not exc.status:
                    return
            else:
                RESTARTS.labels(link.id).inc()

    async def _seen(self) -> dict[str, Any]:
        """Return the operators' report beside the figures."""
        ages = self.watch.links_document(asyncio.get_running_loop().time())["shovels"]
        places = [self.watch.place(link) for link in self._links]
        shovels = seen_shovels(self._links, places, ages, self._states)
        unfit = {(str(b.cluster), b.name): count for b, count in self._unfit.items()}
        nodes = [
            dataclasses.replace(node, unfit=unfit.get((node.cluster, node.node), 0))
            for node in self._nodes.seen
        ]
        return {"shovels": shovels, "nodes": tuple(nodes)}

    def _show_ages(self) -> None:
        loop = asyncio.get_running_loop()

        def age(name: str) -> float:
            found = self.watch.ages(loop.time())[name]
            return math.inf if found is None else found

        for name in self.watch.ages(loop.time()):
            AGE.labels(name).set_function(functools.partial(age, name))
            # An increase is computed without a series' first value, so the series begins with 0.
            RESTARTS.labels(name)

    def _log_round(
        self,
        found: RegionState,
        done: Sequence[TriedAction],
        waiting: Iterable[tuple[Broker, str]],
    ) -> None:
        now = asyncio.get_running_loop().time()
        for each in done:
            action = each.action
            outcome = "failed" if each.error else "done"
            ACTIONS.labels(action.verb, action.kind, outcome).inc()
            if not each.error:
                what = f"{action.verb} {action.kind} {action.name}"
                logger.info("%s: %s", action.broker, what)
        wrong = [
            f"{broker} {'runs and reports nothing' if broker in found.unread else 'is away'}: {why}"
            for broker, why in found.unreachable.items()
        ]
        wrong += [f"{d.action.kind} {d.action.name}: {d.error}" for d in done if d.error]
        wrong += [
            f"{broker} reports no states of its shovels: {there.states_error}"
            for broker, there in found.actual.items()
            if there.states_error
        ]
        wrong += [
            f"queue {name} on {broker} has other bounds than planned since it was made anew, by a "
            "keeper of another release perhaps: left alone for up to ten minutes"
            for broker, name in waiting
        ]
        if not wrong:
            self._failures.ended()
        elif self._failures.should_log("; ".join(wrong), now):
            logger.warning("not as planned, trying again: %s", "; ".join(wrong))


def seen_shovels(
    links: Sequence[KeptShovel],
    places: Sequence[ShovelPlace],
    ages: Sequence[Mapping[str, Any]],
    states: Mapping[Broker, Mapping[str, str]],
) -> tuple[ShovelSeen, ...]:
    """Return the shovels for the operators' report. Pure.

    ``places`` and ``ages`` (of ``/canaries``) are in the order of ``links``. ``states`` lacks the
    brokers that don't reply.
    """
    found = []
    for link, place, age in zip(links[:MAX_SHOVELS], places, ages, strict=False):
        states_there = states.get(place.host)
        found.append(
            ShovelSeen(
                name=link.name,
                runs_on=str(link.runs_on),
                source=str(link.source),
                state="unknown" if states_there is None else states_there.get(link.name, "missing"),
                canary_age_ms=age["canary_age_ms"],
                messages_per_second=None,
                restarts=age["restarts"],
            )
        )
    return tuple(found)


async def first_set(*events: asyncio.Event, seconds: float) -> None:
    """Return when one of ``events`` is set, or after ``seconds``."""
    waits = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
