"""A router as a process: its pages, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest
from core_desk import Desk, message, until
from shovelled import shovelled
from tornado.httpclient import AsyncHTTPClient, HTTPResponse

from newsfabric.errors import StoreUnavailable
from newsfabric.store.memory import MemoryStore
from wholesale.router.service import RouterService, RouterSettings


def service(desk: Desk, **settings: Any) -> RouterService:
    return RouterService(
        RouterSettings(name="oregon-router-1", region="oregon", queues=("router.1",), **settings),
        link=desk.link,
        store=desk.store,
        topics=desk.topics,
    )


@contextlib.asynccontextmanager
async def serving(desk: Desk, **settings: Any) -> AsyncIterator[tuple[RouterService, str]]:
    router = service(desk, **settings)
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


async def test_what_it_counts_is_in_its_metrics(desk: Desk):
    async with serving(desk) as (_, url):
        desk.publish(message())
        await until(lambda: desk.envelopes())
        page = (await get(f"{url}/metrics")).body.decode()
        for stage in ("decode", "validate", "identify", "store", "route"):
            assert f'newsfabric_router_stage_entered_messages_total{{stage="{stage}"}}' in page


async def test_it_tells_the_way_of_a_message_and_what_the_store_has_of_it(desk: Desk):
    async with serving(desk) as (_, url):
        ways = ("publish.oregon.1", "publish.oregon.2")
        sent = (message("live.x", message_id="a/b c", headers=shovelled(way)) for way in ways)
        desk.publish(*sent)
        await until(lambda: desk.envelopes())
        (routed,) = desk.envelopes()
        traced = json.loads((await get(f"{url}/trace/{quote('a/b c', safe='')}")).body)
        assert (traced["kind"], traced["name"]) == ("router", "oregon-router-1")
        (seen,) = traced["sightings"]
        assert [copy["way"] for copy in seen["copies"]] == [[way] for way in ways]
        assert (seen["id"], seen["seq"]) == (routed.id, 1)
        assert set(seen["steps"]) == {"stored", "routed"}

        stored = json.loads((await get(f"{url}/stored/{routed.id}")).body)["stored"]
        assert [(row["id"], row["router"], row["seq"]) for row in stored] == [
            (routed.id, "oregon-router-1", 1)
        ]
        other = routed.id[:-1] + ("0" if routed.id[-1] != "0" else "1")
        assert json.loads((await get(f"{url}/stored/{other}")).body)["stored"] == []


@pytest.mark.parametrize("path", ["/stored/nonsense", "/stored/", "/trace/", "/trace/a/b"])
async def test_what_is_no_id_is_no_page(desk: Desk, path: str):
    async with serving(desk) as (_, url):
        assert (await get(url + path)).code == 404


async def test_a_trace_of_what_nobody_sent_is_empty(desk: Desk):
    async with serving(desk) as (_, url):
        for text in ("beef", "%00", "%ff", "..", "x" * 765):
            answer = await get(f"{url}/trace/{text}")
            assert answer.code in (200, 400), text
            if answer.code == 200:
                assert json.loads(answer.body)["sightings"] == []


async def test_told_to_stop_it_finishes_what_it_has_and_ticks_a_last_time(desk: Desk):
    async with serving(desk) as (router, _):
        await until(lambda: router.readiness().ready)
        desk.publish(*(message(message_id=str(n), reply_to="me") for n in range(300)))
        await until(lambda: desk.broker.depth("router.1") < 300)
    left = desk.broker.depth("router.1")
    receipts = desk.receipts()
    assert len(receipts) + left == 300
    # The tick comes last: it names every number that was given out.
    last = desk.broker.take(desk.taps["outbound"])[-1]
    assert json.loads(last.body)["seq"] == len(receipts)


async def test_it_stops_in_time_when_the_store_never_comes_back(
    desk: Desk, caplog: pytest.LogCaptureFixture
):
    class Away(MemoryStore):
        async def write(self, envelopes: object) -> None:
            raise StoreUnavailable("gone")

    desk.store = Away(desk.topics)
    async with serving(desk, drain_seconds=0.05):
        desk.publish(message())
        await until(lambda: desk.broker.depth("router.1") == 0)
    desk.link.lose()
    assert desk.broker.depth("router.1") == 1
    assert desk.ticks()[-1].void == (1,)
    assert "leaves 1 deliveries to the others" in caplog.text
