"""Proof that a world works: messages that travel the whole way, publisher to reader.

Each region publishes canaries over AMQP to each of its client brokers, and the proxy cluster has
its own. They end when every gateway of every region has delivered one of each place to a reader. So
every broker, router, box and shovel between has carried a message, which no health check proves.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Final

import orjson

from localfabric.world.broker import WorldBroker
from localfabric.world.layout import RegionLayout, WorldBox, WorldLayout
from localfabric.world.options import PROXY
from newsfabric.amqp import Message, Properties
from newsfabric.amqp.link import connect as connect_link
from newsfabric.errors import Disconnected, LinkError
from newsfabric.reader import Endpoint, Endpoints, Push, connect, fetch_endpoints
from newsfabric.topics import CANARY_TOPIC
from newsfabric.topology import PUBLISH

_EVERY: Final = 0.25


class Canaries:
    """The published canaries, and which of them have arrived. Close it."""

    def __init__(self, layout: WorldLayout) -> None:
        # Canaries of an earlier start may still arrive.
        self._token = secrets.token_hex(8)
        self._tasks: list[asyncio.Task[None]] = []
        self._proxy_nodes = layout.proxy_nodes
        places = [region.name for region in layout.regions] + [PROXY] * bool(layout.proxy_nodes)
        # Box → places whose canaries haven't been delivered by it yet.
        self._missing = {box.name: set(places) for box in layout.boxes()}

    def release(self, region: RegionLayout) -> None:
        """Start publishing canaries in ``region`` and subscribing at its gateways."""
        entrances = [(region.name, broker) for broker in region.client]
        if not self._tasks:
            entrances += [(PROXY, broker) for broker in self._proxy_nodes]
        self._tasks += [asyncio.create_task(self._publish(*entrance)) for entrance in entrances]
        self._tasks += [asyncio.create_task(self._listen(box)) for box in region.boxes]

    async def arrivals(self, region: RegionLayout) -> AsyncGenerator[str]:
        """Yield a text about a missing part of ``region``, again and again until none is missing.

        Needed are canaries of every region at every gateway, and every box in its endpoints.json.
        """
        while missing := self._lacking(region) or await _unlisted(region):
            self._raise_bugs()
            yield missing
            await asyncio.sleep(_EVERY)

    async def close(self) -> None:
        """Stop publishing and subscribing."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _lacking(self, region: RegionLayout) -> str:
        for box in region.boxes:
            if missing := sorted(self._missing[box.name]):
                return f"no canary of {', '.join(missing)} has arrived at {box.name}'s readers"
        return ""

    def _raise_bugs(self) -> None:
        for task in self._tasks:
            if task.done() and not task.cancelled() and (error := task.exception()):
                raise error

    async def _publish(self, place: str, broker: WorldBroker) -> None:
        link = await connect_link([broker.amqp_url], name=f"canary of {place}")
        try:
            publisher = await link.publisher(in_flight=10)
            while True:
                await publisher.ready()
                with suppress(LinkError):
                    await publisher.publish(PUBLISH, self._canary(place))
                await asyncio.sleep(_EVERY)
        finally:
            await link.close()

    def _canary(self, place: str) -> Message:
        properties = Properties(
            content_type="application/json",
            message_id=secrets.token_hex(8),
            app_id="newsfabric-canary",
            headers={"timestamp_in_ms": time.time_ns() // 1_000_000},
        )
        body = orjson.dumps({"canary": self._token, "region": place})
        return Message(CANARY_TOPIC, body, properties)

    async def _listen(self, box: WorldBox) -> None:
        while self._missing[box.name]:
            with suppress(Disconnected):
                await self._listen_once(box)
            await asyncio.sleep(_EVERY)

    async def _listen_once(self, box: WorldBox) -> None:
        async with await connect(_gateway_of(box)) as reader:
            await reader.subscribe(CANARY_TOPIC)
            while self._missing[box.name]:
                self._seen(box, await anext(reader))

    def _seen(self, box: WorldBox, push: Push) -> None:
        body = push.fields.get("body")
        if push.is_message and isinstance(body, dict) and body.get("canary") == self._token:
            self._missing[box.name].discard(str(body.get("region")))


async def _unlisted(region: RegionLayout) -> str:
    try:
        endpoints = await fetch_endpoints(region.endpoints_url)
    except Disconnected as exc:
        return f"{region.named('frontdesk').name} doesn't answer: {exc.reason}"
    listed = _listed(endpoints)
    missing = [box.name for box in region.boxes if box.websocket_url not in listed]
    return f"{region.endpoints_url} doesn't list {', '.join(missing)}" if missing else ""


def _listed(endpoints: Endpoints) -> set[str]:
    return {gateway.websocket_url for gateway in endpoints.gateways}


def _gateway_of(box: WorldBox) -> Endpoint:
    return Endpoint(sockjs_url=box.sockjs_url, websocket_url=box.websocket_url, sse_url=box.sse_url)
