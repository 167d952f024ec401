"""The spans that a router reports for one message, at its end, to a collector of traces. Pure.

One span from the message's arrival to its end, the child of its publisher's span. It has one child
for the store and one for the exchanges. The arrival by a shovel is an event, not a span: the time
when the shovel took the message isn't known.
"""

from __future__ import annotations

from newsfabric.messages.envelope import identity_text, ms_of_id
from newsfabric.tracing.otel_spans import (
    Context,
    Kind,
    Span,
    SpanEvent,
    Value,
    route_span_id,
    span_id,
)
from newsfabric.tracing.sightings import Sighting
from wholesale.router.jobs import RoutingJob

SERVICE = "router"


def spans_of(
    job: RoutingJob,
    sighting: Sighting | None,
    context: Context,
    router: str,
    *,
    now_ms: int,
    error: str,
) -> list[Span]:
    """Return the spans of ``job``, which ends at ``now_ms``; ``error`` is "" if it was routed."""
    envelope, submission = job.envelope, job.submission
    identity = identity_text(submission.identity)
    came_ms = now_ms if sighting is None else sighting.copies[0].at_ms
    if envelope is None:
        own = span_id("unnumbered", router, identity, came_ms)
    else:
        own = route_span_id(router, envelope.epoch, envelope.seq)
    attributes: dict[str, Value] = {
        "messaging.system": "rabbitmq",
        "messaging.destination.name": submission.topic,
        "messaging.message.body.size": len(submission.body),
        "newsfabric.identity": identity,
        "newsfabric.class": job.topic_class,
        "newsfabric.router": router,
        "newsfabric.copies": len(job.claims),
    }
    if submission.message_id is not None:
        attributes["messaging.message.id"] = submission.message_id
    if envelope is not None:
        attributes |= {"newsfabric.id": envelope.id, "newsfabric.seq": envelope.seq}
    found = [
        Span(
            trace_id=context.trace_id,
            span_id=own,
            parent=context.parent,
            name="route",
            service=SERVICE,
            kind=Kind.CONSUMER,
            start_ms=came_ms,
            end_ms=now_ms,
            attributes=attributes,
            events=_events(job),
            error=error,
        )
    ]
    if envelope is not None and job.stored_ms is not None:
        steps = (
            ("store", Kind.INTERNAL, ms_of_id(envelope.id), job.stored_ms),
            ("publish", Kind.PRODUCER, job.stored_ms, now_ms),
        )
        found += [
            Span(
                trace_id=context.trace_id,
                span_id=span_id(name, own),
                parent=own,
                name=name,
                service=SERVICE,
                kind=kind,
                start_ms=start_ms,
                end_ms=end_ms,
                attributes={"newsfabric.router": router},
            )
            for name, kind, start_ms, end_ms in steps
        ]
    return found


def _events(job: RoutingJob) -> tuple[SpanEvent, ...]:
    # By its publisher's clock.
    events = [SpanEvent("published", job.submission.published_ms)]
    if job.submission.came is not None:
        shovel, _, at = job.submission.came.rpartition("@")
        events.append(SpanEvent("shovel", int(at), {"newsfabric.shovel": shovel}))
    return tuple(events)
