"""What a gateway tells a collector of traces of one publication, when readers have it. Pure.

Both spans are children of the router's, whose id a gateway can tell from the envelope: the way
here, from the router's number to the arrival of the copy that won, with an event for each shovel
(none writes down when it took the message), and the way from there to the last reader's socket.
On the native engine that is when the data plane has given it to all of them.
"""

from __future__ import annotations

from newsfabric.envelope import Envelope, identity_text, ms_of_id
from newsfabric.otel_spans import Context, Kind, Span, SpanEvent, route_span_id, span_id
from newsfabric.sightings import Sighting

SERVICE = "gateway"


def spans_of(
    envelope: Envelope, sighting: Sighting, context: Context, box: str, *, now_ms: int
) -> list[Span]:
    """The spans of ``envelope``, which the last reader was given at ``now_ms``."""
    parent = route_span_id(envelope.router, envelope.epoch, envelope.seq)
    # Of the ring's copies the one that was published; it is the first, if that isn't forgotten.
    own = next((copy for copy in sighting.copies if copy.id == envelope.id), sighting.copies[0])
    shovels = tuple(SpanEvent("shovel", own.at_ms, {"newsfabric.shovel": name}) for name in own.way)
    carried = Span(
        trace_id=context.trace_id,
        span_id=span_id("carry", box, parent),
        parent=parent,
        name="carry",
        service=SERVICE,
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
    delivered = Span(
        trace_id=context.trace_id,
        span_id=span_id("deliver", box, parent),
        parent=parent,
        name="deliver",
        service=SERVICE,
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
