"""Where each shovel is: at its preferred place, or elsewhere while a broker of that is away.

Pure. Where a shovel is, is remembered by the brokers alone: its parameter lies on the broker that
it runs on, and names the one that it takes from. So keepers that started at different times agree,
and a keeper that has just started doesn't move anything back to a broker that has only just begun.

A move takes two rounds or more (*make before break*): queue and shovel are made at the new place
beside the old one. A shovel goes only when one at an earlier place of its order brings canaries,
between brokers that are steady; what is earlier never goes. So any number of keepers, each with a
view of its own, can't remove all that a link has. Copies are dropped by identity, as everywhere.
Where only the source changes there is one shovel, which changes over once the new queue is bound.

Worked example. ``publish.oregon.1`` takes from client-1 and prefers core-1; core-3 stands in for
it, then core-2. At 0 s core-1 dies: the shovel is made on core-3. At 20 s core-1 is back with the
shovel that it remembers: both run. At 30 s core-1 has run for ten seconds, and the one on core-3
goes.

Where the source alone changes there is nothing to compare: the shovel takes from one broker, and
the keepers may each know something of another. So three rules keep them from undoing each other's
work. (1) A source isn't away for a link whose shovel runs from it: its host reaches it, whoever
doesn't. (2) What works stays. A link goes back to an earlier source only if this keeper has seen
that one be away or only just back meanwhile, or has seen the link where it is for ten minutes. (3)
What another keeper has chosen isn't unfit. Example: client-1, which runs ``receipts.1``, doesn't
reach core-1, and the keepers do. Keeper A tries twice, and takes from core-3. Keeper B, which
hasn't tried as often, sees core-1 run as ever, and by (2) leaves the link there. After ten minutes
A tries core-1 again, and by (3) B lets it.

A broker that runs and doesn't say what is on it (somebody's queue there spoils the answer, or the
answer comes too late) counts as away: nobody could see a shovel there. But what can be taken from
it alone is taken from it still.

Of a link with several hosts a keeper that alone can't reach a host makes a stand-in, and the others
remove it, since the link works. Then it leaves the link to the others for a minute, as if all hosts
were up. The price: a stand-in that a person deletes is missing for up to a minute.
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

    ``runs`` has these and ``young``, those that were seen to come back. ``unread`` are those of
    ``away`` that run, and don't say what is on them.
    ``full`` are those that take no messages: a shovel there says that it runs and brings nothing.
    By link id, ``unfit`` has the brokers with which its shovel can't be made to work, ``proven``
    the hosts on which it brought a canary in the last seconds, ``back`` the sources that it may go
    back to, and ``known`` those from which this keeper had it take. ``left`` are the links whose
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
    """Since when each broker runs, as far as was seen. One per keeper."""

    def __init__(self) -> None:
        self._since: dict[Broker, float] = {}
        self._was_away: set[Broker] = set()

    def observe(self, running: Mapping[Broker, bool], now: float) -> Seen:
        """One look at brokers, at ``now`` in seconds of a clock that never goes back."""
        for broker, runs in running.items():
            if runs:
                self._since.setdefault(broker, now)
            else:
                self._since.pop(broker, None)
                self._was_away.add(broker)
        steady = {b for b, since in self._since.items() if now - since >= STEADY_AFTER}
        return Seen(
            away=frozenset(broker for broker, runs in running.items() if not runs),
            runs=frozenset(self._since),
            steady=frozenset(steady),
            young=frozenset((self._since.keys() - steady) & self._was_away),
        )


def choose_place(link: Link, present: Collection[Place], seen: Seen) -> Place:
    """Where ``link`` should be, given the places where it is (``present``).

    It is the first, in the link's order, of the first of these groups that isn't empty. A place is
    *fit* if its brokers are up and not unfit for the link, and its host isn't full.

    1. Fit places at which the link is, or whose brokers are steady. (One that would take a shovel
       from another source that is fit must have come back, too.)
    2. Fit places.
    3. Places at which the link is, and whose brokers are up.
    4. Places whose brokers are up.
    5. Places at which the link is.
    6. The preferred place.
    """
    up = [place for place in link.places() if not _brokers(place) & seen.away]
    unfit = seen.unfit.get(link.id, frozenset())
    # To take from a full broker makes room there.
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
class Plan:
    """What a region wants now: what its brokers should hold, and where each link should be.

    ``moving`` are the links that are at another place, too (to be looked at soon). ``present`` has
    for each link where it is, by id.
    """

    parts: Mapping[Broker, Part]
    places: Mapping[str, Place]
    moving: tuple[str, ...]
    present: Mapping[str, Sequence[Place]]


def plan_now(
    fabric: Fabric,
    region: str,
    topics: TopicTable,
    actual: Mapping[Broker, Actual],
    seen: Seen,
    credentials: Credentials,
) -> Plan:
    """What ``region`` wants in this round, given what is there.

    ``credentials`` are the shovels'.
    """
    chosen: dict[str, Place] = {}
    at: dict[str, Sequence[Place]] = {}
    during: dict[str, tuple[Place, ...]] = {}
    moving: list[str] = []
    for link in region_links(fabric, region, topics):
        present = at[link.id] = _present(link, actual, credentials)
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
    return Plan(parts, chosen, tuple(sorted(moving)), at)


def _moved_by_another(link: Link, present: Sequence[Place], seen: Seen) -> Broker | None:
    """The source that ``link`` takes from, if this keeper neither chose it nor saw it before."""
    known = seen.known.get(link.id, frozenset())
    sources = [place.source for place in present if place.source not in known]
    return sources[0] if sources else None


def _as_the_link_sees(
    link: Link,
    present: Sequence[Place],
    actual: Mapping[Broker, Actual],
    seen: Seen,
) -> Seen:
    """``seen``, by the rules that keep keepers from undoing each other's work."""
    unfit, back = seen.unfit.get(link.id, frozenset()), seen.back.get(link.id, frozenset())
    reached = frozenset(place.source for place in present if _runs(link, place, actual))
    hosts = frozenset(place.host for place in link.places() if link.id in seen.left)
    if len(link.sources) == 1:
        # It takes from there or from nowhere, and its queue is there as a rule.
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
    link: Link,
    others: Sequence[Place],
    present: Sequence[Place],
    actual: Mapping[Broker, Actual],
    seen: Seen,
) -> list[Place]:
    """Those of ``others`` that stay: up to the first of ``present`` that is proven to work.

    So of two keepers neither removes what the other relies on, whatever each has seen.
    """
    proven = seen.proven.get(link.id, frozenset())
    for n, place in enumerate(present):
        steady = _brokers(place) <= seen.steady - seen.away
        if steady and _runs(link, place, actual) and place.host in proven:
            return [each for each in others if each in present[: n + 1]]
    return list(others)


def _waiting(link: Link, place: Place, actual: Mapping[Broker, Actual]) -> list[Place]:
    """Places whose source has the queue still, and which the shovel may take from.

    That are those before ``place``: it will go back there, and another keeper may be about to make
    it do so, having seen that the queue is there. While the host doesn't say where its shovel takes
    from, it is any.
    """
    if len(link.sources) == 1:
        return []
    places = link.places()
    may_be = places[: places.index(place)] if place.host in actual else places
    others = [each for each in may_be if each != place and each.source in actual]
    held = {each: actual[each.source].queues for each in others}
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
