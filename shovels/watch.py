"""Canaries through every shovel of a region, and which shovels to make anew. Pure.

The region that keeps a shovel sends its canaries too, into the source's exchange, wherever that is.
So sending and arriving are timed by one clock, a canary that the source didn't take accuses
nobody, and one that the source took and that never comes accuses the shovel, its queue
or a binding: all of them the keeper's own.

A shovel is made anew for two reasons: it says that it runs and brings nothing
(:mod:`newsfabric.brokers.watch`), or it is planned and doesn't even say so for
:data:`MISSING_AFTER`. One that didn't help when it was made anew :data:`TRIES` times is made anew
once more, and the broker is *unfit* for it: what runs its shovels may be dead until it restarts. So
it is, too, for one that stops that often before it has brought anything. Then the shovel is made on
another broker, if it may run on one, or takes from another one, if it may; after :data:`UNFIT_FOR`
it is tried there again. The broker is fit again as soon as a canary comes through it, and once it,
or the broker that the shovel runs on, was away.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from newsfabric.backoff import Backoff
from newsfabric.brokers.watch import RESTART_BASE, RESTART_CAP, SILENT_AFTER, Watched
from newsfabric.topology import Broker, Link, Place

# Seconds for which a shovel may say nothing of itself, or that it starts: what it connects to may
# be away for a moment.
MISSING_AFTER: Final = 30.0
# How often a shovel that doesn't run, or brings nothing, is made anew before its broker is unfit.
TRIES: Final = 2
# Seconds.
UNFIT_FOR: Final = 600.0
# Seconds for which a link is left to other keepers that have removed a stand-in of it.
LEFT_FOR: Final = 60.0


class Missing:
    """One shovel that should run on a broker: since when it doesn't, and what was tried."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._not_before = 0.0
        self._tries = 0
        self._backoff = Backoff(base=RESTART_BASE, cap=RESTART_CAP)

    def runs(self, now: float) -> None:
        """It says that it runs."""
        self.excused()
        self._backoff.succeeded(now)

    def excused(self) -> None:
        """Nothing can be expected of it."""
        self._since, self._tries = None, 0

    def due(self, now: float, rng: random.Random) -> bool:
        """It doesn't run: whether to make it anew now. Each yes counts."""
        if self._since is None:
            self._since, self._not_before = now, now + MISSING_AFTER
        if now < self._not_before:
            return False
        self._tries += 1
        self._not_before = now + MISSING_AFTER + self._backoff.failed(now, rng)
        return True

    @property
    def hopeless(self) -> bool:
        """Whether making it anew didn't help."""
        return self._tries > TRIES


