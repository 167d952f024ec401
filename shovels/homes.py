"""On which node each source queue lives: its preferred one, or another while that stays away.

Pure. The only memory is the brokers' own: a shovel's parameter names the queue it reads, and
the queue's name tells its home. So keepers that started at different times agree, and a
keeper that has just started doesn't move anything back to a node that is down.

A move takes two rounds while the old home lives (*make before break*): first the new queue is
made and bound beside the old one, so that both get each message; then the shovel changes
over and the old queue goes. Copies are dropped by identity, as everywhere.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Final

from newsfabric.settings import Fabric, Node
from newsfabric.topics import TopicTable
from newsfabric.topology import (
    INTAKE,
    Binding,
    Cluster,
    Link,
    Part,
    region_links,
    router_queue,
    shovel_plan,
)
from shovels.plan import Actual

# Rounds (of about 5 s) for which a node must be missing before its queues are made elsewhere: a
# node restarts in less, and its durable queues come back with their bindings.
AWAY_ROUNDS: Final = 4


class Absences:
    """How many rounds running each node was missing. One per keeper."""

    def __init__(self, rounds: int = AWAY_ROUNDS) -> None:
        self._rounds = rounds
        self._missing: dict[str, int] = {}

    def observe(self, expected: Iterable[str], running: frozenset[str]) -> frozenset[str]:
        """One round's look at nodes; returns those that stay away.

        Pass only nodes of clusters that answered: of the others nothing is known, and
        nothing could be moved there anyway.
        """
        for name in expected:
            self._missing[name] = 0 if name in running else self._missing.get(name, 0) + 1
        return frozenset(name for name, count in self._missing.items() if count >= self._rounds)


def choose_home(
    link: Link, current: Node | None, running: frozenset[str], away: frozenset[str]
) -> Node:
    """Where ``link``'s source queue should live, given where it does.

    ``current`` is None before there is a shovel. The preferred node whenever it runs; else the
    present one until it stays away; else the next that runs. With none running it stays put.
    """
    preferred = link.nodes[0]
    if preferred.name in running:
        return preferred
    present = current or preferred
    if present.name not in away:
        return present
    return next((node for node in link.nodes if node.name in running), present)


@dataclasses.dataclass(frozen=True, slots=True)
class Wanted:
    """One round's plan for a region, and the links that are on the move (to be looked at soon)."""

    parts: Mapping[Cluster, Part]
    moving: tuple[str, ...] = ()


def wanted_now(
    fabric: Fabric,
    region: str,
    topics: TopicTable,
    actual: Mapping[Cluster, Actual],
    away: frozenset[str],
) -> Wanted:
    """What ``region`` wants in this round, given what is there."""
    running = frozenset[str]().union(*(found.running() for found in actual.values()))
    away |= _stood_in_for(fabric, region, actual) - running
    now: dict[str, Node] = {}
    soon: dict[str, Node] = {}
    for link in region_links(fabric, region, topics):
        current = _current(link, actual)
        home = choose_home(link, current, running, away)
        soon[link.id] = home
        leaves_living = current is not None and current != home and current.name in running
        made = _has_queue(link, home, actual)
        now[link.id] = current if current and leaves_living and not made else home
    parts = shovel_plan(fabric, region, topics, homes=now, away=away)
    moving = tuple(sorted(name for name in now if now[name] != soon[name]))
    if moving:
        later = shovel_plan(fabric, region, topics, homes=soon, away=away)
        parts = {cluster: _beside(part, later[cluster]) for cluster, part in parts.items()}
    return Wanted(parts, moving)


def _stood_in_for(fabric: Fabric, region: str, actual: Mapping[Cluster, Actual]) -> frozenset[str]:
    """The first core node, if the second router queue takes everything in its stead already."""
    found = actual.get(Cluster(region, "core"))
    if found is None or Binding(INTAKE, router_queue(2)) not in found.bindings:
        return frozenset()
    return frozenset({fabric.region(region).core[0].name})


def _current(link: Link, actual: Mapping[Cluster, Actual]) -> Node | None:
    found = actual.get(link.runs_on)
    value = found.shovels.get(link.name) if found else None
    queue = value.get("src-queue") if value else None
    return link.home_of(queue) if isinstance(queue, str) else None


def _has_queue(link: Link, home: Node, actual: Mapping[Cluster, Actual]) -> bool:
    found = actual.get(link.source)
    return found is not None and link.queue(home).name in found.queues


def _beside(part: Part, later: Part) -> Part:
    """``part`` with the queues and bindings that it will have next; its shovels as they are."""
    both = part + later
    return Part(both.exchanges, both.queues, both.bindings, part.shovels)
