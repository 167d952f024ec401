"""Canaries through every shovel of a region, and which shovels to make anew. Pure.

The region that keeps a shovel sends its canaries too, into the source's exchange, wherever that is.
So sending and arriving are timed by one clock, a canary that the source didn't take accuses
nobody, and one that the source took and that never comes accuses the shovel, its queue
or a binding: all of them the keeper's own.

A shovel is made anew for two reasons: it says that it runs and brings nothing
(:mod:`newsfabric.watch`), or it is planned and doesn't even say so for :data:`MISSING_AFTER`.
Where that didn't help twice, for whichever reason, the broker is *unfit* for it: what runs its
shovels may be dead until it restarts. Then the shovel is made on another broker, if it may run on
one, or takes from another one, if it may; after :data:`UNFIT_FOR` it is tried there again. It is
fit again once it was away, or the broker was that the shovel runs on, and where the shovel didn't
run as soon as it says that it does. Of one that was silent that proves nothing.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from newsfabric.backoff import Backoff
from newsfabric.topology import Broker, Link, Place
from newsfabric.watch import RESTART_BASE, RESTART_CAP, SILENT_AFTER, Watched

# Seconds for which a shovel may say nothing of itself, or that it starts: what it connects to may
# be away for a moment.
MISSING_AFTER: Final = 30.0
# How often a shovel that doesn't run, or brings nothing, is made anew before its broker is unfit.
TRIES: Final = 2
# Seconds.
UNFIT_FOR: Final = 600.0


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

    def lasts(self, now: float) -> float:
        """For how many seconds it hasn't run."""
        return 0.0 if self._since is None else now - self._since

    @property
    def hopeless(self) -> bool:
        """Whether making it anew didn't help."""
        return self._tries > TRIES


@dataclasses.dataclass(frozen=True, slots=True)
class Unfit:
    """A broker with which a shovel couldn't be made to work: it is avoided ``until`` then at most,
    and where so ``until_it_runs`` there after all."""

    until: float
    until_it_runs: bool


