"""A frontdesk on real sockets, with brokers and a store in memory."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import AsyncIterator
from typing import Any

from clusters import client_cluster, core_cluster, reported
from core_cluster import EPOCH
from loads import LOAD
from tornado.httpclient import AsyncHTTPClient, HTTPRequest, HTTPResponse

from newsfabric.amqp import Message
from newsfabric.amqp.stub import StubBroker
from newsfabric.http.pace import Rate
from newsfabric.messages import control
from newsfabric.messages.control import Receipt
from newsfabric.settings import Fabric, Node, Region
from newsfabric.store.memory import MemoryStore
from newsfabric.topics import TopicTable
from wholesale.frontdesk.service import FrontdeskService, FrontdeskSettings

NODE = (Node("n", "amqp://127.0.0.1:1", "http://127.0.0.1:1"),)
# No process listens there. A name without an address would do, but some resolvers need seconds.
DUBLIN = "http://localhost:1"
FABRIC = Fabric(
    tuple(
        Region(name=name, frontdesk_url=url, client=NODE, core=NODE)
        for name, url in (("oregon", "http://oregon.example"), ("dublin", DUBLIN))
    )
)
JSON = "application/json"
# Tests ask for histories more often than readers may.
OFTEN = Rate(burst=1_000_000, per_second=1.0)
SETTINGS = FrontdeskSettings(
    name="oregon-frontdesk-1", region="oregon", admin_port=0, history_rate=OFTEN
)


@dataclasses.dataclass
class House:
    """A frontdesk, its two clusters, and the receipts of a router."""

    client: StubBroker
    core: StubBroker
    store: MemoryStore
    service: FrontdeskService
    tap: str = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.service.port}"

    def published(self) -> list[Message]:
        return self.client.pop_messages(self.tap)

    def answer(self, message: Message, **fields: Any) -> None:
        found: dict[str, Any] = {
            "status": "routed",
            "region": "oregon",
            "router": "oregon-router-1",
            "topic": message.topic,
        }
        properties = message.properties
        assert properties.reply_to is not None
        receipt = control.encode_receipt(
            Receipt(**(found | fields)),
            reply_to=properties.reply_to,
            correlation_id=properties.correlation_id,
        )
        self.client.publish("", receipt)

    def report(self, **fields: Any) -> None:
        self.core.publish("upstream", reported(dataclasses.replace(LOAD, **fields)))

    async def publish(self, document: Any, **headers: str) -> HTTPResponse:
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.fetch(
            "/publish", method="POST", body=body, headers={"Content-Type": JSON} | named
        )

    async def fetch(self, path: str, **options: Any) -> HTTPResponse:
        request = HTTPRequest(self.url + path, **options)
        return await AsyncHTTPClient().fetch(request, raise_error=False)


@contextlib.asynccontextmanager
async def open_house(
    topics: TopicTable, settings: FrontdeskSettings = SETTINGS, *beside: StubBroker
) -> AsyncIterator[House]:
    """Open a house with a client broker of its own, and the brokers ``beside`` it."""
    client, core = client_cluster(), core_cluster()
    store = MemoryStore(topics, now_ms=lambda: EPOCH)
    service = FrontdeskService(
        settings,
        fabric=FABRIC,
        topics=topics,
        core=core.connect(),
        client=[broker.connect() for broker in (client, *beside)],
        store=store,
    )
    stop = asyncio.Event()
    task = asyncio.create_task(service.serve(stop))
    await service.listening.wait()
    house = House(client, core, store, service, client.tap("publish"))
    try:
        yield house
    finally:
        stop.set()
        await task
