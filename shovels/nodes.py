"""The running brokers, checked each second: for the keeper's plan and for operators.

A broker that refuses connections is away at once. A broker that doesn't reply is away after three
checks, for a busy one may be slow once. Queues are counted, too: one publisher can use up the limit
of a broker (design/0024). The pure part is :class:`Misses`; :mod:`shovels.places` decides the
consequences for shovels.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

from newsfabric import metrics
from newsfabric.brokers.management import Management
from newsfabric.errors import ManagementError
from newsfabric.messages.reports import MAX_NODES, NodeSeen
from newsfabric.settings import Credentials, Node
from newsfabric.topology import Broker, runs_shovels
from shovels.places import Uptimes

EVERY: Final = 1.0
_TIMEOUT: Final = 0.8
_MISSES: Final = 3
# Seconds between two counts of queues.
_COUNT_EVERY: Final = 10.0

ALARM: Final = metrics.gauge(
    "shovels_broker_alarms",
    "1 while a broker of the region or of a proxy cluster takes no messages: memory or disk",
    ["cluster", "node", "alarm"],
)

QUEUES: Final = metrics.gauge(
    "shovels_broker_queues",
    "Queues of a broker of the region or of a proxy cluster",
    ["cluster", "node"],
)


@dataclasses.dataclass(frozen=True, slots=True)
class NodeReply:
    """The result of one request: an ``alarm`` ("" for none), or None for no reply.

    ``refused``: no process listens there.
    """

    alarm: str | None
    refused: bool = False


class Misses:
    """The number of checks in a row in which each broker didn't reply."""

    def __init__(self) -> None:
        self._counts: dict[Broker, int] = {}

    def runs(self, broker: Broker, answer: NodeReply) -> bool:
        """Return whether ``broker`` counts as running after this ``answer``."""
        if answer.alarm is not None:
            self._counts[broker] = 0
            return True
        # Before its first reply a broker doesn't count as running.
        missed = self._counts.get(broker, _MISSES) + 1
        self._counts[broker] = _MISSES if answer.refused else missed
        return self._counts[broker] < _MISSES


def show_alarms(seen: Iterable[NodeSeen]) -> None:
    """Set :data:`ALARM` to the alarms ``seen`` last; an alarm that is over has no series."""
    ALARM.clear()
    for one in seen:
        if one.alarm:
            ALARM.labels(one.cluster, one.node, one.alarm).set(1)


def show_queues(totals: Mapping[Broker, int | None]) -> None:
    """Set :data:`QUEUES`; a broker without a count (None) has no series."""
    QUEUES.clear()
    for broker, total in totals.items():
        if total is not None:
            QUEUES.labels(str(broker.cluster), broker.name).set(total)


class Nodes:
    """The state of ``brokers``, for the keeper of ``region``. :meth:`run` it.

    :attr:`running` and :attr:`full` are the results of the last check; :attr:`changed` is set when
    one of them changes.
    """

    def __init__(
        self, brokers: Mapping[Broker, Node], region: str, credentials: Credentials
    ) -> None:
        self.running: Mapping[Broker, bool] = {}
        self.changed = asyncio.Event()
        self._region = region
        self._alarms: dict[Broker, str] = {}
        self._misses = Misses()
        # Observed more often than the keeper plans, so that no restart is missed.
        self.uptimes = Uptimes()
        self._apis = {
            broker: Management(node.management_url, credentials, timeout=_TIMEOUT)
            for broker, node in brokers.items()
        }

    @property
    def full(self) -> frozenset[Broker]:
        """The brokers that accept no messages because memory or disk is short."""
        return frozenset(self._alarms)

    @property
    def seen(self) -> tuple[NodeSeen, ...]:
        """The region's own brokers and the proxies', for operators."""
        return tuple(
            NodeSeen(
                cluster=str(broker.cluster),
                node=broker.name,
                running=runs,
                alarm=self._alarms.get(broker, "") if runs else "",
            )
            for broker, runs in self.running.items()
            if runs_shovels(self._region, broker.cluster)
        )[:MAX_NODES]

    async def run(self) -> None:
        """Check each second, until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_each(EVERY, self.ask_nodes))
                tasks.create_task(_each(_COUNT_EVERY, self.count))
        finally:
            for api in self._apis.values():
                api.close()

    async def count(self) -> None:
        """Count the queues of the region's own brokers and the proxies'."""
        own = [each for each in self._apis if runs_shovels(self._region, each.cluster)]
        totals = await asyncio.gather(*(_queues(self._apis[broker]) for broker in own))
        show_queues(dict(zip(own, totals, strict=True)))

    async def ask_nodes(self) -> None:
        """Ask every broker once, concurrently, for 0.8 s at most."""
        answers = await asyncio.gather(*map(_ask, self._apis.values()))
        found = dict(zip(self._apis, answers, strict=True))
        running = {broker: self._misses.runs(broker, reply) for broker, reply in found.items()}
        alarms = {broker: reply.alarm for broker, reply in found.items() if reply.alarm}
        if (running, alarms) != (self.running, self._alarms):
            self.changed.set()
        self.running, self._alarms = running, alarms
        self.uptimes.observe(running, asyncio.get_running_loop().time())
        show_alarms(self.seen)


async def _ask(api: Management) -> NodeReply:
    try:
        return NodeReply(await api.alarm())
    except ManagementError as exc:
        return NodeReply(None, refused=isinstance(exc.__cause__, ConnectionRefusedError))


async def _queues(api: Management) -> int | None:
    try:
        return await api.queue_total()
    except ManagementError:
        return None


async def _each(seconds: float, do: Callable[[], Awaitable[None]]) -> None:
    """Call ``do`` every so many seconds, until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        began = loop.time()
        await do()
        await asyncio.sleep(max(0.0, seconds - (loop.time() - began)))
