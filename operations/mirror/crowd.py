"""Numbers of readers that connect and leave in the other fabric, and the topics of each. Pure.

The number of readers is the share of the original's. The readers that connect in a second are its
share of connects; as many leave. At first readers connect faster, at ``ramp`` a second, or it would
take a day to reach the number.

Subscriptions by topic aren't counted anywhere. Boxes count deliveries and readers, so the messages
a second of an average reader are known. Each mirrored reader subscribes to each topic with one
probability, chosen so that a reader would receive as many there at the full rate.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence
from typing import Final

from operations.mirror.board import Crowded

#: A reader may have 128 topics, and subscribes to all at once.
MOST_TOPICS: Final = 100


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The target of the crowd: readers, connects a second, topics and their probability.

    Sent to the readers' process as JSON.
    """

    readers: int
    connects_per_second: float
    topics: tuple[str, ...]
    probability: float


def wanted(
    original: Crowded, rates: Mapping[str, float], *, share: float, max_readers: int
) -> Wanted:
    """Return ``share`` of the ``original``, of connects as of readers, and ``max_readers`` at most.

    ``rates`` are messages a second of each topic heard there.
    """
    if share * original.readers > max_readers:
        share = max_readers / original.readers
    most = sorted(rates, key=lambda topic: (-rates[topic], topic))[:MOST_TOPICS]
    return Wanted(
        # Without a topic there is nothing to read.
        readers=min(max_readers, round(share * original.readers)) if most else 0,
        connects_per_second=share * original.connects_per_second,
        topics=tuple(most),
        probability=probability(original, sum(rates[topic] for topic in most)),
    )


def probability(original: Crowded, messages_per_second: float) -> float:
    """Return the probability, 0 to 1, with which a reader subscribes to each topic."""
    if original.readers <= 0 or messages_per_second <= 0:
        return 1.0
    each = original.deliveries_per_second / original.readers
    return min(1.0, each / messages_per_second)


def chosen(topics: Sequence[str], probability: float, rng: random.Random) -> list[str]:
    """Choose one reader's topics: at least one, if there is any."""
    found = [topic for topic in topics if rng.random() < probability]
    return found or ([rng.choice(topics)] if topics else [])


@dataclasses.dataclass(slots=True)
class Turnover:
    """Computes the connects and leaves of each step. ``ramp`` is in readers a second."""

    ramp: float
    _coming: float = 0.0

    def step(self, wanted: Wanted, here: int, seconds: float) -> tuple[int, int]:
        """Return the connects and leaves, ``seconds`` after the last step, with ``here``
        readers."""
        missing = max(0, wanted.readers - here)
        usual = wanted.connects_per_second * seconds if wanted.readers else 0.0
        self._coming += max(usual, min(self.ramp * seconds, missing))
        come = int(self._coming)
        self._coming -= come
        return come, min(here, max(0, here + come - wanted.readers))
