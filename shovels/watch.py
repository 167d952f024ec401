"""The canaries of a region's shovels, and the choice of shovels to recreate. Pure.

The keeper's own region sends the canaries, into the source's exchange, wherever that is. So sending
and arriving are timed by one clock. A canary that the source didn't accept proves nothing. If the
source accepted a canary that never arrives, the shovel, its queue or a binding is at fault: all of
them belong to the keeper.

A shovel is recreated (deleted and made again) for two reasons. It reports that it runs, but
delivers nothing (:mod:`newsfabric.brokers.watch`). Or it is planned and hasn't reported to run for
:data:`MISSING_AFTER`.

If that didn't help :data:`TRIES` times, it is done once more and the broker is *unfit* for the
shovel: the component that runs its shovels may be dead until it restarts. The broker is also unfit
if the shovel stops so often before it has delivered anything. Then the shovel is made on another
broker, or takes from another one, if allowed. After :data:`UNFIT_FOR` the broker is tried again. It
is fit again as soon as a canary arrives through it, and after it, or the shovel's host, was away.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from newsfabric.backoff import Backoff
from newsfabric.brokers.watch import RESTART_BASE, RESTART_CAP, SILENT_AFTER, Watched
from newsfabric.topology import Broker, KeptShovel, ShovelPlace

# Seconds in which a shovel may be missing or "starting": its other broker may be away briefly.
MISSING_AFTER: Final = 30.0
# Times that a shovel that doesn't run or deliver is recreated before its broker is unfit.
TRIES: Final = 2
# Seconds.
UNFIT_FOR: Final = 600.0
# Seconds for which a link is left to other keepers that have removed a stand-in of it.
LEFT_FOR: Final = 60.0


class DownShovel:
    """A shovel that should run on a broker: since when it doesn't, and the tries to repair it."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._not_before = 0.0
        self._tries = 0
        self._backoff = Backoff(base=RESTART_BASE, cap=RESTART_CAP)

    def runs(self, now: float) -> None:
        """Note that the shovel reports to be running."""
        self.excused()
        self._backoff.succeeded(now)

    def excused(self) -> None:
        """Forget the past: the shovel can't be expected to work now."""
        self._since, self._tries = None, 0

    def due(self, now: float, rng: random.Random) -> bool:
        """Return whether to recreate the shovel, which doesn't run, now. Each True counts."""
        if self._since is None:
            self._since, self._not_before = now, now + MISSING_AFTER
        if now < self._not_before:
            return False
        self._tries += 1
        self._not_before = now + MISSING_AFTER + self._backoff.failed(now, rng)
        return True

    @property
    def hopeless(self) -> bool:
        """True if recreating the shovel didn't help."""
        return self._tries > TRIES


