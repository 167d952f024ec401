"""How many readers come and go in the other fabric, and what each of them subscribes to. Pure.

Readers are as many as the share of the original's, and as many come in a second as its share of
connects; so as many leave. At first they come faster, at ``ramp`` a second, or it would take a day
to have them all.

Nobody counts subscriptions by topic. What boxes do count is deliveries and readers, so it is known
how many messages a second an average reader gets. Each mirrored reader takes each topic with one
probability, so that it would get as many there at the full rate.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence
from typing import Final

from operations.mirror.board import Crowded

#: A reader may have 128 topics, and says them all at once.
MOST_TOPICS: Final = 100


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the crowd shall be: how many, how many come each second, topics and their probability.

    It goes to the readers' process as JSON.
    """

    readers: int
    connects_per_second: float
    topics: tuple[str, ...]
    probability: float


def wanted(
    original: Crowded, rates: Mapping[str, float], *, share: float, max_readers: int
) -> Wanted:
    """``share`` of the ``original``, of connects as of readers, and ``max_readers`` at most.

    ``rates`` are messages a second of each topic heard there.
    """
    if share * original.readers > max_readers:
        share = max_readers / original.readers
    most = sorted(rates, key=lambda topic: (-rates[topic], topic))[:MOST_TOPICS]
    return Wanted(
        # Nobody comes to read nothing.
        readers=min(max_readers, round(share * original.readers)) if most else 0,
        connects_per_second=share * original.connects_per_second,
        topics=tuple(most),
        probability=probability(original, sum(rates[topic] for topic in most)),
    )


def probability(original: Crowded, messages_per_second: float) -> float:
    """With which a reader takes each topic, 0 to 1."""
    if original.readers <= 0 or messages_per_second <= 0:
        return 1.0
    each = original.deliveries_per_second / original.readers
    return min(1.0, each / messages_per_second)


def chosen(topics: Sequence[str], probability: float, rng: random.Random) -> list[str]:
    """One reader's topics: one at least, if there is any."""
    found = [topic for topic in topics if rng.random() < probability]
    return found or ([rng.choice(topics)] if topics else [])


@dataclasses.dataclass(slots=True)
class Turnover:
    """Counts out who comes and who goes. ``ramp`` is in readers a second."""

    ramp: float
    _coming: float = 0.0

    def step(self, wanted: Wanted, here: int, seconds: float) -> tuple[int, int]:
        """How many come and how many leave, ``seconds`` after the last step, with ``here`` now."""
        missing = max(0, wanted.readers - here)
        usual = wanted.connects_per_second * seconds if wanted.readers else 0.0
        self._coming += max(usual, min(self.ramp * seconds, missing))
        come = int(self._coming)
        self._coming -= come
        return come, min(here, max(0, here + come - wanted.readers))
