"""Counters of races: the way whose copy of a message was first, and its lead.

A gold message travels on several ways on purpose. ``copies`` counts each arrival by way and place
(first, later, again), ``lead`` is the time by which the winner beat the next way. Ways have the
names of their shovels, which topology bounds; beyond :data:`MOST_WAYS` further ones are "other".
"""

from __future__ import annotations

from typing import Final

from prometheus_client import Histogram

from newsfabric.messages.envelope import Envelope
from newsfabric.metrics.bulk import Count, Counted
from newsfabric.tracing.sightings import RacePlace, SeenCopy, Sighting, Sightings, Way

# Nine regions on two paths each through two feeds, and some for moves.
MOST_WAYS: Final = 64
_OTHER: Final = "other"
# The way of a message that no shovel brought: the feed lost it, and it was read from the store.
STORE: Final[Way] = ("store",)
# The label of a message's way without any shovel.
DIRECT: Final = "direct"


class Races:
    """A process's ring of sightings, and its counters of arrivals."""

    def __init__(self, copies: Counted, lead: Histogram) -> None:
        """Set up; ``copies`` has labels ``way`` and ``place``, ``lead`` has ``way``."""
        self.sightings = Sightings()
        self._copies = copies
        self._lead = lead
        self._labels: dict[Way, str] = {}
        self._counted: dict[tuple[Way, RacePlace], Count] = {}

    def came(self, envelope: Envelope, way: Way, at_ms: int) -> Sighting:
        """Count a routed copy, and remember it; return all that is known of its message."""
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
        """Count ``copy`` unless it is the first of its message; return whether it was counted."""
        arrival = self.sightings.again(identity, copy)
        if arrival is None:
            return False
        self._count(copy.way, arrival.place)
        if arrival.lead_ms is not None:
            self._lead.labels(self._label(arrival.winner)).observe(arrival.lead_ms / 1000)
        return True

    def first(self, sighting: Sighting) -> None:
        """Count the first copy of a message, and remember it."""
        self._count(sighting.copies[0].way, RacePlace.FIRST)
        self.sightings.first(sighting)

    def _count(self, way: Way, place: RacePlace) -> None:
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
