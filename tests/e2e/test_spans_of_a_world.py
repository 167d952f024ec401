"""A publisher's trace through a real world: routers, brokers, shovels and gateways of two regions.

The fields of each span are tested in test_spans.py, without a broker. Here routers and gateways of
a world are restarted with a collector, and without it afterwards.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine

import pytest
import pytest_asyncio
from tailing import Tail
from trace_collector import PARENT, PATIENCE, Collected, Collector, open_collector
from worlds import World

from newsfabric.publish import AsyncPublisher
from newsfabric.store.rules import clock_ms

pytestmark = [
    pytest.mark.slow,
    pytest.mark.world,
    pytest.mark.timeout(600),
    pytest.mark.asyncio(loop_scope="module"),
]

REGIONS = ("oregon", "dublin")
TRACING = [
    f"{region}-{process}"
    for region in REGIONS
    for process in ("router-1", "router-2", "retail-1-gateway")
]


@pytest_asyncio.fixture(loop_scope="module")
async def collector(world: World, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Collector]:
    """Yield the collector to which all routers and gateways of the world send spans."""
    async with open_collector() as collector:
        monkeypatch.setenv("NEWSFABRIC_OTLP_ENDPOINT", collector.url)
        await asyncio.to_thread(_start_anew, world)
        yield collector
        monkeypatch.delenv("NEWSFABRIC_OTLP_ENDPOINT")
        await asyncio.to_thread(_start_anew, world)


def _start_anew(world: World) -> None:
    """Restart the processes that trace, with the current environment."""
    killed = world.run("chaos", "kill", *TRACING)
    assert killed.returncode == 0, killed.stderr
    world.mend()


async def _spans_of_one(
    world: World, collector: Collector, topic: str, complete: Callable[[list[Collected]], bool]
) -> list[Collected]:
    """Return the spans of a message to ``topic``, published in oregon and read in both regions."""
    trace = secrets.token_hex(16)
    tails = [await asyncio.to_thread(Tail, world, topic, region=region) for region in REGIONS]
    url = world.amqp_url("oregon")
    before = clock_ms()
    async with await AsyncPublisher.open([url], app_id="tests", timeout=PATIENCE) as publisher:
        await publisher.publish(topic, {"headline": 1}, traceparent=f"00-{trace}-{PARENT}-01")
    for tail in tails:
        await asyncio.to_thread(tail.messages)

    def found() -> list[Collected]:
        return [span for span in collector.spans if span.trace_id == trace]

    await _until(collector, lambda: complete(found()))
    after = clock_ms()
    for span in found():
        assert before <= span.ms[0] <= span.ms[1] <= after
        assert span.fields["status"] == {"code": 0}
    return found()


def _until(collector: Collector, holds: Callable[[], bool]) -> Coroutine[None, None, None]:
    async def wait() -> None:
        async with asyncio.timeout(PATIENCE):
            while not holds():
                collector.came.clear()
                await collector.came.wait()

    return wait()


def _named(spans: list[Collected], name: str) -> list[Collected]:
    return [span for span in spans if span.name == name]


def _region(span: Collected) -> str:
    return str(span.resource["newsfabric.region"])


def _routed_in(*regions: str) -> Callable[[list[Collected]], bool]:
    """Return a check that routers of all these regions and both boxes have sent all their spans.

    Both routers of a region may route a gold message, since it is in both its queues: then there
    are two spans of oregon before dublin's have arrived.
    """
    wanted = dict.fromkeys(("route", "store", "publish"), regions)
    wanted |= dict.fromkeys(("carry", "deliver"), REGIONS)

    def complete(spans: list[Collected]) -> bool:
        text = all(
            {_region(span) for span in _named(spans, name)} == set(found)
            for name, found in wanted.items()
        )
        routes = {span.span_id for span in _named(spans, "route")}
        return text and all(span.parent in routes for span in _named(spans, "carry"))

    return complete


def _check_route(spans: list[Collected], route: Collected) -> None:
    """Check a router's spans: the publisher's child, and in it the store and the exchanges."""
    assert route.parent == PARENT
    assert route.resource["service.name"] == "newsfabric-router"
    assert route.resource["service.instance.id"] == route.attributes["newsfabric.router"]
    assert [name for name, _ in route.events] == ["published", "shovel"]
    assert route.events[1][1] == {"newsfabric.shovel": "publish.oregon.1"}
    (store,) = [span for span in _named(spans, "store") if span.parent == route.span_id]
    (publish,) = [span for span in _named(spans, "publish") if span.parent == route.span_id]
    assert route.ms[0] <= store.ms[0] <= store.ms[1] == publish.ms[0]
    assert publish.ms[0] <= publish.ms[1] == route.ms[1]


def _check_box(spans: list[Collected], region: str) -> None:
    """Check a gateway's spans: two in a row, children of the router's whose copy won."""
    (carry,) = [span for span in _named(spans, "carry") if _region(span) == region]
    (deliver,) = [span for span in _named(spans, "deliver") if _region(span) == region]
    (route,) = [span for span in _named(spans, "route") if span.span_id == carry.parent]
    (store,) = [span for span in _named(spans, "store") if span.parent == route.span_id]
    far = [] if _region(route) == region else [f"outbound.{_region(route)}.1"]
    way = [*far, "postoffice.1"]
    assert carry.attributes["newsfabric.way"] == way
    assert carry.events == [("shovel", {"newsfabric.shovel": name}) for name in way]
    assert deliver.parent == route.span_id
    assert {one.attributes["newsfabric.box"] for one in (carry, deliver)} == {f"{region}-retail-1"}
    assert deliver.resource["service.name"] == "newsfabric-gateway"
    assert deliver.attributes["newsfabric.id"] == route.attributes["newsfabric.id"]
    assert store.ms[0] == carry.ms[0] <= carry.ms[1] == deliver.ms[0] <= deliver.ms[1]


async def test_one_trace_has_routers_stores_shovels_and_gateways_of_both_regions(
    world: World, collector: Collector
) -> None:
    gold = await _spans_of_one(world, collector, "news.breaking", _routed_in(*REGIONS))
    silver = await _spans_of_one(world, collector, "news.world", _routed_in("oregon"))
    for spans, topic_class in ((gold, "gold"), (silver, "silver")):
        for route in _named(spans, "route"):
            assert route.attributes["newsfabric.class"] == topic_class
            _check_route(spans, route)
        for region in REGIONS:
            _check_box(spans, region)
