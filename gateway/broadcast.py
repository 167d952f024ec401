"""One message to all who are subscribed, whichever process holds their connections."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from gateway import measures
from gateway.engine import Engine
from gateway.fanout import Fanout
from gateway.gate import Gate
from gateway.hub import Hub
from gateway.publication import Publication
from gateway.spans import spans_of
from newsfabric import otel_tracer
from newsfabric.envelope import Envelope
from newsfabric.races import STORE, Races
from newsfabric.sightings import Sighting
from newsfabric.store.rules import clock_ms
from newsfabric.topics import REVOKED


class Broadcast:
    """Publishes what the hub has made of envelopes; ``box`` is the name in traces."""

    def __init__(
        self, *, hub: Hub, fanout: Fanout, engine: Engine, gate: Gate, races: Races, box: str
    ) -> None:
        self._hub = hub
        self._fanout = fanout
        self._engine = engine
        self._gate = gate
        self._races = races
        self._box = box
        self._tracer = otel_tracer.current()

    def publish(
        self,
        publication: Publication,
        sighting: Sighting | None = None,
        done: Callable[[], None] | None = None,
    ) -> None:
        """Send what the hub has just made of an envelope to all who are subscribed.

        When it has been given to the last of them ``sighting`` says so, and ``done`` is called.
        """
        if publication.envelope.topic == REVOKED:
            # Whichever way it came: for us, not for readers.
            self._gate.apply_revocations([publication.envelope])
            self._published(publication, sighting, done)
            return
        audience = self._hub.audience(publication.envelope.topic)
        left = 2

        def given() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                self._published(publication, sighting, done)

        self._engine.publish(publication, given)
        if audience:
            self._fanout.publish(publication, audience, given)
        else:
            given()

    def publish_found(self, envelope: Envelope) -> asyncio.Event | None:
        """Publish what was found missing in the store; None if it is a copy after all.

        What is returned is set when it has been given to the last reader.
        """
        publication = self._hub.offer(envelope, time.time())
        if publication is None:
            return None
        done = asyncio.Event()
        self.publish(publication, self._races.came(envelope, STORE, clock_ms()), done.set)
        return done

    def _published(
        self,
        publication: Publication,
        sighting: Sighting | None,
        done: Callable[[], None] | None,
    ) -> None:
        measures.published(publication)
        if sighting is not None:
            now_ms = sighting.steps["delivered"] = clock_ms()
            envelope = publication.envelope
            context = self._tracer.context(envelope.identity, envelope.traceparent)
            if context is not None:
                spans = spans_of(envelope, sighting, context, self._box, now_ms=now_ms)
                self._tracer.add(spans)
        if done is not None:
            done()