class Watch:
    """The canaries of one region's links. Times are seconds of the keeper's monotonic clock."""

    def __init__(self, links: Iterable[Link], rng: random.Random) -> None:
        self._rng = rng
        self._links = {link.id: link for link in links}
        self._watched = {name: Watched() for name in self._links}
        self._missing = {name: Missing() for name in self._links}
        self._places = {name: link.preferred for name, link in self._links.items()}
        # How often a shovel that said that it runs was made anew where it is, and brought nothing.
        self._silent = dict.fromkeys(self._links, 0)
        self._unfit: dict[str, dict[Broker, Unfit]] = {}

    @property
    def sources(self) -> frozenset[tuple[Broker, str]]:
        """The brokers and exchanges into which canaries must be sent."""
        return frozenset(
            (place.source, link.exchange)
            for link in self._links.values()
            for place in link.places()
        )

    @property
    def hosts(self) -> frozenset[Broker]:
        """The brokers on which canaries arrive."""
        return frozenset(place.host for link in self._links.values() for place in link.places())

    def placed(self, places: Mapping[str, Place]) -> None:
        """Where the links are from now on, by id; one that has moved gets its full time."""
        for name, place in places.items():
            if self._places[name] != place:
                self._places[name] = place
                self._watched[name].renewed()
                self._missing[name] = Missing()
                self._silent[name] = 0

    def sent(self, source: Broker, exchange: str, at: float) -> None:
        """``exchange`` of ``source`` has taken the canary of ``at``."""
        for name, link in self._links.items():
            if (self._places[name].source, link.exchange) == (source, exchange):
                self._watched[name].sent(at)

    def arrived(self, host: Broker, shovel: str, sent_at: float, now: float) -> None:
        """``shovel`` has brought the canary of ``sent_at`` to ``host``.

        One that is left where it was before says nothing of where it is now.
        """
        name = f"{host.cluster}/{shovel}"
        if name in self._links and self._places[name].host == host:
            self._watched[name].arrived(sent_at, now)
            self._silent[name] = 0

    def due(
        self, states: Mapping[Broker, Mapping[str, str]], away: Collection[Broker], now: float
    ) -> list[Link]:
        """The links whose shovels to make anew now.

        ``states`` has for each broker that answers its shovels by what they say of themselves. A
        shovel that takes from a broker that is ``away`` can't run.
        """
        due = []
        for name, link in self._links.items():
            watched, missing = self._watched[name], self._missing[name]
            place = self._places[name]
            states_there = states.get(place.host)
            if states_there is None or place.source in away:
                # A broker that doesn't answer can't make anything anew.
                watched.renewed()
                missing.excused()
                self._silent[name] = 0
            elif states_there.get(link.name) == "running":
                missing.runs(now)
                if watched.distrust(now, self._rng):
                    due.append(link)
                    self._silent[name] += 1
                    if self._silent[name] > TRIES:
                        self._give_up(link, Unfit(now + UNFIT_FOR, until_it_runs=False))
            else:
                watched.renewed()
                if missing.due(now, self._rng):
                    due.append(link)
                    if missing.hopeless:
                        self._give_up(link, Unfit(now + UNFIT_FOR, until_it_runs=True))
            self._fit_again(link, states, away)
        return due

    def unfit(self, now: float) -> dict[str, frozenset[Broker]]:
        """Link id → the brokers with which its shovel can't be made to run."""
        return {
            name: frozenset(broker for broker, unfit in brokers.items() if now < unfit.until)
            for name, brokers in self._unfit.items()
        }

    def follow(self, left: Mapping[str, Broker], resumed: Mapping[str, Broker], now: float) -> None:
        """Other keepers have ``left`` sources, and ``resumed`` others, by link id.

        Why that counts is said in :mod:`shovels.places`.
        """
        for name, source in left.items():
            self._unfit.setdefault(name, {})[source] = Unfit(now + UNFIT_FOR, until_it_runs=False)
        for name, source in resumed.items():
            self._unfit.get(name, {}).pop(source, None)

    def silent(self, now: float) -> dict[str, Place]:
        """Link id → where its shovel is, of those that have brought nothing for long."""
        return {
            name: self._places[name]
            for name, watched in self._watched.items()
            if watched.silent(now) or self._silent[name]
        }

    def troubled(self, now: float) -> frozenset[str]:
        """Ids of the links that haven't run, or have brought nothing, for :data:`SILENT_AFTER`."""
        return frozenset(
            name
            for name, watched in self._watched.items()
            if watched.silent(now) or self._missing[name].lasts(now) > SILENT_AFTER
        )

    def place(self, link: Link) -> Place:
        """Where ``link`` is."""
        return self._places[link.id]

    def unheard(self, brokers: Collection[Broker]) -> None:
        """``brokers`` can't be sent to, or not be heard: whoever touches them is excused."""
        for name, place in self._places.items():
            if place.source in brokers or place.host in brokers:
                self._watched[name].renewed()

    def _give_up(self, link: Link, unfit: Unfit) -> None:
        """Another broker may do, but where there is none it is tried all the same."""
        place = self._places[link.id]
        broker = place.host if len(link.hosts) > 1 else place.source
        self._unfit.setdefault(link.id, {})[broker] = unfit

    def _fit_again(
        self, link: Link, states: Mapping[Broker, Mapping[str, str]], away: Collection[Broker]
    ) -> None:
        brokers, host = self._unfit.get(link.id, {}), self._places[link.id].host
        for broker, unfit in list(brokers.items()):
            runs = states.get(broker, {}).get(link.name) == "running"
            if broker in away or host in away or (unfit.until_it_runs and runs):
                del brokers[broker]

    def ages(self, now: float) -> Mapping[str, float | None]:
        """Link id → seconds since the newest canary that has arrived was sent."""
        return {name: watched.age(now) for name, watched in self._watched.items()}

    def hopeless(self, now: float) -> frozenset[str]:
        """Ids of the links that nothing more can be done for: no place of theirs is fit."""
        unfit = self.unfit(now)
        return frozenset(
            name
            for name, brokers in unfit.items()
            if all({place.source, place.host} & brokers for place in self._links[name].places())
        )

    def all_fresh(self, now: float) -> bool:
        """Whether canaries come through every shovel that isn't hopeless."""
        hopeless = self.hopeless(now)
        return all(w.fresh(now) for name, w in self._watched.items() if name not in hopeless)

    def document(self, now: float) -> dict[str, Any]:
        """What ``/canaries`` answers."""
        return {
            "shovels": [
                {
                    "runs_on": str(link.runs_on),
                    "name": link.name,
                    "canary_age_ms": as_ms(self._watched[name].age(now)),
                    "restarts": self._watched[name].restarts,
                }
                for name, link in self._links.items()
            ]
        }


def as_ms(age: float | None) -> int | None:
    """Seconds as whole milliseconds."""
    return None if age is None else round(age * 1000)
