"""The choice of the messages that are traced, and the ids of their spans."""

from __future__ import annotations

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_collector import PARENT, TRACE, span

from newsfabric.tracing.otel_spans import (
    Context,
    SpanEvent,
    context_of,
    otlp,
    route_span_id,
    span_id,
)


@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_a_traceparent_decides_whatever_our_share_is(ratio: float) -> None:
    assert context_of(1, f"00-{TRACE}-{PARENT}-01", ratio) == Context(TRACE, PARENT)
    assert context_of(1, f"00-{TRACE}-{PARENT}-03", ratio) == Context(TRACE, PARENT)
    assert context_of(1, f"00-{TRACE}-{PARENT}-00", ratio) is None


@pytest.mark.parametrize(
    "traceparent",
    [
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-01-more",
        "nonsense",
        "",
    ],
)
def test_one_that_the_standard_calls_invalid_counts_as_none(traceparent: str) -> None:
    assert context_of(1, traceparent, 0.0) is None
    made = context_of(1, traceparent, 1.0)
    assert made is not None
    assert (made.parent, made) == (None, context_of(1, None, 1.0))


@given(st.integers(0, 2**74 - 1))
def test_every_process_finds_the_same_trace_of_a_message_without_one(identity: int) -> None:
    made = context_of(identity, None, 1.0)
    assert made is not None
    assert made == context_of(identity, None, 1.0)
    assert (len(made.trace_id), made.parent) == (32, None)
    # A process with a higher share samples all that one with a lower share samples.
    if context_of(identity, None, 0.1) is not None:
        assert context_of(identity, None, 0.2) == made


def test_about_the_share_that_was_asked_for_is_sampled() -> None:
    sampled = [n for n in range(10_000) if context_of(n, None, 0.1) is not None]
    assert 850 < len(sampled) < 1150


def test_a_gateway_knows_the_routers_span() -> None:
    assert route_span_id("oregon-router-1", 7, 12) == route_span_id("oregon-router-1", 7, 12)
    assert len({route_span_id("r", e, s) for e in range(9) for s in range(9)}) == 81
    assert span_id("a", "bc") != span_id("ab", "c")


def test_a_span_is_written_as_otlp_has_it() -> None:
    made = span(
        parent="00f067aa0ba902b8",
        attributes={"n": 2**63, "share": 0.5, "on": True, "way": ("a", "b"), "name": "x"},
        events=(SpanEvent("shovel", 11, {"newsfabric.shovel": "feed.1"}),),
        error="too late",
    )
    (resource,) = otlp([made], instance="r1", region="oregon", version="1")["resourceSpans"]
    names = {one["key"]: one["value"]["stringValue"] for one in resource["resource"]["attributes"]}
    assert names["service.name"] == "newsfabric-router"
    assert (names["service.instance.id"], names["newsfabric.region"]) == ("r1", "oregon")
    (written,) = resource["scopeSpans"][0]["spans"]
    assert written == {
        "traceId": TRACE,
        "spanId": PARENT,
        "parentSpanId": "00f067aa0ba902b8",
        "name": "route",
        "kind": 5,
        "startTimeUnixNano": "10000000",
        "endTimeUnixNano": "12000000",
        "attributes": [
            {"key": "n", "value": {"intValue": str(2**63)}},
            {"key": "share", "value": {"doubleValue": 0.5}},
            {"key": "on", "value": {"boolValue": True}},
            {
                "key": "way",
                "value": {"arrayValue": {"values": [{"stringValue": "a"}, {"stringValue": "b"}]}},
            },
            {"key": "name", "value": {"stringValue": "x"}},
        ],
        "events": [
            {
                "name": "shovel",
                "timeUnixNano": "11000000",
                "attributes": [{"key": "newsfabric.shovel", "value": {"stringValue": "feed.1"}}],
            }
        ],
        "status": {"code": 2, "message": "too late"},
    }


def test_spans_of_two_services_have_resources_of_their_own() -> None:
    both = [span(), span(service="gateway")]
    assert len(otlp(both, instance="i", region="r", version="1")["resourceSpans"]) == 2


@pytest.mark.parametrize(("start", "end"), [(20, 10), (-5, -3)])
def test_no_clock_makes_a_span_that_ends_before_it_begins(start: int, end: int) -> None:
    document = otlp([span(start_ms=start, end_ms=end)], instance="i", region="r", version="1")
    written = document["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    assert 0 <= int(written["startTimeUnixNano"]) <= int(written["endTimeUnixNano"])


@given(st.text(st.characters(codec=None)))
def test_every_text_can_be_sent_and_is_bounded(text: str) -> None:
    made = span(attributes={"a": text, "b": [text]}, events=(SpanEvent(text, 1),), error=text)
    body = orjson.dumps(otlp([made], instance="i", region="r", version="1"))
    written = json.loads(body)["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    assert len(written["attributes"][0]["value"]["stringValue"]) <= 255
