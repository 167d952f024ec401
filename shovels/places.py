"""Where each shovel is: at its preferred place, or elsewhere while a broker of that is away.

Pure. Where a shovel is, is remembered by the brokers alone: its parameter lies on the broker that
it runs on, and names the one that it takes from. So keepers that started at different times agree,
and a keeper that has just started doesn't move anything back to a broker that has only just begun.

A move takes two rounds or more while the old place works (*make before break*): first queue and
shovel are made at the new place beside the old one; once they are there, the old ones go. Copies
are dropped by identity, as everywhere.

Worked example. ``publish.oregon.1`` takes from client-1 and prefers core-1; core-3 stands in for
it, then core-2. At 0 s core-1 dies: the shovel is made on core-3. At 20 s core-1 is back, with the
shovel that it remembers, which is removed. At 30 s core-1 has run for ten seconds: the shovel is
made there, and in the next round the one on core-3 goes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final

from newsfabric.settings import Credentials, Fabric
from newsfabric.topics import TopicTable
from newsfabric.topology import (
    Broker,
    Link,
    Part,
    Place,
    region_links,
    shovel_plan,
    shovel_value,
)
from shovels.plan import Actual

# Seconds for which a broker must run before what another does in its stead goes back to it: one
# that has only just begun is busy, and may not last.
STEADY_AFTER: Final = 10.0


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """Brokers that are ``away``, and those that run and did for so long that they are ``steady``.

    ``unfit`` has for links, by id, the brokers on which their shovels can't be made to run.
    """

    away: frozenset[Broker] = frozenset()
    steady: frozenset[Broker] = frozenset()
    unfit: Mapping[str, frozenset[Broker]] = dataclasses.field(default_factory=dict)


class Uptimes:
    """Since when each broker runs, as far as was seen. One per keeper."""

    def __init__(self) -> None:
        self._since: dict[Broker, float] = {}

    def observe(self, running: Mapping[Broker, bool], now: float) -> Seen:
        """One look at brokers, at ``now`` in seconds of a clock that never goes back."""
        for broker, runs in running.items():
            if runs:
                self._since.setdefault(broker, now)
            else:
                self._since.pop(broker, None)
        return Seen(
            away=frozenset(broker for broker, runs in running.items() if not runs),
            steady=frozenset(b for b, since in self._since.items() if now - since >= STEADY_AFTER),
        )


def choose_place(link: Link, present: frozenset[Place], seen: Seen) -> Place:
    """Where ``link`` should be, given the places where it is.

    The preferred place once its brokers are steady; else where it is, if that works; else the
    first place that works. With none it stays where it was planned.
    """
    broken = seen.away | seen.unfit.get(link.id, frozenset())
    working = [place for place in link.places() if not {place.source, place.host} & broken]
    steady = [place for place in working if {place.source, place.host} <= seen.steady]
    if link.preferred in steady:
        return link.preferred
    choices = [[place for place in steady if place in present]]
    choices += [[place for place in working if place in present], working, [link.preferred]]
    return next(places[0] for places in choices if places)


@dataclasses.dataclass(frozen=True, slots=True)
class Wanted:
    """One round's plan for a region: what its brokers should hold, and where each link should be.

    ``moving`` are the links that are still at an old place, too (to be looked at soon).
    """

    parts: Mapping[Broker, Part]
    places: Mapping[str, Place]
    moving: tuple[str, ...] = ()


def wanted_now(
    fabric: Fabric,
    region: str,
    topics: TopicTable,
    actual: Mapping[Broker, Actual],
    seen: Seen,
    credentials: Credentials,
) -> Wanted:
    """What ``region`` wants in this round, given what is there.

    ``credentials`` are the shovels'.
    """
    chosen: dict[str, Place] = {}
    during: dict[str, tuple[Place, ...]] = {}
    moving: list[str] = []
    for link in region_links(fabric, region, topics):
        present = _present(link, actual, credentials)
        place = chosen[link.id] = choose_place(link, present, seen)
        left = present - {place}
        waits = bool(left) and not _is_made(link, place, present, actual)
        during[link.id] = (place, *sorted(left, key=str)) if waits else (place,)
        if left:
            moving.append(link.id)
    parts = shovel_plan(fabric, region, topics, places=during)
    return Wanted(parts, chosen, tuple(sorted(moving)))


def _present(
    link: Link, actual: Mapping[Broker, Actual], credentials: Credentials
) -> frozenset[Place]:
    """The places at which brokers that answer have the shovel of ``link``."""
    found = []
    for place in link.places():
        host = actual.get(place.host)
        value = host.shovels.get(link.name) if host else None
        wanted = shovel_value(link.shovel(place), credentials)
        if value is not None and value.get("src-uri") == wanted["src-uri"]:
            found.append(place)
    return frozenset(found)


def _is_made(
    link: Link, place: Place, present: frozenset[Place], actual: Mapping[Broker, Actual]
) -> bool:
    """Whether shovel, queue and bindings are there at ``place``."""
    source = actual.get(place.source)
    part = link.source_part()
    return (
        place in present
        and source is not None
        and link.queue.name in source.queues
        and source.bindings.issuperset(part.bindings)
    )
