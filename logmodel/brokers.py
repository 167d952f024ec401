"""Brokers, simulated: from publishers to one router each, and from routers to all gateways.

They drop, duplicate and delay. A delivery held by a dead or frozen router is sent to another one.
"""

from __future__ import annotations

from logmodel.protocols import AnyGateway, AnyWorld
from logmodel.rows import Delivery, ModelPublished, Tick
from logmodel.settings import APART, QUEUE_TTL


class Cuts:
    """The cuts between pairs of regions, each with the time of its end."""

    def __init__(self, world: AnyWorld) -> None:
        self._world = world
        self._ends: dict[tuple[str, str], float] = {}

    def cut(self, a: str, b: str, until: float) -> None:
        self._ends[a, b] = self._ends[b, a] = until

    def end(self, a: str, b: str) -> float:
        """Return the time at which the last cut between them ends or ended."""
        return self._ends.get((a, b), 0.0)

    def between(self, a: str, b: str) -> bool:
        return self._ends.get((a, b), 0.0) > self._world.now

    def heal(self) -> None:
        self._ends.clear()


class Brokers:
    """The brokers of all regions."""

    def __init__(self, world: AnyWorld) -> None:
        self._world = world
        self._loss = world.rng.choice([0.02, 0.1, 0.3, 0.6])

    # From routers to gateways.

    def publish(
        self, region: str, item: ModelPublished | Tick, *, local_only: bool = False
    ) -> None:
        """Send to every gateway; with ``local_only``, only the local exchange accepted the item."""
        world = self._world
        random = world.rng.random
        loss = 0.0 if world.is_quiet else self._loss
        longest = 5.0 if world.is_quiet else 140.0
        for gateway in world.gateways:
            if local_only and gateway.region != region:
                continue
            for _ in range(1 + (random() < 0.2)):
                if random() >= loss:
                    slowest = world.rng.choice((0.05, 0.05, 0.5, 5.0, longest))
                    delay = slowest * random()
                    world.at(world.now + delay, self._arrive, region, gateway, item, world.now)

    def _arrive(
        self, region: str, gateway: AnyGateway, item: ModelPublished | Tick, sent: float
    ) -> None:
        world = self._world
        end = world.cuts.end(region, gateway.region)
        if end > world.now:
            if end - sent < QUEUE_TTL:
                later = end + world.rng.random()
                world.at(later, self._arrive, region, gateway, item, sent)
            return
        gateway.receive(item)

    # From publishers to routers.

    def enqueue(self, region: str, delivery: Delivery) -> None:
        """Deliver to a router of the region, or retry while there is none."""
        world = self._world
        able = [r for r in world.routers if r.region == region and r.takes_more]
        if able:
            world.rng.choice(able).deliver(delivery)
        elif world.now < delivery.first_sent + APART:
            world.at(world.now + 10, self.enqueue, region, delivery)
