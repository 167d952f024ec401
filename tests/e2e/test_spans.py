"""A single trace: from a publisher's traceparent through a router to a gateway's readers."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator

import pytest
from core_cluster import CoreCluster, message
from core_cluster import running as router_on
from gateways import ENGINES, TABLE, opened_box
from shovelled import shovelled
from trace_collector import Collected, Collector, open_collector

from newsfabric.amqp.stub import StubBroker
from newsfabric.messages.envelope import identity_of_id
from newsfabric.store.memory import MemoryStore
from newsfabric.store.rules import clock_ms
from newsfabric.tracing import otel_tracer
from newsfabric.tracing.otel_tracer import TraceSettings

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
SAMPLED = f"00-{TRACE}-{PARENT}-01"


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    async with open_collector() as collector:
        yield collector


@pytest.fixture
async def core() -> CoreCluster:
    broker = StubBroker()
    core = CoreCluster(broker, broker.connect(), MemoryStore(TABLE), TABLE)
    await core.open()
    return core


def traced(collector: Collector, sample: float = 0.0):
    settings = TraceSettings(endpoint=collector.url, sample=sample)
    return otel_tracer.running(settings, instance="one", region="oregon")


def by_name(spans: list[Collected]) -> dict[str, Collected]:
    found = {one.name: one for one in spans}
    assert len(found) == len(spans)
    return found


@pytest.mark.parametrize("engine", list(ENGINES))
async def test_a_publishers_trace_goes_through_router_and_gateway(
    engine: str, collector: Collector, core: CoreCluster
) -> None:
    sent = message(
        "news.breaking",
        b'{"headline":1}',
        message_id="m1",
        headers={"traceparent": SAMPLED, **shovelled("publish.oregon.0")},
    )
    async with (
        traced(collector),
        router_on(core, now_ms=clock_ms, epoch=clock_ms()) as router,
        opened_box(engine) as box,
        box.reader("news.breaking") as reader,
    ):
        core.publish(sent)
        await core.none_owed(router)
        (routed,) = core.arrived("postoffice")
        way = shovelled("feed.oregon.0")
        box.send(
            dataclasses.replace(
                routed,
                properties=dataclasses.replace(
                    routed.properties, headers={**routed.properties.headers, **way}
                ),
            )
        )
        push = await reader.hear()
        found = by_name(await collector.has(5))
    assert found.keys() == {"route", "store", "publish", "carry", "deliver"}
    assert {one.trace_id for one in found.values()} == {TRACE}
    route = found["route"]
    assert route.parent == PARENT
    assert {one.parent for name, one in found.items() if name != "route"} == {route.span_id}
    assert route.attributes["newsfabric.id"] == push["id"]
    assert route.attributes["messaging.message.id"] == "m1"
    assert [name for name, _ in route.events] == ["published", "shovel"]
    assert route.events[1][1] == {"newsfabric.shovel": "publish.oregon.0"}
    assert found["carry"].attributes["newsfabric.way"] == ["feed.oregon.0"]
    assert found["carry"].events == [("shovel", {"newsfabric.shovel": "feed.oregon.0"})]
    assert found["deliver"].attributes["newsfabric.box"] == "box-1"
    assert found["deliver"].resource["service.name"] == "newsfabric-gateway"
    assert route.resource["service.name"] == "newsfabric-router"
    order = [found[name].ms for name in ("route", "store", "publish", "carry", "deliver")]
    assert order[0][0] <= order[1][0] <= order[1][1] == order[2][0] <= order[2][1] == order[0][1]
    assert order[1][0] == order[3][0] <= order[3][1] == order[4][0] <= order[4][1]
    # A trace has no bodies.
    assert "headline" not in str([one.fields for one in found.values()])


async def test_a_trace_that_its_publisher_does_not_sample_is_none(
    collector: Collector, core: CoreCluster
) -> None:
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-00"}
    async with traced(collector, sample=1.0), router_on(core) as router:
        core.publish(message("news.breaking", b"{}", headers=headers))
        core.publish(message("news.breaking", b'"b"', headers={"traceparent": SAMPLED}))
        await core.none_owed(router)
        await collector.has(3)
    assert {one.trace_id for one in collector.spans} == {TRACE}


async def test_without_a_traceparent_router_and_gateway_find_the_same_trace(
    collector: Collector, core: CoreCluster
) -> None:
    async with (
        traced(collector, sample=1.0),
        router_on(core, now_ms=clock_ms, epoch=clock_ms()) as router,
        opened_box() as box,
    ):
        core.publish(message("news.breaking", b"{}", message_id="m1"))
        await core.none_owed(router)
        (routed,) = core.arrived("postoffice")
        box.send(routed)
        spans = await collector.has(5)
        (envelope,) = core.envelopes()
    assert len({one.trace_id for one in spans}) == 1
    assert by_name(spans)["route"].parent is None
    assert identity_of_id(envelope.id) == envelope.identity


async def test_what_a_gateway_finds_in_the_store_is_traced_as_well(collector: Collector) -> None:
    async with traced(collector), opened_box() as box:
        missed = box.envelope(traceparent=SAMPLED)
        await box.store.write([missed])
        box.tick(seq=missed.seq, low=missed.seq)
        spans = by_name(await collector.has(2))
    assert spans["carry"].attributes["newsfabric.way"] == ["store"]


async def test_a_message_that_is_dropped_says_so_in_its_span(
    collector: Collector, core: CoreCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = iter([0.0, *[1e6] * 100])
    async with traced(collector), router_on(core, now=lambda: next(moments)) as router:
        core.publish(message("news.breaking", b"{}", headers={"traceparent": SAMPLED}))
        await core.none_owed(router)
        (span,) = await collector.has(1)
    assert span.fields["status"] == {"code": 2, "message": "waited for too long"}


async def test_a_collector_that_hangs_holds_no_message_up(
    collector: Collector, core: CoreCluster
) -> None:
    collector.answering.clear()
    async with traced(collector, sample=1.0), router_on(core) as router:
        core.publish(*(message("news.breaking", b"%d" % n) for n in range(500)))
        await core.none_owed(router)
        assert len(core.envelopes()) == 500
        collector.answering.set()
        await collector.has(1500)
