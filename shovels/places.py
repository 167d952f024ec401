"""Where each shovel is: at its preferred place, or elsewhere while a broker of that is away.

Pure. Where a shovel is, is remembered by the brokers alone: its parameter lies on the broker that
it runs on, and names the one that it takes from. So keepers that started at different times agree,
and a keeper that has just started doesn't move anything back to a broker that has only just begun.

A move takes two rounds or more (*make before break*): queue and shovel are made at the new place
beside the old one. A shovel goes only when one at an earlier place of its order runs, between
brokers that are steady; what is earlier never goes. So any number of keepers, each with a view of
its own, can't remove all that a link has. Copies are dropped by identity, as everywhere. Where
only the source changes there is one shovel, which changes over once the new queue is bound.

Worked example. ``publish.oregon.1`` takes from client-1 and prefers core-1; core-3 stands in for
it, then core-2. At 0 s core-1 dies: the shovel is made on core-3. At 20 s core-1 is back with the
shovel that it remembers: both run. At 30 s core-1 has run for ten seconds, and the one on core-3
goes.

Where the source alone changes, one keeper could undo what another did, each for reasons that only
it knows. So keepers follow: a source that another keeper has left for a later one, and that didn't
do for this keeper either, is unfit for it, too. One that another keeper has gone back to is fit,
unless none is. Example: client-1, which runs ``receipts.1``, doesn't reach core-1, and the keepers
do. Keeper A tries twice, and takes from core-3. Keeper B, which hasn't tried as often, sees that,
and leaves the shovel there; ten minutes later the first of them tries core-1 again, and the other
lets it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

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

    ``full`` are those that take no messages: a shovel there says that it runs and brings nothing.
    ``unfit`` has for links, by id, the brokers with which their shovels can't be made to work,
    ``silent`` the places at which they bring nothing, whatever they say. ``settled`` has those that
    were where they should be when this keeper looked last, and where that was; ``troubled`` the ids
    of those that don't run, or bring nothing, for some seconds.
    """

    away: frozenset[Broker] = frozenset()
    steady: frozenset[Broker] = frozenset()
    full: frozenset[Broker] = frozenset()
    unfit: Mapping[str, frozenset[Broker]] = dataclasses.field(default_factory=dict)
    silent: Mapping[str, Place] = dataclasses.field(default_factory=dict)
    settled: Mapping[str, Place] = dataclasses.field(default_factory=dict)
    troubled: frozenset[str] = frozenset()


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


def choose_place(link: Link, present: Collection[Place], seen: Seen) -> Place:
    """Where ``link`` should be, given the places where it is.

    The first place of its order that works, if it is there already or the brokers are steady; else
    the first that works. Where none works it stays where it is, if those brokers are up; else it is
    where some are, or was planned.
    """
    up = [place for place in link.places() if not _brokers(place) & seen.away]
    unfit = seen.unfit.get(link.id, frozenset())
    # To take from a full broker makes room there.
    fit = [place for place in up if not _brokers(place) & unfit and place.host not in seen.full]
    trusted = [place for place in fit if place in present or _brokers(place) <= seen.steady]
    there = [place for place in link.places() if place in present]
    stays = [place for place in there if place in up]
    return next(found[0] for found in (trusted, fit, stays, up, there, [link.preferred]) if found)


