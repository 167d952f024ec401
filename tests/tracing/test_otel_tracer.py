"""Spans are sent to a collector in time, in bounded numbers, and never delay anything."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from metric_values import value
from trace_collector import Collector, open_collector, span

from newsfabric.errors import ConfigError
from newsfabric.tracing import otel_tracer
from newsfabric.tracing.otel_tracer import BATCH, ROOM, SPANS, Tracer, TraceSettings


def count(outcome: str) -> float:
    return value(SPANS.labels(outcome))


def running(collector: Collector, sample: float = 0.0):
    settings = TraceSettings(endpoint=collector.url, sample=sample)
    return otel_tracer.running(settings, instance="r1", region="oregon")


async def test_spans_reach_the_collector() -> None:
    sent = count("sent")
    async with open_collector() as collector, running(collector) as tracer:
        assert otel_tracer.current() is tracer
        tracer.add([span(span_id=f"{n:016x}") for n in range(1, 300)])
        found = await collector.has(299)
    assert [int(one.span_id, 16) for one in found] == list(range(1, 300))
    assert found[0].resource["service.instance.id"] == "r1"
    assert collector.requests == -(-299 // BATCH)
    assert count("sent") == sent + 299


async def test_without_an_endpoint_nothing_is_traced() -> None:
    async with otel_tracer.running(TraceSettings(sample=1.0), instance="r1", region="r") as tracer:
        assert not tracer.is_on
        assert tracer.context(1, "00-" + "1" * 32 + "-" + "1" * 16 + "-01") is None
        tracer.add([span()])
    assert otel_tracer.current().context(1, None) is None


async def test_what_finds_no_room_is_dropped_and_counted() -> None:
    dropped, sent = count("dropped"), count("sent")
    async with open_collector() as collector:
        collector.answering.clear()
        async with running(collector) as tracer:
            tracer.add([span()])
            await collector.was_asked(1)
            for _ in range(ROOM + 500):
                tracer.add([span()])
            assert count("dropped") == dropped + 501
            collector.answering.set()
            await collector.has(ROOM)
    assert (count("dropped"), count("sent")) == (dropped + 501, sent + ROOM)


@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_a_batch_is_sent_again_while_the_collector_is_busy(status: int) -> None:
    async with open_collector() as collector, running(collector) as tracer:
        collector.answers = [status, status]
        tracer.add([span()])
        assert len(await collector.has(1)) == 1
        assert collector.requests == 3


async def test_what_the_collector_refuses_is_counted_and_not_sent_again() -> None:
    refused, sent = count("refused"), count("sent")
    async with open_collector() as collector, running(collector) as tracer:
        collector.answers = [400]
        tracer.add([span()])
        await collector.was_asked(1)
        collector.body = {"partialSuccess": {"rejectedSpans": "2", "errorMessage": "no"}}
        tracer.add([span(), span(), span()])
        await collector.has(3)
    assert collector.requests == 2
    assert (count("refused"), count("sent")) == (refused + 3, sent + 1)


@pytest.mark.parametrize("body", [{"partialSuccess": 7}, {"partialSuccess": {}}, {"x": 1}])
async def test_whatever_the_collector_says_with_200_is_fine(body: dict[str, object]) -> None:
    async with open_collector() as collector, running(collector) as tracer:
        collector.body = body
        tracer.add([span()])
        assert len(await collector.has(1)) == 1


async def test_at_the_end_what_waits_is_sent() -> None:
    async with open_collector() as collector:
        async with running(collector) as tracer:
            tracer.add([span()] * 3)
        assert len(collector.spans) == 3


@pytest.mark.sockets
async def test_at_the_end_a_collector_that_is_away_holds_nobody_up() -> None:
    dropped = count("dropped")
    settings = TraceSettings(endpoint="http://127.0.0.1:1")
    async with otel_tracer.running(settings, instance="r1", region="oregon") as tracer:
        tracer.add([span()] * 3)
    assert count("dropped") == dropped + 3


@pytest.mark.parametrize(
    "settings",
    [
        {"endpoint": "ftp://x"},
        {"endpoint": "collector:4318"},
        {"endpoint": "http://"},
        {"endpoint": "http://x:99999"},
        {"endpoint": "http://user:secret@x"},
        {"endpoint": "http://x/?key=secret"},
        {"sample": 1.5},
        {"sample": -0.1},
        {"sample": float("nan")},
    ],
)
def test_settings_that_cannot_be_are_one_line_without_a_secret(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigError) as caught:
        TraceSettings(**settings)  # type: ignore[arg-type]
    assert "secret" not in str(caught.value)


def test_a_process_takes_them_from_options_and_environment() -> None:
    command = [sys.executable, "-m", "wholesale", "router", "--name", "a", "--region", "oregon"]
    command += ["--fabric", "none.json", "--topics", "none.toml", "--store", "memory:"]
    for option, variable in (([], "ftp://x"), (["--otlp-endpoint", "ftp://x"], "")):
        done = subprocess.run(
            [*command, "--port", "0", *option],
            env={**os.environ, "NEWSFABRIC_OTLP_ENDPOINT": variable},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 1
        (line,) = done.stderr.splitlines()
        assert line.endswith("a: --otlp-endpoint: write http://HOST:PORT or https://HOST, no login")


def test_a_tracer_alone_takes_nothing() -> None:
    tracer = Tracer()
    tracer.add([span()])
    assert not tracer.is_on
