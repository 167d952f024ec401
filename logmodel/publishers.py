"""Publishers, simulated: they send a message, and repeat it while they have no receipt."""

from __future__ import annotations

import dataclasses
import itertools

from logmodel.protocols import AnyWorld
from logmodel.rows import Delivery
from logmodel.settings import TOPICS

# Seconds after the first sending in which a publisher repeats a message; APART relies on it.
REPEATS = 450.0


@dataclasses.dataclass(frozen=True, slots=True)
class ModelMessage:
    identity: int
    topic: str
    first_sent: float

    @property
    def is_everywhere(self) -> bool:
        """True if its class is sent to every region."""
        return self.topic == "a"


class Publishers:
    """All publishers of all regions."""

    def __init__(self, world: AnyWorld) -> None:
        self._world = world
        self._identities = itertools.count(1)
        self._serials = itertools.count(1)

    def publish(self) -> None:
        """Send a new message."""
        rng = self._world.rng
        topic = rng.choice(TOPICS[:2] if rng.random() < 0.9 else TOPICS)
        message = ModelMessage(next(self._identities), topic, self._world.now)
        self._send(message, rng.choice(self._world.regions))

    def _send(self, message: ModelMessage, region: str) -> None:
        world, rng = self._world, self._world.rng
        for to in world.regions if message.is_everywhere else [region]:
            if not world.cuts.between(region, to):
                delivery = Delivery(
                    next(self._serials), message.identity, message.topic, message.first_sent
                )
                delay = rng.choice([0.05, 0.05, 100.0]) * rng.random()
                world.at(world.now + delay, world.brokers.enqueue, to, delivery)
        pause = rng.choice([5, 30, 200, 440])
        if world.now + pause < message.first_sent + REPEATS:
            world.at(world.now + pause, self._maybe_again, message)

    def _maybe_again(self, message: ModelMessage) -> None:
        """Repeat without a receipt, at times with one (it may be lost); in any region."""
        world, rng = self._world, self._world.rng
        if message.identity not in world.book.receipts or rng.random() < 0.3:
            self._send(message, rng.choice(world.regions))