class FollowedLink:
    """A link, its place, and the state of its shovel."""

    def __init__(self, link: KeptShovel, rng: random.Random) -> None:
        self.link = link
        self.watched = Watched()
        #: The place where the link should be, and since when.
        self.place = link.preferred
        self._chosen_at = 0.0
        #: The source from which the shovel was last seen to take, and since when.
        self.source = link.preferred.source
        self._since = 0.0
        #: Host → the send time of the newest canary that arrived there.
        self._arrived_at: dict[Broker, float] = {}
        self._missing = DownShovel()
        # How often the shovel was recreated, or stopped, at its present place without a delivery.
        self._silent = 0
        # Whether the shovel ran at the last check, and has delivered nothing since its start.
        self._ran = self._idle = False
        # Brokers with which the shovel couldn't be made to work → until when they are avoided.
        self._unfit: dict[Broker, float] = {}
        # Broker → the time when it was last away, or only just back.
        self._unsteady: dict[Broker, float] = {}
        # The time of the last check, if the shovel was at its place then; else None.
        self._there: float | None = None
        self._left_until = 0.0
        self._rng = rng

    def placed(self, place: ShovelPlace, now: float) -> None:
        """Set the link's place from now on. At a new place the shovel gets its full time."""
        if place != self.place:
            self.place, self._chosen_at, self._there = place, now, None
            self.watched.renewed()
            self._missing = DownShovel()
            self._silent, self._ran = 0, False

    def seen(
        self, present: Sequence[ShovelPlace], unsteady: Collection[Broker], now: float
    ) -> None:
        """Note the link's present places, and brokers that were away or are only just back."""
        self._unsteady |= dict.fromkeys(unsteady, now)
        if self.place in present:
            self._there = now
        elif self._there is not None:
            gone = self.place.host not in {place.host for place in present}
            if gone and self._unsteady.get(self.place.host, -1.0) < self._there:
                # Another keeper has removed the shovel.
                self._left_until = now + LEFT_FOR
            self._there = None
        for source in {place.source for place in present} - {self.source}:
            chosen = source == self.place.source
            self.source, self._since = source, self._chosen_at if chosen else now
            if not chosen:
                # Another keeper has a reason to use this source.
                self._unfit.pop(source, None)

    def arrived(self, host: Broker, sent_at: float, now: float) -> None:
        """Note a canary's arrival on ``host``, which is fit then, even if not the link's place."""
        self._arrived_at[host] = max(sent_at, self._arrived_at.get(host, sent_at))
        self._unfit.pop(host, None)
        if host == self.place.host:
            self._unfit.pop(self.place.source, None)
            self.watched.arrived(sent_at, now)
            self._silent, self._idle = 0, False

    def due(self, state: str | None, now: float) -> bool:
        """Return whether to recreate the shovel now; ``state``: its reported state, if any."""
        if state == "running":
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
            # Another broker may work; if there is none, this one is tried all the same.
            host_may_differ = len(self.link.hosts) > 1
            unfit = self.place.host if host_may_differ else self.place.source
            self._unfit[unfit] = now + UNFIT_FOR
        return due

    def excused(self) -> None:
        """Forget the past: the shovel can't be expected to work now."""
        self.watched.renewed()
        self._missing.excused()
        self._silent, self._ran = 0, False

    def were_away(self, brokers: Collection[Broker]) -> None:
        """Note that ``brokers`` are away: afterwards they may be fit again."""
        for broker in list(self._unfit):
            if broker in brokers or self.place.host in brokers:
                del self._unfit[broker]

    def unfit(self, now: float) -> frozenset[Broker]:
        """Return the brokers with which the shovel can't be made to work."""
        return frozenset(broker for broker, until in self._unfit.items() if now < until)

    def proven(self, now: float) -> frozenset[Broker]:
        """Return the hosts of canaries that were sent less than :data:`SILENT_AFTER` ago."""
        return frozenset(
            host for host, sent_at in self._arrived_at.items() if now - sent_at <= SILENT_AFTER
        )

    def back(self, now: float) -> frozenset[Broker]:
        """Return the sources to which the link may move back, once they are present.

        These are the sources that were unsteady since the link takes from its present one. All of
        them after :data:`UNFIT_FOR`, or if the host was unsteady
        (:func:`shovels.places.choose_place`).
        """
        sources = frozenset(place.source for place in self.link.places())
        if now - self._since >= UNFIT_FOR or self._was_unsteady(self.place.host):
            return sources
        return frozenset(filter(self._was_unsteady, sources))

    def _was_unsteady(self, broker: Broker) -> bool:
        return self._unsteady.get(broker, -1.0) >= self._since

    def left(self, now: float) -> bool:
        """Return whether other keepers have just removed the shovel from its place, which is up."""
        return now < self._left_until

    def age(self, now: float) -> float | None:
        """Return the seconds since the newest canary that arrived was sent; None without one."""
        return max(0.0, now - max(self._arrived_at.values())) if self._arrived_at else None

    def hopeless(self, now: float) -> bool:
        """Return whether no place of the link is fit."""
        unfit = self.unfit(now)
        return all({place.source, place.host} & unfit for place in self.link.places())