@dataclasses.dataclass(frozen=True, slots=True)
class Wanted:
    """One round's plan for a region: what its brokers should hold, and where each link should be.

    ``moving`` are the links that are at another place, too (to be looked at soon), ``settled``
    those that are where they should be. ``left`` are the sources that other keepers have left for
    later ones, ``resumed`` those that they have gone back to, both by link.
    """

    parts: Mapping[Broker, Part]
    places: Mapping[str, Place]
    moving: tuple[str, ...] = ()
    settled: Mapping[str, Place] = dataclasses.field(default_factory=dict)
    left: Mapping[str, Broker] = dataclasses.field(default_factory=dict)
    resumed: Mapping[str, Broker] = dataclasses.field(default_factory=dict)


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
    settled: dict[str, Place] = {}
    left: dict[str, Broker] = {}
    resumed: dict[str, Broker] = {}
    during: dict[str, tuple[Place, ...]] = {}
    moving: list[str] = []
    for link in region_links(fabric, region, topics):
        present = _present(link, actual, credentials)
        unfit = seen.unfit.get(link.id, frozenset())
        match _moved_by_another(link, present, seen):
            case before, after if _is_later(link, after, before):
                if link.id in seen.troubled:
                    left[link.id] = before.source
                    unfit |= {before.source}
            case _, after if any(each.source not in unfit for each in link.places()):
                resumed[link.id] = after.source
                unfit -= {after.source}
        follows = dataclasses.replace(seen, unfit={**seen.unfit, link.id: unfit})
        place = chosen[link.id] = choose_place(link, present, follows)
        if place in present:
            settled[link.id] = place
        others = [each for each in present if each != place]
        during[link.id] = (
            place,
            *_needed(link, others, present, actual, seen),
            *_waiting(link, place, actual),
        )
        if others:
            moving.append(link.id)
    parts = shovel_plan(fabric, region, topics, places=during)
    return Wanted(parts, chosen, tuple(sorted(moving)), settled, left, resumed)


def _moved_by_another(
    link: Link, present: Sequence[Place], seen: Seen
) -> tuple[Place, Place] | None:
    """Where ``link`` was and is, if another keeper has changed the source of its shovel."""
    before = seen.settled.get(link.id)
    if before is None or before in present:
        return None
    return next(((before, after) for after in present if after.host == before.host), None)


def _is_later(link: Link, place: Place, other: Place) -> bool:
    order = link.places()
    return order.index(place) > order.index(other)


def _needed(
    link: Link,
    others: Sequence[Place],
    present: Sequence[Place],
    actual: Mapping[Broker, Actual],
    seen: Seen,
) -> list[Place]:
    """Those of ``others`` that stay: up to the first of ``present`` that is proven to work.

    So of two keepers neither removes what the other relies on, whatever each has seen.
    """
    for n, place in enumerate(present):
        steady = _brokers(place) <= seen.steady - seen.away
        if steady and _runs(link, place, actual) and seen.silent.get(link.id) != place:
            return [each for each in others if each in present[: n + 1]]
    return list(others)


def _waiting(link: Link, place: Place, actual: Mapping[Broker, Actual]) -> list[Place]:
    """Places before ``place`` whose source has the queue still: the shovel will go back there.

    Another keeper may be about to do so, and has seen that the queue is there.
    """
    if len(link.sources) == 1:
        return []
    before = link.places()[: link.places().index(place)]
    held = {each: actual[each.source].queues for each in before if each.source in actual}
    return [each for each, queues in held.items() if link.queue.name in queues]


def _present(link: Link, actual: Mapping[Broker, Actual], credentials: Credentials) -> list[Place]:
    """The places at which brokers that answer have the shovel of ``link``, in its order."""
    found = []
    for place in link.places():
        host = actual.get(place.host)
        value = host.shovels.get(link.name) if host else None
        wanted = shovel_value(link.shovel(place), credentials)
        if value is not None and _address(value.get("src-uri")) == _address(wanted["src-uri"]):
            found.append(place)
    return found


def _address(uri: Any) -> str:
    """Which broker ``uri`` is of, whoever logs in there."""
    parts = urlsplit(str(uri))
    return parts.netloc.rpartition("@")[2] + parts.path


def _runs(link: Link, place: Place, actual: Mapping[Broker, Actual]) -> bool:
    """Whether the shovel on the host of ``place`` says so."""
    host = actual.get(place.host)
    return host is not None and host.states.get(link.name) == "running"


def _brokers(place: Place) -> frozenset[Broker]:
    return frozenset({place.source, place.host})
