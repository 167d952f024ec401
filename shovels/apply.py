"""Carries a region's plan to its brokers through their management API. No decision is made here.

A cluster is asked through the first of its nodes that answers. One that doesn't answer is named in
the outcome, and everything else is done all the same; so is everything that doesn't depend
on a step that failed. Nothing is taken away in a round in which something couldn't be made: it may
be what should take its place, and the next round comes soon.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from newsfabric.errors import ManagementError
from newsfabric.management import Management, ShovelState
from newsfabric.settings import Credentials, Fabric, Node
from newsfabric.topics import TopicTable
from newsfabric.topology import (
    Binding,
    Cluster,
    Exchange,
    Queue,
    ShovelLink,
    mask,
    runs_shovels,
    shovel_value,
)
from shovels.homes import Seen, wanted_now
from shovels.plan import Action, Actual, diff, must_wait, short_name

# What decides which nodes stay away and which are steady: called once for each look, with the nodes
# of the clusters that answered and those of them that run.
Observe = Callable[[Iterable[str], frozenset[str]], Seen]


def seen_once(expected: Iterable[str], running: frozenset[str]) -> Seen:
    """The :data:`Observe` of whoever looks only once: what doesn't run now is away."""
    return Seen(away=frozenset(expected) - running, steady=running)


@dataclasses.dataclass(frozen=True, slots=True)
class Done:
    """An action that was tried; ``error`` is empty if it worked. Shows no login."""

    action: Action
    error: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a region's plan comes to, given what could be seen of its clusters."""

    actions: tuple[Action, ...]
    moving: tuple[str, ...]
    shovels: frozenset[tuple[Cluster, str]]
    """Every shovel that the region wants, done or not."""
    actual: Mapping[Cluster, Actual]
    unreachable: Mapping[Cluster, str]


@dataclasses.dataclass(frozen=True, slots=True)
class Status:
    """The shovels of one cluster, wanted or not."""

    cluster: Cluster
    shovels: tuple[ShovelState, ...]


class Brokers:
    """The management APIs of a fabric's clusters. Use as an async context manager."""

    def __init__(
        self,
        fabric: Fabric,
        credentials: Credentials,
        *,
        shovels: Credentials | None = None,
        timeout: float = 5.0,
    ) -> None:
        """``shovels`` is whom shovels log in as, if it is somebody else."""
        self.fabric = fabric
        self.credentials = credentials
        self.shovels = shovels or credentials
        self._apis = {
            cluster: [
                Management(node.management_url, credentials, timeout=timeout) for node in nodes
            ]
            for cluster, nodes in _clusters(fabric).items()
        }

    async def __aenter__(self) -> Brokers:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of all connections."""
        for apis in self._apis.values():
            for api in apis:
                api.close()

    async def reach(self, cluster: Cluster) -> Management:
        """The first node of ``cluster`` that answers; ManagementError says why the last didn't."""
        failure = ManagementError(f"{cluster} has no node")
        for api in self._apis[cluster]:
            try:
                await api.overview()
            except ManagementError as exc:
                failure = exc
            else:
                return api
        raise failure

    @property
    def clusters(self) -> list[Cluster]:
        """All clusters: a region keeps something on each, its own and the others'."""
        return sorted(self._apis)


async def look(
    brokers: Brokers, region: str, topics: TopicTable, observe: Observe = seen_once
) -> Look:
    """Read the clusters of ``region`` and compare them with its plan. Changes nothing."""
    clusters = brokers.clusters
    read = await asyncio.gather(*(_read(brokers, region, cluster) for cluster in clusters))
    found = dict(zip(clusters, read, strict=True))
    actual = {cluster: got for cluster, got in found.items() if isinstance(got, Actual)}
    unreachable = {cluster: got for cluster, got in found.items() if isinstance(got, str)}
    nodes = _clusters(brokers.fabric)
    expected = [node.name for cluster in actual for node in nodes[cluster]]
    running = frozenset[str]().union(*(each.running() for each in actual.values()))
    seen = observe(expected, running)
    wanted = wanted_now(brokers.fabric, region, topics, actual, seen)
    shovels = {(at, each.name) for at, part in wanted.parts.items() for each in part.shovels}
    return Look(
        actions=diff(region, wanted.parts, actual, brokers.shovels),
        moving=wanted.moving,
        shovels=frozenset(shovels),
        actual=actual,
        unreachable=unreachable,
    )