class Followed:
    """One link: where it is, and what is known of its shovel."""

    def __init__(self, link: Link, rng: random.Random) -> None:
        self.link = link
        self.watched = Watched()
        #: Where it should be, and since when.
        self.place = link.preferred
        self._chosen_at = 0.0
        #: The source that it was seen to take from, and since when.
        self.source = link.preferred.source
        self._since = 0.0
        #: When the newest canary that came was sent, by the host that it came to.
        self._heard: dict[Broker, float] = {}
        self._missing = Missing()
        # How often it was made anew where it is, or stopped, and had brought nothing.
        self._silent = 0
        # Whether it ran when it was looked at, and has brought nothing since it began to.
        self._ran = self._idle = False
        # Brokers with which it couldn't be made to work, and until when they are avoided.
        self._unfit: dict[Broker, float] = {}
        # When brokers were last away, or only just back.
        self._unsteady: dict[Broker, float] = {}
        # Whether it was where it should be when it was looked at last, and when that was.
        self._there: float | None = None
        self._left_until = 0.0
        self._rng = rng

    def placed(self, place: Place, now: float) -> None:
        """It should be at ``place`` from now on. If that is another one it gets its full time."""
        if place != self.place:
            self.place, self._chosen_at, self._there = place, now, None
            self.watched.renewed()
            self._missing = Missing()
            self._silent, self._ran = 0, False

    def seen(self, present: Sequence[Place], unsteady: Collection[Broker], now: float) -> None:
        """It is at these places, while these brokers were away, or only just back."""
        self._unsteady |= dict.fromkeys(unsteady, now)
        if self.place in present:
            self._there = now
        elif self._there is not None:
            gone = self.place.host not in {place.host for place in present}
            if gone and self._unsteady.get(self.place.host, -1.0) < self._there:
                # Another keeper has removed it.
                self._left_until = now + LEFT_FOR
            self._there = None
        for source in {place.source for place in present} - {self.source}:
            chosen = source == self.place.source
            self.source, self._since = source, self._chosen_at if chosen else now
            if not chosen:
                # Another keeper has reason to believe in it.
                self._unfit.pop(source, None)

    def arrived(self, host: Broker, sent_at: float, now: float) -> None:
        """A canary has come to ``host``: that is fit, also if the link is to be elsewhere."""
        self._heard[host] = max(sent_at, self._heard.get(host, sent_at))
        self._unfit.pop(host, None)
        if host == self.place.host:
            self._unfit.pop(self.place.source, None)
            self.watched.arrived(sent_at, now)
            self._silent, self._idle = 0, False

    def due(self, said: str | None, now: float) -> bool:
        """Whether to make the shovel anew now. It ``said`` so of itself; None: it isn't listed."""
        if said == "running":
            self._idle = self._idle or not self._ran
            self._ran = True
            self._missing.runs(now)
            due = self.watched.distrust(now, self._rng)
            self._silent += due
        else:
            self._silent += self._ran and self._idle
            self._ran = False
            self.watched.renewed()
            due = self._missing.due(now, self._rng)
        if due:
            self._ran = False
        if self._silent > TRIES or self._missing.hopeless:
            # Another broker may do, but where there is none it is tried all the same.
            host_may_differ = len(self.link.hosts) > 1
            unfit = self.place.host if host_may_differ else self.place.source
            self._unfit[unfit] = now + UNFIT_FOR
        return due

    def excused(self) -> None:
        """Nothing can be expected of it."""
        self.watched.renewed()
        self._missing.excused()
        self._silent, self._ran = 0, False

    def were_away(self, brokers: Collection[Broker]) -> None:
        """``brokers`` are away: none of them is what it was."""
        for broker in list(self._unfit):
            if broker in brokers or self.place.host in brokers:
                del self._unfit[broker]

    def unfit(self, now: float) -> frozenset[Broker]:
        """The brokers with which it can't be made to work."""
        return frozenset(broker for broker, until in self._unfit.items() if now < until)

    def proven(self, now: float) -> frozenset[Broker]:
        """The hosts on which a canary came that was sent less than :data:`SILENT_AFTER` ago."""
        return frozenset(
            host for host, sent_at in self._heard.items() if now - sent_at <= SILENT_AFTER
        )

    def back(self, now: float) -> frozenset[Broker]:
        """The sources that were unsteady since it takes from where it does; all if its host was.

        It may go back to them once they are there, and to all after :data:`UNFIT_FOR`
        (:func:`shovels.places.choose_place`).
        """
        sources = frozenset(place.source for place in self.link.places())
        if now - self._since >= UNFIT_FOR or self._was_unsteady(self.place.host):
            return sources
        return frozenset(filter(self._was_unsteady, sources))

    def _was_unsteady(self, broker: Broker) -> bool:
        return self._unsteady.get(broker, -1.0) >= self._since

    def left(self, now: float) -> bool:
        """Whether other keepers have just removed it from where it should be, which is up."""
        return now < self._left_until

    def age(self, now: float) -> float | None:
        """Seconds since the newest canary that came, wherever, was sent; None before the first."""
        return max(0.0, now - max(self._heard.values())) if self._heard else None

    def hopeless(self, now: float) -> bool:
        """Whether no place of it is fit."""
        unfit = self.unfit(now)
        return all({place.source, place.host} & unfit for place in self.link.places())


