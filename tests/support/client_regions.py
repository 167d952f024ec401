"""Regions that a test publishes to: virtual hosts of one broker, each with a minimal router."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Self
from urllib.parse import quote

from newsfabric import topology
from newsfabric.amqp import ConfirmingPublisher, Consumer, Declare, Delivery, Message
from newsfabric.amqp.link import PikaLink, connect
from newsfabric.brokers.management import Management
from newsfabric.messages.control import Receipt, encode_receipt
from newsfabric.settings import Credentials, Node
from newsfabric.topics import PublisherRights
from newsfabric.topology.rights import publisher

GUEST = Credentials()


class ClientRegion:
    """A region. ``answers`` returns the router's reply to the n-th message; None means no reply."""

    consumer: Consumer
    publisher: ConfirmingPublisher

    def __init__(self, name: str, node: Node, management: Management) -> None:
        self.name = name
        self.vhost = f"{name}-{uuid.uuid4().hex[:8]}"
        self.url = node.amqp_url.replace("/%2F", f"/{self.vhost}")
        self.seen: list[Message] = []
        self.arrived = asyncio.Event()
        self.answers: Callable[[Message, int], str | None] = lambda _message, _n: "routed"
        self._management = management
        self._link: PikaLink | None = None
        self._routers: set[str] = set()

    async def open(self, *, queue: bool = True) -> Self:
        """Make the virtual host; without ``queue``, its router consumes no messages."""
        await self._management._send("PUT", f"/vhosts/{self.vhost}", {})
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        await self._management._send("PUT", f"/permissions/{self.vhost}/guest", everything)
        self._link = await connect([self.url], name=f"router of {self.name}")
        await self._link.on_connect(topology.declare_client)
        self.publisher = await self._link.publisher()
        await self.publisher.ready()
        self._routers = await self._connections()
        if queue:
            await self._link.on_connect(self._declare)
            self.consumer = await self._link.consumer("router", self._on_delivery)
        return self

    async def close(self) -> None:
        if self._link is not None:
            await self._link.close()
        await self._management._delete(f"/vhosts/{self.vhost}")

    async def saw(self, count: int, *, seconds: float = 60) -> list[Message]:
        """Wait until ``count`` messages have arrived; return all that arrived."""
        async with asyncio.timeout(seconds):
            while len(self.seen) < count:
                self.arrived.clear()
                await self.arrived.wait()
        return self.seen

    async def _connections(self) -> set[str]:
        """Return the names of the connections to this region."""
        entries: Any = await self._management._get("/connections/username/guest")
        return {entry["name"] for entry in entries if entry.get("vhost") == self.vhost}

    async def user(self, rights: PublisherRights) -> str:
        """Return the region's URL for a publisher with ``rights`` and no more."""
        name, user = rights.app_id, publisher(rights)
        await self.add_user(name)
        await self._management._send("PUT", f"/permissions/{self.vhost}/{name}", user.permissions())
        (topic,) = user.topic_permissions()
        await self._management._send("PUT", f"/topic-permissions/{self.vhost}/{name}", topic)
        return Credentials(name, "secret").in_url(self.url)

    async def add_user(self, name: str) -> str:
        """Return the region's URL for a user who may log in and has no other rights."""
        await self._management._send("PUT", f"/users/{name}", {"password": "secret", "tags": ""})
        return Credentials(name, "secret").in_url(self.url)

    async def close_to(self, name: str) -> None:
        """Refuse new connections of user ``name``, in all regions."""
        await self._management._send("PUT", f"/user-limits/{name}/max-connections", {"value": 0})

    async def open_to(self, name: str) -> None:
        """Accept connections of user ``name`` again."""
        await self._management._delete(f"/user-limits/{name}/max-connections")

    async def close_to_all(self) -> None:
        """Refuse all new connections."""
        limit = f"/vhost-limits/{self.vhost}/max-connections"
        await self._management._send("PUT", limit, {"value": 0})

    async def without_exchange(self) -> None:
        """Delete exchange ``publish``, so that the virtual host is no entrance of a fabric."""
        await self._management._delete(f"/exchanges/{self.vhost}/{topology.PUBLISH}")

    async def cut_publishers(self) -> None:
        """Close all connections except the router's."""
        async with asyncio.timeout(60):
            while not (names := await self._connections() - self._routers):  # noqa: ASYNC110
                await asyncio.sleep(0.2)
            # RabbitMQ 3.10 lists a connection at once, but can close it only seconds later.
            while names & await self._connections():
                for name in names:
                    await self._management._delete(f"/connections/{quote(name, safe='')}")
                await asyncio.sleep(0.2)

    async def _declare(self, declare: Declare) -> None:
        await declare.queue("router")
        await declare.bind("router", "publish", "#")

    def _on_delivery(self, delivery: Delivery) -> None:
        self.consumer.ack(delivery)
        message = delivery.message
        self.seen.append(message)
        self.arrived.set()
        status = self.answers(message, len(self.seen))
        if status is not None:
            self.answer(message, status)

    def answer(self, message: Message, status: str) -> None:
        """Send a receipt: ``routed``, or a reason to reject."""
        properties = message.properties
        if properties.reply_to is None:
            return
        routed = status == "routed"
        receipt = Receipt(
            status="routed" if routed else "rejected",
            region=self.name,
            router=f"{self.name}-router-1",
            topic=message.topic,
            message_id=properties.message_id,
            id=f"id of {properties.message_id}" if routed else None,
            identity="2743aa7ac79215815ab" if routed else None,
            reason=None if routed else status,
            detail=None if routed else 'it says "no"',
        )
        encoded = encode_receipt(
            receipt, reply_to=properties.reply_to, correlation_id=properties.correlation_id
        )
        self.publisher.publish_nowait(topology.TO_QUEUES, encoded)


class ClientRegions:
    """A factory of regions on one broker, which deletes them at the end. Made by :meth:`on`."""

    def __init__(self, node: Node, management: Management, stack: AsyncExitStack) -> None:
        self._node, self._management, self._stack = node, management, stack

    @classmethod
    @asynccontextmanager
    async def on(cls, node: Node) -> AsyncIterator[Self]:
        async with AsyncExitStack() as stack:
            management = Management(node.management_url, Credentials())
            stack.callback(management.close)
            yield cls(node, management, stack)

    async def __call__(self, name: str, *, queue: bool = True) -> ClientRegion:
        region = ClientRegion(name, self._node, self._management)
        self._stack.push_async_callback(region.close)
        return await region.open(queue=queue)


def settings(*regions: ClientRegion | str, **given: Any) -> dict[str, Any]:
    """Return a driver's settings, with a pause so long that the driver itself retries nothing."""
    urls = [region if isinstance(region, str) else region.url for region in regions]
    return {"regions": urls, "app_id": "cms", "send_again": 10.0, **given}