class CanaryWatch:
    """The canaries of one region's links. Times are seconds of the keeper's monotonic clock."""

    def __init__(self, links: Iterable[KeptShovel], rng: random.Random) -> None:
        self._links = {link.id: FollowedLink(link, rng) for link in links}

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
        places: Mapping[str, ShovelPlace],
        present: Mapping[str, Sequence[ShovelPlace]],
        now: float,
        *,
        unsteady: Collection[Broker] = (),
    ) -> None:
        """Note each link's planned place from now on, and its present places, by link id.

        ``unsteady`` are the brokers that were away then, or only just back.
        """
        for name, place in places.items():
            self._links[name].placed(place, now)
            self._links[name].seen(present.get(name, ()), unsteady, now)

    def sent(self, source: Broker, exchange: str, at: float) -> None:
        """Note that ``exchange`` of ``source`` has accepted the canary of time ``at``."""
        for each in self._links.values():
            if (each.place.source, each.link.exchange) == (source, exchange):
                each.watched.sent(at)

    def arrived(self, host: Broker, shovel: str, sent_at: float, now: float) -> None:
        """Note that ``shovel`` has delivered the canary of ``sent_at`` to ``host``."""
        if (found := self._links.get(f"{host.cluster}/{shovel}")) is not None:
            found.arrived(host, sent_at, now)

    def due(
        self,
        states: Mapping[Broker, Mapping[str, str]],
        away: Collection[Broker],
        now: float,
        *,
        full: Collection[Broker] = (),
    ) -> list[KeptShovel]:
        """Return the links whose shovels must be recreated now.

        ``states``: broker that replies → its shovels' reported states. A shovel can't run while its
        source is ``away``. No message gets into a broker that is ``full``, neither from a shovel
        nor a canary at its source.
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
        """Return link id → the brokers with which its shovel can't be made to work."""
        return {name: each.unfit(now) for name, each in self._links.items()}

    def proven(self, now: float) -> dict[str, frozenset[Broker]]:
        """Return link id → the hosts on which a canary arrived in the last seconds."""
        return {name: each.proven(now) for name, each in self._links.items()}

    def back(self, now: float) -> dict[str, frozenset[Broker]]:
        """Return link id → the sources to which the link may move back."""
        return {name: each.back(now) for name, each in self._links.items()}

    def known(self) -> dict[str, frozenset[Broker]]:
        """Return link id → the sources that this keeper chose or saw last."""
        return {
            name: frozenset({each.source, each.place.source}) for name, each in self._links.items()
        }

    def left(self, now: float) -> frozenset[str]:
        """Return the ids of links that other keepers have just removed from their places."""
        return frozenset(name for name, each in self._links.items() if each.left(now))

    def place(self, link: KeptShovel) -> ShovelPlace:
        """Return the planned place of ``link``."""
        return self._links[link.id].place

    def unheard(self, brokers: Collection[Broker]) -> None:
        """Excuse the links of ``brokers``: canaries can't be sent to them or received from them."""
        for each in self._links.values():
            if each.place.source in brokers or each.place.host in brokers:
                each.watched.renewed()

    def ages(self, now: float) -> Mapping[str, float | None]:
        """Return link id → seconds since the newest canary that arrived was sent."""
        return {name: each.age(now) for name, each in self._links.items()}

    def hopeless(self, now: float) -> frozenset[str]:
        """Return the ids of links for which nothing more can be done: no place of theirs is fit."""
        return frozenset(name for name, each in self._links.items() if each.hopeless(now))

    def all_fresh(self, now: float) -> bool:
        """Return whether canaries arrive by every shovel that isn't hopeless."""
        return all(each.proven(now) or each.hopeless(now) for each in self._links.values())

    def links_document(self, now: float) -> dict[str, Any]:
        """Return the reply to ``/canaries``."""
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
    """Return seconds as whole milliseconds."""
    return None if age is None else round(age * 1000)
