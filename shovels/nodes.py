"""Which nodes of a region's clusters run, looked at each second, for operators.

A node that answers for itself runs. One that doesn't is away at once if no other node of its
cluster says that it runs; else after two looks, for a management API may be slow once. The pure
part is :func:`judge`; it decides nothing about shovels, which is :mod:`shovels.homes`.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final

from newsfabric import metrics
from newsfabric.errors import ManagementError
from newsfabric.management import Management, NodeState
from newsfabric.reports import MAX_NODES, NodeSeen
from newsfabric.settings import Credentials, Fabric, Node
from newsfabric.topology import Cluster
from shovels.plan import short_name

EVERY: Final = 1.0
_TIMEOUT: Final = 0.8
_MISSES: Final = 2

ALARM: Final = metrics.gauge(
    "shovels_broker_alarms",
    "1 while a broker of the region or of a proxy cluster takes no messages: memory or disk",
    ["cluster", "node", "alarm"],
)

# Node → what it says of its cluster's nodes; None: it doesn't answer.
Answers = Mapping[str, Sequence[NodeState] | None]


@dataclasses.dataclass(slots=True)
class Misses:
    """How often in a row each node didn't answer."""

    counts: dict[str, int] = dataclasses.field(default_factory=dict)


def judge(cluster: Cluster, answers: Answers, misses: Misses) -> list[NodeSeen]:
    """How the nodes of ``cluster`` are; ``misses`` is of the looks before, and is brought up to
    date."""
    said = [state for states in answers.values() for state in states or ()]
    found = []
    for name, states in answers.items():
        of_it = [state for state in said if short_name(state.name) == name]
        missed = 0 if states is not None else misses.counts.get(name, 0) + 1
        misses.counts[name] = missed
        vouched = any(state.running for state in of_it) and missed < _MISSES
        running = states is not None or vouched
        alarm = next((state.alarm for state in of_it if state.alarm), "") if running else ""
        found.append(NodeSeen(cluster=str(cluster), node=name, running=running, alarm=alarm))
    return found


def show_alarms(seen: Sequence[NodeSeen]) -> None:
    """Set :data:`ALARM` to what was ``seen`` last; an alarm that is over has no series."""
    ALARM.clear()
    for one in seen:
        if one.alarm:
            ALARM.labels(one.cluster, one.node, one.alarm).set(1)


class Nodes:
    """Looks at the nodes of ``clusters``. :meth:`run` it; :attr:`seen` is what was seen last."""

    def __init__(
        self, clusters: Mapping[Cluster, Sequence[Node]], credentials: Credentials
    ) -> None:
        self.seen: tuple[NodeSeen, ...] = ()
        self._misses = Misses()
        self._apis = {
            cluster: {
                node.name: Management(node.management_url, credentials, timeout=_TIMEOUT)
                for node in nodes
            }
            for cluster, nodes in clusters.items()
        }

    async def run(self) -> None:
        """Look each second, until cancelled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                began = loop.time()
                await self.look()
                await asyncio.sleep(max(0.0, EVERY - (loop.time() - began)))
        finally:
            for apis in self._apis.values():
                for api in apis.values():
                    api.close()

    async def look(self) -> None:
        """Ask every node once, all at the same time, 0.8 s at most."""
        asked = [(c, name, api) for c, apis in self._apis.items() for name, api in apis.items()]
        read = await asyncio.gather(*(_states(api) for _, _, api in asked))
        seen: list[NodeSeen] = []
        for cluster in self._apis:
            answers = {
                name: states
                for (where, name, _), states in zip(asked, read, strict=True)
                if where == cluster
            }
            seen += judge(cluster, answers, self._misses)
        self.seen = tuple(seen[:MAX_NODES])
        show_alarms(self.seen)


def clusters_of(fabric: Fabric, region: str) -> dict[Cluster, Sequence[Node]]:
    """The clusters that a keeper of ``region`` watches: its own, and the proxies'."""
    own = fabric.region(region)
    found: dict[Cluster, Sequence[Node]] = {
        Cluster(region, "client"): own.client,
        Cluster(region, "core"): own.core,
    }
    return found | {Cluster(proxy.name, "proxy"): proxy.nodes for proxy in fabric.proxies}


async def _states(api: Management) -> list[NodeState] | None:
    try:
        return await api.node_states()
    except ManagementError:
        return None
