"""A router as a process: its pages, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest
from core_cluster import CoreCluster, message, until
from metric_values import value
from shovelled import shovelled
from tornado.httpclient import AsyncHTTPClient, HTTPResponse

from newsfabric.errors import LinkRefused, StoreUnavailable
from newsfabric.store.memory import MemoryStore
from operations.cli.trace import gather, places_at
from operations.message_trace import trace
from wholesale.router import counters
from wholesale.router.service import RouterService, RouterSettings


def service(core: CoreCluster, **settings: Any) -> RouterService:
    return RouterService(
        RouterSettings(name="oregon-router-1", region="oregon", queues=("router.1",), **settings),
        links=core.link,
        taking=core.link,
        store=core.store,
        topics=core.topics,
    )


@contextlib.asynccontextmanager
async def serving(core: CoreCluster, **settings: Any) -> AsyncIterator[tuple[RouterService, str]]:
    router = service(core, **settings)
    stop = asyncio.Event()
    task = asyncio.create_task(router.serve(stop))
    await router.listening.wait()
    try:
        yield router, f"http://127.0.0.1:{router.port}"
    finally:
        stop.set()
        await task


async def get(url: str) -> HTTPResponse:
    return await AsyncHTTPClient().fetch(url, raise_error=False)


async def test_what_it_counts_is_in_its_metrics(core: CoreCluster):
    async with serving(core) as (_, url):
        core.publish(message())
        await until(lambda: core.envelopes())
        page = (await get(f"{url}/metrics")).body.decode()
        for stage in ("decode", "validate", "identify", "store", "route"):
            assert f'newsfabric_router_stage_entered_messages_total{{stage="{stage}"}}' in page


async def test_it_tells_the_way_of_a_message_and_what_the_store_has_of_it(core: CoreCluster):
    async with serving(core) as (_, url):
        ways = ("publish.oregon.1", "publish.oregon.2")
        sent = (message("live.x", message_id="a/b c", headers=shovelled(way)) for way in ways)
        core.publish(*sent)
        await until(lambda: core.envelopes())
        (routed,) = core.envelopes()
        traced = json.loads((await get(f"{url}/trace/{quote('a/b c', safe='')}")).body)
        assert (traced["kind"], traced["name"]) == ("router", "oregon-router-1")
        (seen,) = traced["sightings"]
        assert [copy["way"] for copy in seen["copies"]] == [[way] for way in ways]
        assert (seen["id"], seen["seq"]) == (routed.id, 1)
        assert set(seen["steps"]) == {"stored", "routed"}

        async def stored(id_: str, topic: str) -> list[tuple[str, str, int]]:
            rows = json.loads((await get(f"{url}/stored/{id_}?topic={topic}")).body)["stored"]
            return [(row["id"], row["router"], row["seq"]) for row in rows]

        assert await stored(routed.id, "live.x") == [(routed.id, "oregon-router-1", 1)]
        assert await stored(routed.id, "live.y") == []
        other = routed.id[:-1] + ("0" if routed.id[-1] != "0" else "1")
        assert await stored(other, "live.x") == []
        assert (await get(f"{url}/stored/{routed.id}")).code == 400


async def test_what_no_router_remembers_is_found_by_its_id_and_its_topic(core: CoreCluster):
    async with serving(core):
        core.publish(message("live.x", message_id="old"))
        await until(lambda: core.envelopes())
        (routed,) = core.envelopes()
    async with serving(core) as (_, url):
        found = trace(routed.id, await gather(routed.id, places_at([url]), None))
        assert (found["found"], found["stored"]) == (False, {})
        found = trace(routed.id, await gather(routed.id, places_at([url]), None, "live.x"))
        assert (found["topic"], found["message_id"], found["hops"]) == ("live.x", "old", [])
        assert [row["id"] for row in found["stored"]["oregon"]] == [routed.id]


@pytest.mark.parametrize("path", ["/stored/nonsense", "/stored/", "/trace/", "/trace/a/b"])
async def test_what_is_no_id_is_no_page(core: CoreCluster, path: str):
    async with serving(core) as (_, url):
        assert (await get(url + path)).code == 404


async def test_a_trace_of_what_nobody_sent_is_empty(core: CoreCluster):
    async with serving(core) as (_, url):
        for text in ("beef", "%00", "%ff", "..", "x" * 765):
            answer = await get(f"{url}/trace/{text}")
            assert answer.code in (200, 400), text
            if answer.code == 200:
                assert json.loads(answer.body)["sightings"] == []


async def test_ordered_to_stop_it_finishes_what_it_has_and_ticks_a_last_time(core: CoreCluster):
    async with serving(core) as (router, _):
        await until(lambda: router.readiness().ready)
        core.publish(*(message(message_id=str(n), reply_to="me") for n in range(300)))
        await until(lambda: core.broker.depth("router.1") < 300)
    left = core.broker.depth("router.1")
    receipts = core.receipts()
    assert len(receipts) + left == 300
    # The tick is sent last: it names every number that was given out.
    last = core.broker.pop_messages(core.taps["outbound"])[-1]
    assert json.loads(last.body)["seq"] == len(receipts)


async def test_while_the_broker_refuses_what_it_publishes_it_isnt_ready(
    core: CoreCluster, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("newsfabric.amqp.stub.PublishNacked", LinkRefused)
    async with serving(core) as (router, _):
        await until(lambda: router.readiness().ready)
        core.broker.nacks = True
        core.publish(message())
        await until(lambda: router.readiness().waiting_for == ("publishing",))
        core.broker.nacks = False
        await until(lambda: router.readiness().ready)
        assert len(core.envelopes()) == 1


async def test_what_a_queue_refuses_is_routed_all_the_same(core: CoreCluster):
    async with serving(core) as (router, _):
        await until(lambda: router.readiness().ready)
        before = value(counters.REFUSED)
        core.broker.nacks = True
        core.publish(message())
        # One refusal at postoffice and one at outbound.
        await until(lambda: value(counters.REFUSED) == before + 2)
        await until(lambda: router.under_way == 0)
        assert router.readiness().ready


@pytest.mark.parametrize("exchange", ["postoffice", "outbound", "receipts", "rejected"])
async def test_while_one_of_its_exchanges_is_missing_it_isnt_ready(
    core: CoreCluster, exchange: str
):
    async with serving(core) as (router, _):
        await until(lambda: router.readiness().ready)
        core.broker.delete_exchange(exchange)
        core.publish(message(reply_to="me"), message(body=b"no JSON"))
        await until(lambda: router.readiness().waiting_for == ("publishing",))
        core.broker.declare_exchange(exchange)
        await until(lambda: router.readiness().ready and router.under_way == 0)


async def test_it_stops_in_time_when_the_store_never_comes_back(
    core: CoreCluster, caplog: pytest.LogCaptureFixture
):
    class Away(MemoryStore):
        async def write(self, envelopes: object) -> None:
            raise StoreUnavailable("gone")

    core.store = Away(core.topics)
    async with serving(core, drain_seconds=0.05):
        core.publish(message())
        await until(lambda: core.broker.depth("router.1") == 0)
    core.link.lose()
    assert core.broker.depth("router.1") == 1
    tick = core.ticks()[-1]
    assert (tick.seq, tick.low) == (1, 0)
    assert "stops with 1 deliveries unprocessed" in caplog.text
