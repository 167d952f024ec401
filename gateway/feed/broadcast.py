"""The sending of a message to all its subscribers, whichever process holds their connections."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import time
from collections.abc import Callable

from gateway.answers.authenticator import Authenticator
from gateway.feed.engine import Engine
from gateway.feed.fanout import Fanout
from gateway.memory.hub import Hub
from gateway.process import measures
from gateway.wire.publication import Publication
from newsfabric.messages.envelope import Envelope, identity_text, ms_of_id
from newsfabric.store.rules import clock_ms
from newsfabric.topics import REVOKED
from newsfabric.tracing import otel_tracer
from newsfabric.tracing.otel_spans import Context, Kind, Span, SpanEvent, route_span_id, span_id
from newsfabric.tracing.races import STORE, Races
from newsfabric.tracing.sightings import Sighting


@dataclasses.dataclass(kw_only=True, eq=False, repr=False)
class Broadcast:
    """The sender of the hub's publications to readers; ``box`` is the box's name in traces."""

    hub: Hub
    fanout: Fanout
    engine: Engine
    authenticator: Authenticator
    races: Races
    box: str

    def __post_init__(self) -> None:
        self._tracer = otel_tracer.current()

    def publish(
        self,
        publication: Publication,
        sighting: Sighting | None = None,
        done: Callable[[], None] | None = None,
    ) -> None:
        """Send ``publication``, which the hub has just made, to all subscribers of its topic.

        When it was sent to the last one, write the time into ``sighting`` and call ``done``.
        """
        if publication.envelope.topic == REVOKED:
            # From the feed or from the store: a revocation is for gateways, not for readers.
            self.authenticator.apply_revocations([publication.envelope])
            self._published(publication, sighting, done)
            return
        audience = self.hub.topics.audience(publication.envelope.topic)
        left = 2

        def given() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                self._published(publication, sighting, done)

        self.engine.publish(publication, given)
        if audience:
            self.fanout.publish(publication, audience, given)
        else:
            given()

    def publish_found(self, envelope: Envelope) -> asyncio.Event | None:
        """Publish a missing message that was read from the store; return None if it is a copy.

        The event returned is set when the message was sent to the last reader.
        """
        publication = self.hub.offer(envelope, time.time())
        if publication is None:
            return None
        done = asyncio.Event()
        self.publish(publication, self.races.came(envelope, STORE, clock_ms()), done.set)
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
                spans = _spans(envelope, sighting, context, self.box, now_ms=now_ms)
                self._tracer.add(spans)
        if done is not None:
            done()


def _spans(
    envelope: Envelope, sighting: Sighting, context: Context, box: str, *, now_ms: int
) -> list[Span]:
    """Return the trace's spans of ``envelope``, which was sent to the last reader at ``now_ms``.

    Both spans are children of the router's span. ``carry`` lasts from the time of the router's
    number to the arrival of the published copy here. It has an event for each shovel, all at the
    arrival, since shovels record no times. ``deliver`` lasts from there to the last reader's
    socket. On the native engine it ends when the data plane reports that it has sent to all.
    """
    parent = route_span_id(envelope.router, envelope.epoch, envelope.seq)
    # The published copy; if the ring has dropped that one, its first copy.
    own = next((copy for copy in sighting.copies if copy.id == envelope.id), sighting.copies[0])
    shovels = tuple(SpanEvent("shovel", own.at_ms, {"newsfabric.shovel": name}) for name in own.way)
    child = functools.partial(Span, trace_id=context.trace_id, parent=parent, service="gateway")
    carried = child(
        span_id=span_id("carry", box, parent),
        name="carry",
        kind=Kind.INTERNAL,
        start_ms=ms_of_id(envelope.id),
        end_ms=own.at_ms,
        attributes={
            "newsfabric.box": box,
            "newsfabric.origin": envelope.origin,
            "newsfabric.way": own.way,
        },
        events=shovels,
    )
    delivered = child(
        span_id=span_id("deliver", box, parent),
        name="deliver",
        kind=Kind.CONSUMER,
        start_ms=own.at_ms,
        end_ms=now_ms,
        attributes={
            "messaging.system": "rabbitmq",
            "messaging.destination.name": envelope.topic,
            "newsfabric.box": box,
            "newsfabric.id": envelope.id,
            "newsfabric.identity": identity_text(envelope.identity),
        },
    )
    return [carried, delivered]
