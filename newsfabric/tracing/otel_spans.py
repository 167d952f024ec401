"""Spans of messages, for a collector of traces: each process's actions and their times. Pure.

A message's trace id is that of the publisher's ``traceparent`` (W3C Trace Context), or, without
one, is derived from the identity. So all processes that see the message find the same trace id and
make the same sampling decision, without communication. Ids of spans are derived likewise, from the
router's log and number and from the process. So a gateway knows the router's span that is the
parent of its own, and an envelope needs no further fields.

The decision that a reader may question: an unsampled ``traceparent`` is obeyed, whatever our own
ratio is. Its publisher decides, as the standard requires.

Times are ms since the epoch, as in envelopes.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from newsfabric.messages.envelope import identity_text

# W3C Trace Context section 3.2.2. A later version may have more after the flags; envelopes hold
# only the form of version 00.
_TRACEPARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_SAMPLED: Final = 0x01
_MAX_ATTRIBUTE: Final = 255

Value = str | int | float | bool | Sequence[str]


class Kind(enum.IntEnum):
    """OTLP's SpanKind."""

    INTERNAL = 1
    PRODUCER = 4
    CONSUMER = 5


@dataclasses.dataclass(frozen=True, slots=True)
class Context:
    """The trace that a message belongs to; ``parent`` is its publisher's span, if it named one."""

    trace_id: str
    parent: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class SpanEvent:
    """A moment within a span."""

    name: str
    at_ms: int
    attributes: Mapping[str, Value] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A span. ``service`` is the kind of process. ``error`` is a failure's reason, or empty."""

    trace_id: str
    span_id: str
    parent: str | None
    name: str
    service: str
    kind: Kind
    start_ms: int
    end_ms: int
    attributes: Mapping[str, Value]
    events: tuple[SpanEvent, ...] = ()
    error: str = ""


def context_of(identity: int, traceparent: str | None, ratio: float) -> Context | None:
    """Return the trace of a message; None if it isn't sampled.

    ``ratio`` (0 to 1) is the sampled share of messages without a valid ``traceparent``. A malformed
    one counts as none.
    """
    found = _TRACEPARENT.fullmatch(traceparent) if traceparent is not None else None
    if found is not None:
        version, trace_id, parent, flags = found.groups()
        if version != "ff" and trace_id.strip("0") and parent.strip("0"):
            return Context(trace_id, parent) if int(flags, 16) & _SAMPLED else None
    if ratio <= 0:
        return None
    trace_id = _hash(16, "trace", identity_text(identity))
    # The end of it: some back ends distribute traces by the beginning.
    return Context(trace_id, None) if int(trace_id[16:], 16) < ratio * 2**64 else None


def span_id(*of: str | int) -> str:
    """Return the id of the span that the words ``of`` name, the same in every process."""
    return _hash(8, *of)


def route_span_id(router: str, epoch: int, seq: int) -> str:
    """Return the id of the span in which ``router`` took, stored and routed its number ``seq``."""
    return span_id("route", router, epoch, seq)


def otlp(spans: Iterable[Span], *, instance: str, region: str, version: str) -> dict[str, Any]:
    """Return ``spans`` as an ExportTraceServiceRequest (OTLP 1, JSON) of process ``instance``."""
    by_service: dict[str, list[Span]] = {}
    for span in spans:
        by_service.setdefault(span.service, []).append(span)
    return {
        "resourceSpans": [
            {
                "resource": {
                    "attributes": _attributes(
                        {
                            "service.name": f"newsfabric-{service}",
                            "service.namespace": "newsfabric",
                            "service.instance.id": instance,
                            "service.version": version,
                            "newsfabric.region": region,
                        }
                    )
                },
                "scopeSpans": [
                    {
                        "scope": {"name": "newsfabric", "version": version},
                        "spans": [_span(span) for span in some],
                    }
                ],
            }
            for service, some in by_service.items()
        ]
    }


def _span(span: Span) -> dict[str, Any]:
    made: dict[str, Any] = {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "name": span.name,
        "kind": int(span.kind),
        # Clocks of two machines differ: no span may end before it begins.
        "startTimeUnixNano": _nanos(min(span.start_ms, span.end_ms)),
        "endTimeUnixNano": _nanos(span.end_ms),
        "attributes": _attributes(span.attributes),
        "events": [
            {
                "name": _text(event.name),
                "timeUnixNano": _nanos(event.at_ms),
                "attributes": _attributes(event.attributes),
            }
            for event in span.events
        ],
        "status": {"code": 2, "message": _text(span.error)} if span.error else {"code": 0},
    }
    if span.parent is not None:
        made["parentSpanId"] = span.parent
    return made


def _attributes(values: Mapping[str, Value]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in values.items()]


def _value(value: Value) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        # Protobuf's JSON has 64-bit integers as texts.
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, str):
        return {"stringValue": _text(value)}
    return {"arrayValue": {"values": [{"stringValue": _text(one)} for one in value]}}


def _text(value: str) -> str:
    # Names of shovels come from headers, which needn't be UTF-8.
    return value[:_MAX_ATTRIBUTE].encode("utf-8", "replace").decode("utf-8")


def _nanos(ms: int) -> str:
    return str(max(0, ms) * 1_000_000)


def _hash(size: int, *of: str | int) -> str:
    text = "\0".join(map(str, of))
    made = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).hexdigest()
    # All zeros is no id (W3C Trace Context 3.2.2.3 and 3.2.2.4).
    return made if made.strip("0") else "1" * len(made)