async def carry_out(brokers: Brokers, found: Look) -> list[Done]:
    """Do the actions of ``found`` in order, but those that must wait for one that failed."""
    apis: dict[Cluster, Management] = {}
    done: list[Done] = []
    for action in found.actions:
        if must_wait(action, [each.action for each in done if each.error]):
            continue
        try:
            if action.cluster not in apis:
                apis[action.cluster] = await brokers.reach(action.cluster)
            actual = found.actual[action.cluster]
            await _perform(apis[action.cluster], action, actual, brokers.shovels)
        except ManagementError as exc:
            done.append(Done(action, mask(str(exc))))
        else:
            done.append(Done(action))
    return done


async def restart(brokers: Brokers, cluster: Cluster, name: str) -> None:
    """Make the shovel ``name`` of ``cluster`` anew, as it is. ManagementError if that fails."""
    api = await brokers.reach(cluster)
    value = (await api.shovels()).get(name)
    if value is not None:
        await api.delete_shovel(name)
        await api.put_shovel(name, value)


async def states(brokers: Brokers, clusters: Iterable[Cluster]) -> dict[Cluster, Status | str]:
    """The shovels of each cluster by what they say of themselves; text where one is away."""
    wanted = list(clusters)
    read = await asyncio.gather(*(_states(brokers, cluster) for cluster in wanted))
    return dict(zip(wanted, read, strict=True))


async def _perform(
    api: Management, action: Action, actual: Actual, credentials: Credentials
) -> None:
    match action.verb, action.wanted:
        case "delete", Binding() as binding:
            await api.delete_binding(binding)
        case "delete", _ if action.kind == "shovel":
            await api.delete_shovel(action.name)
        case "delete", _:
            await api.delete_queue(action.name)
        case _, Exchange() as exchange:
            await api.put_exchange(exchange)
        case verb, Queue() as queue:
            home = _erlang_name(queue, actual)
            if verb == "update":
                await api.delete_queue(queue.name)
            await api.put_queue(queue.name, queue.bounds.arguments(), node=home)
        case _, Binding() as binding:
            await api.put_binding(binding)
        case _, ShovelLink() as link:
            await api.put_shovel(link.name, shovel_value(link, credentials))


def _erlang_name(queue: Queue, actual: Actual) -> str | None:
    if queue.home is None:
        return None
    for node in actual.nodes:
        if short_name(node) == queue.home:
            return node
    known = ", ".join(sorted(actual.nodes))
    raise ManagementError(f"the cluster has no node {queue.home!r} (it has: {known})")


async def _read(brokers: Brokers, region: str, cluster: Cluster) -> Actual | str:
    # Elsewhere shovels are no business of ours, and we may not look at them: they hold passwords.
    ours = runs_shovels(region, cluster)
    try:
        api = await brokers.reach(cluster)
        return Actual(
            exchanges=await api.exchanges(),
            queues=await api.queues(),
            bindings=frozenset(await api.bindings()),
            shovels=await api.shovels() if ours else {},
            nodes=await api.nodes(),
        )
    except ManagementError as exc:
        return mask(str(exc))


async def _states(brokers: Brokers, cluster: Cluster) -> Status | str:
    try:
        api = await brokers.reach(cluster)
        found: dict[str, Any] = await api.shovel_states()
    except ManagementError as exc:
        return mask(str(exc))
    return Status(cluster, tuple(found[name] for name in sorted(found)))


def _clusters(fabric: Fabric) -> dict[Cluster, tuple[Node, ...]]:
    found: dict[Cluster, tuple[Node, ...]] = {}
    for region in fabric.regions:
        found[Cluster(region.name, "client")] = region.client
        found[Cluster(region.name, "core")] = region.core
    for proxy in fabric.proxies:
        found[Cluster(proxy.name, "proxy")] = proxy.nodes
    return found
