"""The place of each shovel: its preferred one, or another while a broker of that is away.

Pure. Only the brokers remember where a shovel is: its parameter is stored on the broker that runs
it, and names its source. So keepers that started at different times agree. A keeper that has just
started doesn't move a shovel back to a broker that has only just started, either.

A move takes two rounds or more (*make before break*): queue and shovel are made at the new place
beside the old one. A shovel is deleted only if a shovel at an earlier place of its order delivers
canaries, between brokers that are steady; a shovel at an earlier place is never deleted for a later
one. So any number of keepers, each with its own view, can't remove all shovels of a link. Copies
are dropped by identity, as everywhere. If only the source changes there is one shovel; it is
switched once the new queue is bound.

Worked example. ``publish.oregon.1`` takes from client-1 and prefers core-1; its stand-ins are
core-3, then core-2. At 0 s core-1 dies: the shovel is made on core-3. At 20 s core-1 is back with
the shovel that it stores: both run. At 30 s core-1 has run for ten seconds, and the shovel on
core-3 is deleted.

If only the source changes there are no two shovels to compare: one shovel takes from one broker,
and keepers may know different things about others. So three rules keep them from undoing each
other's work. (1) A source isn't away for a link whose shovel runs from it: its host reaches it,
even if a keeper doesn't. (2) A shovel that works stays. A link moves back to an earlier source in
two cases only: this keeper has seen that source, or the link's host, away or only just back
meanwhile; or it has seen the link at its present source for ten minutes. (3) A source that another
keeper has chosen isn't unfit. Example: client-1, which runs ``receipts.1``, can't reach core-1, but
the keepers can. Keeper A tries twice, and changes to core-3. Keeper B, which hasn't tried as often,
sees core-1 run as ever, and by (2) leaves the link at core-3. After ten minutes A tries core-1
again, and by (3) B allows it.

A broker may run and yet not list its objects (some queue there breaks the reply, or the reply is
too late). Such a broker counts as away: no keeper could see a shovel there. But a link that has no
other source still takes from it.

If a link has several hosts, a keeper that alone can't reach a host makes a stand-in. The others
remove it, since the link works. Then the first keeper leaves the link to the others for a minute,
as if all hosts were up. The price: a stand-in that a person deletes is missing for up to a minute.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from newsfabric.settings import Fabric
from newsfabric.topics import TopicTable
from newsfabric.topology import (
    Broker,
    BrokerObjects,
    KeptShovel,
    ShovelPlace,
    region_links,
    shovel_plan,
)
from shovels.plan import Actual

# Seconds for which a broker must run before its stand-in gives way: a broker that has just started
# is busy, and may not last.
STEADY_AFTER: Final = 10.0


@dataclasses.dataclass(frozen=True, slots=True)
class BrokersView:
    """A keeper's view of the brokers: ``away``, or running, and ``steady`` after running for long.

    ``runs`` has the steady ones, the ``young`` ones, which were seen to return, and the others that
    run. ``unread`` are those of ``away`` that run, but don't list their objects. ``full`` are those
    that accept no messages: a shovel there is "running" and delivers nothing. The mappings are by
    link id. ``unfit``: the brokers with which its shovel can't be made to work; ``proven``: the
    hosts on which a canary arrived in the last seconds; ``back``: the sources that it may move back
    to; ``known``: the sources that this keeper chose or saw last. ``left``: ids of links whose
    stand-ins other keepers have just removed.
    """

    away: frozenset[Broker] = frozenset()
    steady: frozenset[Broker] = frozenset()
    full: frozenset[Broker] = frozenset()
    young: frozenset[Broker] = frozenset()
    unfit: Mapping[str, frozenset[Broker]] = dataclasses.field(default_factory=dict)
    proven: Mapping[str, frozenset[Broker]] = dataclasses.field(default_factory=dict)
    back: Mapping[str, frozenset[Broker]] = dataclasses.field(default_factory=dict)
    known: Mapping[str, frozenset[Broker]] = dataclasses.field(default_factory=dict)
    left: frozenset[str] = frozenset()
    runs: frozenset[Broker] = frozenset()
    unread: frozenset[Broker] = frozenset()


class Uptimes:
    """The time since when each broker runs, as far as it was seen. One object for each keeper."""

    def __init__(self) -> None:
        self._since: dict[Broker, float] = {}
        self._was_away: set[Broker] = set()

    def observe(self, running: Mapping[Broker, bool], now: float) -> BrokersView:
        """Note one check of the brokers, at ``now`` in seconds, monotonic; return the view."""
        for broker, runs in running.items():
            if runs:
                self._since.setdefault(broker, now)
            else:
                self._since.pop(broker, None)
                self._was_away.add(broker)
        steady = {b for b, since in self._since.items() if now - since >= STEADY_AFTER}
        return BrokersView(
            away=frozenset(broker for broker, runs in running.items() if not runs),
            runs=frozenset(self._since),
            steady=frozenset(steady),
            young=frozenset((self._since.keys() - steady) & self._was_away),
        )


def choose_place(
    link: KeptShovel, present: Collection[ShovelPlace], seen: BrokersView
) -> ShovelPlace:
    """Return the place for ``link``, given the places where it is (``present``).

    The groups below are tried in their order; the place is the first one, in the link's order, of
    the first group that isn't empty. A place is *fit* if its brokers are up and not unfit for the
    link, and its host isn't full.

    1. Fit places at which the link is, or whose brokers are steady. (If the host has a shovel of
       the link from another fit source, the source must also be one to move back to.)
    2. Fit places.
    3. Places at which the link is, and whose brokers are up.
    4. Places whose brokers are up.
    5. Places at which the link is.
    6. The preferred place.
    """
    up = [place for place in link.places() if not _brokers(place) & seen.away]
    unfit = seen.unfit.get(link.id, frozenset())
    # A full broker may be a source: taking from it makes room there.
    fit = [place for place in up if not _brokers(place) & unfit and place.host not in seen.full]
    works = {place.host for place in fit if place in present}
    back = seen.back.get(link.id, frozenset())
    trusted = [
        place
        for place in fit
        if place in present
        or (_brokers(place) <= seen.steady and (place.host not in works or place.source in back))
    ]
    there = [place for place in link.places() if place in present]
    stays = [place for place in there if place in up]
    return next(found[0] for found in (trusted, fit, stays, up, there, [link.preferred]) if found)


@dataclasses.dataclass(frozen=True, slots=True)
class RegionPlan:
    """The present plan of a region: the objects on its brokers, and the place of each link.

    ``moving``: the links that are at another place, too, and so need another round soon.
    ``present``: link id → the places where it is.
    """

    parts: Mapping[Broker, BrokerObjects]
    places: Mapping[str, ShovelPlace]
    moving: tuple[str, ...]
    present: Mapping[str, Sequence[ShovelPlace]]


def plan_now(
    fabric: Fabric,
    region: str,
    topics: TopicTable,
    actual: Mapping[Broker, Actual],
    seen: BrokersView,
) -> RegionPlan:
    """Return the plan of ``region`` for this round, given the present objects."""
    chosen: dict[str, ShovelPlace] = {}
    at: dict[str, Sequence[ShovelPlace]] = {}
    during: dict[str, tuple[ShovelPlace, ...]] = {}
    moving: list[str] = []
    for link in region_links(fabric, region, topics):
        present = at[link.id] = _present(link, actual)
        seen_by_it = _as_the_link_sees(link, present, actual, seen)
        place = chosen[link.id] = choose_place(link, present, seen_by_it)
        others = [each for each in present if each != place]
        during[link.id] = (
            place,
            *_needed(link, others, present, actual, seen),
            *_waiting(link, place, actual),
        )
        if others:
            moving.append(link.id)
    parts = shovel_plan(fabric, region, topics, places=during)
    return RegionPlan(parts, chosen, tuple(sorted(moving)), at)


def _moved_by_another(
    link: KeptShovel, present: Sequence[ShovelPlace], seen: BrokersView
) -> Broker | None:
    """Return the source of ``link`` if this keeper neither chose it nor saw it before."""
    known = seen.known.get(link.id, frozenset())
    sources = [place.source for place in present if place.source not in known]
    return sources[0] if sources else None


def _as_the_link_sees(
    link: KeptShovel,
    present: Sequence[ShovelPlace],
    actual: Mapping[Broker, Actual],
    seen: BrokersView,
) -> BrokersView:
    """Return ``seen``, changed by the rules that keep keepers from undoing each other's work."""
    unfit, back = seen.unfit.get(link.id, frozenset()), seen.back.get(link.id, frozenset())
    reached = frozenset(place.source for place in present if _runs(link, place, actual))
    hosts = frozenset(place.host for place in link.places() if link.id in seen.left)
    if len(link.sources) == 1:
        # It takes from there or from nowhere, and its queue normally exists there.
        reached |= seen.unread & {place.source for place in link.places()}
    if (moved := _moved_by_another(link, present, seen)) is not None:
        unfit, back = unfit - {moved}, frozenset()
    return dataclasses.replace(
        seen,
        away=seen.away - reached - hosts,
        steady=seen.steady | hosts,
        unfit={**seen.unfit, link.id: unfit},
        back={**seen.back, link.id: back},
    )


