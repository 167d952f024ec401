"""On which node each source queue lives: its preferred one, or another while that stays away.

Pure. Where a queue lives is remembered by the brokers alone: a shovel's parameter names the queue
it reads, and the queue's name tells its home. So keepers that started at different times agree,
and a keeper that has just started doesn't move anything back to a node that is down.

A move takes two rounds or more while the old home lives (*make before break*): first the new
queue is made and bound beside the old one, so that both get each message; then, once it is there
and its node has been for a while, the shovel changes over and the old queue goes. Copies are
dropped by identity, as everywhere.

The decision that one would question: a node counts as missing after three seconds, though one
that restarts is back in ten. Standing in for it costs little and is undone by itself; not to
would have everything wait that goes one way only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
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

# Seconds for which a node must be missing before its queues are made elsewhere: beyond a hiccup.
AWAY_AFTER: Final = 3.0
# Seconds for which a node must run before a stand-in gives back to it: it says that it runs some
# seconds before its queues can be bound, and is busy then.
STEADY_AFTER: Final = 10.0


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """Nodes that stay ``away``, and nodes that run and did for so long that they are ``steady``."""

    away: frozenset[str]
    steady: frozenset[str]


class Uptimes:
    """Since when each node runs or is missing, as far as was seen. One per keeper."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[bool, float]] = {}

    def observe(self, expected: Iterable[str], running: frozenset[str], now: float) -> Seen:
        """One look at nodes, at ``now`` in seconds of a clock that never goes back.

        Pass only nodes of clusters that answered: of the others nothing is known, and
        nothing could be moved there anyway.
        """
        for name in expected:
            runs = name in running
            if self._since.get(name, (not runs, now))[0] != runs:
                self._since[name] = runs, now
        return Seen(
            away=frozenset(self._for(AWAY_AFTER, now, runs=False)),
            steady=frozenset(self._for(STEADY_AFTER, now, runs=True)),
        )

    def _for(self, seconds: float, now: float, *, runs: bool) -> Iterator[str]:
        for name, (ran, since) in self._since.items():
            if ran == runs and now - since >= seconds:
                yield name


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
    fabric: Fabric, region: str, topics: TopicTable, actual: Mapping[Cluster, Actual], seen: Seen
) -> Wanted:
    """What ``region`` wants in this round, given what is there."""
    running = frozenset[str]().union(*(found.running() for found in actual.values()))
    away = seen.away | _stood_in_for(fabric, region, actual, seen.steady)
    now: dict[str, Node] = {}
    soon: dict[str, Node] = {}
    for link in region_links(fabric, region, topics):
        current = _current(link, actual)
        home = choose_home(link, current, running, away)
        soon[link.id] = home
        leaves_living = current is not None and current != home and current.name in running
        ready = home.name in seen.steady and _is_made(link, home, actual)
        now[link.id] = current if current and leaves_living and not ready else home
    parts = shovel_plan(fabric, region, topics, homes=now, away=away)
    moving = tuple(sorted(name for name in now if now[name] != soon[name]))
    if moving:
        later = shovel_plan(fabric, region, topics, homes=soon, away=away)
        parts = {cluster: _beside(part, later[cluster]) for cluster, part in parts.items()}
    return Wanted(parts, moving)


def _stood_in_for(
    fabric: Fabric, region: str, actual: Mapping[Cluster, Actual], steady: frozenset[str]
) -> frozenset[str]:
    """The first core node, if the second router queue takes everything in its stead and must go
    on: the node isn't steady yet, or its own queue gets nothing."""
    found = actual.get(Cluster(region, "core"))
    if found is None or Binding(INTAKE, router_queue(2)) not in found.bindings:
        return frozenset()
    first = fabric.region(region).core[0].name
    own = Binding(INTAKE, router_queue(1)) in found.bindings
    return frozenset() if first in steady and own else frozenset({first})


def _current(link: Link, actual: Mapping[Cluster, Actual]) -> Node | None:
    found = actual.get(link.runs_on)
    value = found.shovels.get(link.name) if found else None
    queue = value.get("src-queue") if value else None
    return link.home_of(queue) if isinstance(queue, str) else None


def _is_made(link: Link, home: Node, actual: Mapping[Cluster, Actual]) -> bool:
    """Whether the queue on ``home`` is there and gets what it should."""
    found = actual.get(link.source)
    part = link.source_part(home)
    return (
        found is not None
        and all(queue.name in found.queues for queue in part.queues)
        and found.bindings.issuperset(part.bindings)
    )


def _beside(part: Part, later: Part) -> Part:
    """``part`` with the queues and bindings that it will have next; its shovels as they are."""
    both = part + later
    return Part(both.exchanges, both.queues, both.bindings, part.shovels)
