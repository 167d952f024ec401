"""Canaries through every shovel of a region: which arrived, and which shovels to make anew. Pure.

The region that keeps a shovel sends its canaries too, into the source's exchange, wherever that is.
So sending and arriving are timed by one clock, a canary that the source didn't take accuses
nobody, and one that the source took and that never comes accuses the shovel, its queue
or a binding: all of them the keeper's own.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from newsfabric.topology import Cluster, Link
from newsfabric.watch import Watched


class Watch:
    """The canaries of one region's links. Times are seconds of the keeper's monotonic clock."""

    def __init__(self, links: Iterable[Link], rng: random.Random) -> None:
        self._rng = rng
        self._links = {link.id: link for link in links}
        self._watched = {name: Watched() for name in self._links}

    @property
    def sources(self) -> frozenset[tuple[Cluster, str]]:
        """The clusters and exchanges into which canaries must be sent."""
        return frozenset((link.source, link.exchange) for link in self._links.values())

    def sent(self, source: Cluster, exchange: str, at: float) -> None:
        """``exchange`` of ``source`` has taken the canary of ``at``."""
        for name, link in self._links.items():
            if (link.source, link.exchange) == (source, exchange):
                self._watched[name].sent(at)

    def arrived(self, runs_on: Cluster, shovel: str, sent_at: float, now: float) -> None:
        """``shovel`` of cluster ``runs_on`` has brought the canary of ``sent_at``."""
        watched = self._watched.get(f"{runs_on}/{shovel}")
        if watched is not None:
            watched.arrived(sent_at, now)

    def distrusted(self, running: Iterable[tuple[Cluster, str]], now: float) -> list[Link]:
        """Those of the ``running`` shovels to make anew now: they say so, and bring nothing."""
        names = sorted(f"{cluster}/{name}" for cluster, name in running)
        return [
            self._links[name]
            for name in names
            if name in self._watched and self._watched[name].distrust(now, self._rng)
        ]

    def idle(self, running: Iterable[tuple[Cluster, str]]) -> None:
        """Shovels that don't even say that they run get their full time once they do."""
        said = {f"{cluster}/{name}" for cluster, name in running}
        for name, watched in self._watched.items():
            if name not in said:
                watched.renewed()

    def unheard(self, clusters: Collection[Cluster]) -> None:
        """``clusters`` can neither be sent to nor heard: whoever touches them is excused."""
        for name, link in self._links.items():
            if link.source in clusters or link.runs_on in clusters:
                self._watched[name].renewed()

    def ages(self, now: float) -> Mapping[str, float | None]:
        """Link id → seconds since the newest canary that has arrived was sent."""
        return {name: watched.age(now) for name, watched in self._watched.items()}

    def all_fresh(self, now: float) -> bool:
        """Whether canaries come through every shovel."""
        return all(watched.fresh(now) for watched in self._watched.values())

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
