"""The OpenAPI document against the handlers, and a fuzzer of allowed and forbidden requests.

``NEWSFABRIC_EXAMPLES`` is the number of requests of each kind; `make fuzz` sends more.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from clusters import client_cluster, core_cluster, reported
from core_cluster import EPOCH, CoreCluster, running
from loads import load
from tornado.httpclient import AsyncHTTPClient, HTTPRequest, HTTPResponse

from newsfabric.amqp import ConfirmingPublisher, Consumer, Delivery
from newsfabric.amqp.stub import StubBroker
from newsfabric.http.pace import Rate
from newsfabric.messages.envelope import DEFAULT_LIMITS, MessageLimits
from newsfabric.settings import Fabric, Node, Region
from newsfabric.store.memory import MemoryStore
from newsfabric.topics import TopicTable, parse_topics
from wholesale.frontdesk.api import openapi
from wholesale.frontdesk.api.access import ApiKey
from wholesale.frontdesk.service import FrontdeskService, FrontdeskSettings

EXAMPLES = int(os.environ.get("NEWSFABRIC_EXAMPLES", "40"))
KEY = "0123456789abcdef"
# A fuzzer asks for histories more often than readers may.
OFTEN = Rate(burst=1_000_000, per_second=1.0)
NODE = (Node("n", "amqp://127.0.0.1:1", "http://127.0.0.1:1"),)
FABRIC = Fabric((Region(name="oregon", frontdesk_url="http://o.example", client=NODE, core=NODE),))
#: The checks of the fuzzer, none of which may fail.
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "missing_required_header",
    "ignored_auth",
    "unsupported_method",
)


class Shovels:
    """Two shovels: ``publish`` to the core, and receipts back."""

    def __init__(self) -> None:
        self._consumers: list[Consumer] = []

    async def carry(self, source: StubBroker, exchange: str, to: StubBroker, into: str) -> None:
        link = to.connect()
        publisher: ConfirmingPublisher = await link.publisher()
        queue = source.tap(exchange)
        taken: list[Consumer] = []

        def on_delivery(delivery: Delivery) -> None:
            taken[0].ack(delivery)
            publisher.publish_nowait(into, delivery.message)

        taken.append(await source.connect().consumer(queue, on_delivery))
        self._consumers += taken

    async def close(self) -> None:
        for consumer in self._consumers:
            await consumer.cancel()


@contextlib.asynccontextmanager
async def frontdesk(topics: TopicTable, *keys: ApiKey) -> AsyncIterator[str]:
    """Run a frontdesk with a router behind it; yield its URL."""
    client, core = client_cluster(), core_cluster()
    store = MemoryStore(topics, now_ms=lambda: EPOCH)
    cluster = CoreCluster(core, core.connect(), store, topics)
    await cluster.open()
    service = FrontdeskService(
        FrontdeskSettings(
            name="oregon-frontdesk-1", region="oregon", api_keys=keys, history_rate=OFTEN
        ),
        fabric=FABRIC,
        topics=topics,
        core=core.connect(),
        client=[client.connect()],
        store=store,
    )
    stop = asyncio.Event()
    serving = asyncio.create_task(service.serve(stop))
    await service.listening.wait()
    shovels = Shovels()
    await shovels.carry(client, "publish", core, "intake")
    await shovels.carry(core, "receipts", client, "")
    reporting = asyncio.create_task(report_a_box(core))
    async with running(cluster):
        yield f"http://127.0.0.1:{service.port}"
        stop.set()
        await serving
    reporting.cancel()
    await shovels.close()


async def report_a_box(core: StubBroker) -> None:
    """Report a box each second, so that there is a gateway for readers."""
    report = load(capacity=100_000)
    while True:
        core.publish("upstream", reported(report))
        await asyncio.sleep(1)


async def fetch(url: str, **options: Any) -> HTTPResponse:
    return await AsyncHTTPClient().fetch(HTTPRequest(url, **options), raise_error=False)


async def test_the_document_is_served(topics: TopicTable) -> None:
    async with frontdesk(topics, ApiKey(KEY)) as url:
        response = await fetch(f"{url}/openapi.json")
    assert response.code == 200
    assert orjson.loads(response.body) == openapi.openapi_document(DEFAULT_LIMITS, keys=True)


async def test_every_path_and_method_that_it_names_is_there_and_no_other(
    topics: TopicTable,
) -> None:
    paths = openapi.openapi_document(DEFAULT_LIMITS, keys=False)["paths"]
    methods = ("get", "post", "put", "delete", "patch")
    async with frontdesk(topics) as url:
        for path, operations in paths.items():
            for method in methods:
                body = b"" if method in ("post", "put", "patch") else None
                response = await fetch(url + path, method=method.upper(), body=body)
                assert (response.code != 405) == (method in operations), (method, path)
                if response.code == 405:
                    allowed = response.headers["Allow"].lower().split(", ")
                    beside = {"head", "options"}
                    assert set(allowed) - beside == set(operations)
                    assert ("head" in allowed) == ("get" in allowed)


def test_without_keys_it_asks_for_none() -> None:
    paths = openapi.openapi_document(MessageLimits(), keys=False)["paths"]
    assert paths["/publish"]["post"]["security"] == []


@pytest.mark.timeout(600)
async def test_a_fuzzer_that_knows_it_finds_nothing(tmp_path: Path) -> None:
    everything = parse_topics({"topic": [{"pattern": "#"}]})
    async with frontdesk(everything, ApiKey(KEY)) as url:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json"),
            *("--checks", ",".join(CHECKS), "--max-examples", str(EXAMPLES)),
            *("--header", f"X-API-Key: {KEY}", "--phases", "examples,coverage,fuzzing"),
            *("--seed", "1", "--no-color", "--suppress-health-check", "all"),
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            out, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert process.returncode == 0, out.decode()
