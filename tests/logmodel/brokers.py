"""Brokers, simulated: what publishers send to one router, and what routers send to all gateways.

They drop, double and delay. A delivery that a dead or frozen router held goes to another one.
"""

from __future__ import annotations

from tests.logmodel.protocols import AnyGateway, AnyWorld
from tests.logmodel.rows import Delivery, Published, Tick
from tests.logmodel.settings import APART, QUEUE_TTL


class Cuts:
    """Which regions are cut off from each other, and until when."""

    def __init__(self, world: AnyWorld) -> None:
        self._world = world
        self._ends: dict[tuple[str, str], float] = {}

    def cut(self, a: str, b: str, until: float) -> None:
        self._ends[a, b] = self._ends[b, a] = until

    def end(self, a: str, b: str) -> float:
        """When the last cut between them ends or ended."""
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

    def publish(self, region: str, item: Published | Tick, *, local_only: bool = False) -> None:
        """To every gateway, over both exchanges; or the local one alone took it."""
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
        self, region: str, gateway: AnyGateway, item: Published | Tick, sent: float
    ) -> None:
        world = self._world
        end = world.cuts.end(region, gateway.region)
        if end > world.now:
            if end - sent < QUEUE_TTL:
                later = end + world.rng.random()
                world.at(later, self._arrive, region, gateway, item, sent)
            return
        gateway.take(item)

    # From publishers to routers.

    def enqueue(self, region: str, delivery: Delivery) -> None:
        """To one router of the region, as long as there is one."""
        world = self._world
        able = [r for r in world.routers if r.region == region and r.takes_more]
        if able:
            world.rng.choice(able).deliver(delivery)
        elif world.now < delivery.first_sent + APART:
            world.at(world.now + 10, self.enqueue, region, delivery)