def _needed(
    link: KeptShovel,
    others: Sequence[ShovelPlace],
    present: Sequence[ShovelPlace],
    actual: Mapping[Broker, Actual],
    seen: BrokersView,
) -> list[ShovelPlace]:
    """Return those of ``others`` that stay: up to the first of ``present`` proven to work.

    So of two keepers neither removes a shovel on which the other relies, whatever each has seen.
    """
    proven = seen.proven.get(link.id, frozenset())
    for n, place in enumerate(present):
        steady = _brokers(place) <= seen.steady - seen.away
        if steady and _runs(link, place, actual) and place.host in proven:
            return [each for each in others if each in present[: n + 1]]
    return list(others)


def _waiting(
    link: KeptShovel, place: ShovelPlace, actual: Mapping[Broker, Actual]
) -> list[ShovelPlace]:
    """Return places whose source still has the queue, and which the shovel may take from.

    These are the places before ``place``: the link will move back there. Another keeper may be
    about to do so, having seen that the queue exists. While the host doesn't report the shovel's
    source, it may be any place.
    """
    if len(link.sources) == 1:
        return []
    places = link.places()
    may_be = places[: places.index(place)] if place.host in actual else places
    others = [each for each in may_be if each != place and each.source in actual]
    held = {each: actual[each.source].queues for each in others}
    return [each for each, queues in held.items() if link.queue.name in queues]


def _present(link: KeptShovel, actual: Mapping[Broker, Actual]) -> list[ShovelPlace]:
    """Return the places at which brokers that reply have the shovel of ``link``, in its order."""
    found = []
    for place in link.places():
        host = actual.get(place.host)
        value = host.shovels.get(link.name) if host else None
        source = link.shovel(place).source
        if value is not None and _address(value.get("src-uri")) == _address(source):
            found.append(place)
    return found


def _address(uri: Any) -> str:
    """Return the address of the broker in ``uri``, without its login."""
    parts = urlsplit(str(uri))
    return parts.netloc.rpartition("@")[2] + parts.path


def _runs(link: KeptShovel, place: ShovelPlace, actual: Mapping[Broker, Actual]) -> bool:
    """Return whether the shovel on the host of ``place`` reports that it runs."""
    host = actual.get(place.host)
    return host is not None and host.states.get(link.name) == "running"


def _brokers(place: ShovelPlace) -> frozenset[Broker]:
    return frozenset({place.source, place.host})
