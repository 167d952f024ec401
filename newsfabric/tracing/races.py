"""Counts who wins: of the copies of a message, which way was first and by how much.

A gold message travels on several ways on purpose. ``copies`` counts each arrival by way and
place (first, later, again), ``lead`` is by how much the winner beat the next way. Ways are named by
their shovels, which topology bounds; at :data:`MOST_WAYS` further ones are "other".
"""

from __future__ import annotations

from typing import Final

from prometheus_client import Histogram

from newsfabric.messages.envelope import Envelope
from newsfabric.metrics.tallied import Count, Counted
from newsfabric.tracing.sightings import Place, SeenCopy, Sighting, Sightings, Way

# Nine regions on two paths each through two feeds, and some for moves.
MOST_WAYS: Final = 64
_OTHER: Final = "other"
# What no shovel brought: it was missed on the feed and read from the store.
STORE: Final[Way] = ("store",)
# What no shovel brought at all.
DIRECT: Final = "direct"


class Races:
    """One process's ring of sightings, and the counters of what came in."""

    def __init__(self, copies: Counted, lead: Histogram) -> None:
        """``copies`` has labels ``way`` and ``place``, ``lead`` has ``way``."""
        self.sightings = Sightings()
        self._copies = copies
        self._lead = lead
        self._labels: dict[Way, str] = {}
        self._counted: dict[tuple[Way, Place], Count] = {}

    def came(self, envelope: Envelope, way: Way, at_ms: int) -> Sighting:
        """Count a routed copy, and remember it; what is known of its message."""
        copy = SeenCopy(
            at_ms, way, envelope.id, envelope.router, envelope.epoch, envelope.seq, envelope.path
        )
        identity = envelope.identity
        if self.again(identity, copy):
            known = self.sightings.get(identity)
            assert known is not None
            return known
        message_id, published_ms = envelope.message_id, envelope.published_ms
        found = Sighting(identity, envelope.topic, message_id, published_ms, [copy])
        self.first(found)
        return found

    def again(self, identity: int, copy: SeenCopy) -> bool:
        """Count ``copy`` if it isn't the first of its message; whether it was not."""
        arrival = self.sightings.again(identity, copy)
        if arrival is None:
            return False
        self._count(copy.way, arrival.place)
        if arrival.lead_ms is not None:
            self._lead.labels(self._label(arrival.winner)).observe(arrival.lead_ms / 1000)
        return True

    def first(self, sighting: Sighting) -> None:
        """Count the first copy of a message, and remember it."""
        self._count(sighting.copies[0].way, Place.FIRST)
        self.sightings.first(sighting)

    def _count(self, way: Way, place: Place) -> None:
        counter = self._counted.get((way, place))
        if counter is None:
            counter = self._copies.labels(self._label(way), place.value)
            if way in self._labels:
                self._counted[way, place] = counter
        counter.inc()

    def _label(self, way: Way) -> str:
        label = self._labels.get(way)
        if label is None:
            if len(self._labels) >= MOST_WAYS:
                return _OTHER
            label = self._labels[way] = " ".join(way) or DIRECT
        return label