class Watch:
    """The canaries of one region's links. Times are seconds of the keeper's monotonic clock."""

    def __init__(self, links: Iterable[Link], rng: random.Random) -> None:
        self._links = {link.id: Followed(link, rng) for link in links}

    @property
    def sources(self) -> frozenset[tuple[Broker, str]]:
        """The brokers and exchanges into which canaries must be sent."""
        return frozenset(
            (place.source, each.link.exchange)
            for each in self._links.values()
            for place in each.link.places()
        )

    @property
    def hosts(self) -> frozenset[Broker]:
        """The brokers on which canaries arrive."""
        return frozenset(
            place.host for each in self._links.values() for place in each.link.places()
        )

    def looked(
        self,
        places: Mapping[str, Place],
        present: Mapping[str, Sequence[Place]],
        now: float,
        *,
        unsteady: Collection[Broker] = (),
    ) -> None:
        """By link id, where the links are to be from now on, and where they were seen to be.

        ``unsteady`` are the brokers that were away then, or only just back.
        """
        for name, place in places.items():
            self._links[name].placed(place, now)
            self._links[name].seen(present.get(name, ()), unsteady, now)

    def sent(self, source: Broker, exchange: str, at: float) -> None:
        """``exchange`` of ``source`` has taken the canary of ``at``."""
        for each in self._links.values():
            if (each.place.source, each.link.exchange) == (source, exchange):
                each.watched.sent(at)

    def arrived(self, host: Broker, shovel: str, sent_at: float, now: float) -> None:
        """``shovel`` has brought the canary of ``sent_at`` to ``host``."""
        if (found := self._links.get(f"{host.cluster}/{shovel}")) is not None:
            found.arrived(host, sent_at, now)

    def due(
        self,
        states: Mapping[Broker, Mapping[str, str]],
        away: Collection[Broker],
        now: float,
        *,
        full: Collection[Broker] = (),
    ) -> list[Link]:
        """The links whose shovels to make anew now.

        ``states`` has for each broker that answers its shovels by what they say of themselves. A
        shovel that takes from a broker that is ``away`` can't run. Nothing comes to a broker that
        is ``full``, and canaries don't get into one.
        """
        due = []
        excused = frozenset(full)
        for each in self._links.values():
            place = each.place
            states_there = states.get(place.host)
            if (
                states_there is None
                or place.source in away
                or not excused.isdisjoint((place.source, place.host))
            ):
                each.excused()
            elif each.due(states_there.get(each.link.name), now):
                due.append(each.link)
            each.were_away(away)
        return due

    def unfit(self, now: float) -> dict[str, frozenset[Broker]]:
        """Link id → the brokers with which its shovel can't be made to work."""
        return {name: each.unfit(now) for name, each in self._links.items()}

    def proven(self, now: float) -> dict[str, frozenset[Broker]]:
        """Link id → the hosts on which its shovel has brought a canary in the last seconds."""
        return {name: each.proven(now) for name, each in self._links.items()}

    def back(self, now: float) -> dict[str, frozenset[Broker]]:
        """Link id → the sources that it may go back to."""
        return {name: each.back(now) for name, each in self._links.items()}

    def known(self) -> dict[str, frozenset[Broker]]:
        """Link id → the sources that this keeper chose, or has seen it take from, last."""
        return {
            name: frozenset({each.source, each.place.source}) for name, each in self._links.items()
        }

    def left(self, now: float) -> frozenset[str]:
        """Ids of the links whose shovel other keepers have just removed from where it should be."""
        return frozenset(name for name, each in self._links.items() if each.left(now))

    def place(self, link: Link) -> Place:
        """Where ``link`` is to be."""
        return self._links[link.id].place

    def unheard(self, brokers: Collection[Broker]) -> None:
        """``brokers`` can't be sent to, or not be heard: whoever touches them is excused."""
        for each in self._links.values():
            if each.place.source in brokers or each.place.host in brokers:
                each.watched.renewed()

    def ages(self, now: float) -> Mapping[str, float | None]:
        """Link id → seconds since the newest canary that has arrived was sent."""
        return {name: each.age(now) for name, each in self._links.items()}

    def hopeless(self, now: float) -> frozenset[str]:
        """Ids of the links that nothing more can be done for: no place of theirs is fit."""
        return frozenset(name for name, each in self._links.items() if each.hopeless(now))

    def all_fresh(self, now: float) -> bool:
        """Whether canaries come through every shovel that isn't hopeless."""
        return all(each.proven(now) or each.hopeless(now) for each in self._links.values())

    def document(self, now: float) -> dict[str, Any]:
        """What ``/canaries`` answers."""
        return {
            "shovels": [
                {
                    "runs_on": str(each.link.runs_on),
                    "name": each.link.name,
                    "canary_age_ms": as_ms(each.age(now)),
                    "restarts": each.watched.restarts,
                }
                for each in self._links.values()
            ]
        }


def as_ms(age: float | None) -> int | None:
    """Seconds as whole milliseconds."""
    return None if age is None else round(age * 1000)
