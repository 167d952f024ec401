"""The agent's adapters: the gateway's admin port, the core nodes, its broker's shovels.

They report results and decide nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

import orjson
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from newsfabric.amqp import Declare, Link
from newsfabric.amqp.link import connect
from newsfabric.brokers.management import Management
from newsfabric.http.fetching import fetch
from newsfabric.settings import Credentials
from newsfabric.topology import (
    BrokerObjects,
    ShovelLink,
    box_feed,
    declare_part,
    owned_box_shovel,
    shovel_value,
)
from retail.load import GatewayLoad, GatewayReport, parse_gateway_report, parse_load

logger = logging.getLogger(__name__)

# Seconds. The gateway replies from memory in a ms; a report is due each second.
GATEWAY_TIMEOUT: Final = 0.8
_MAX_LOAD_BYTES: Final = 64 * 1024
# Seconds for the core to delete a queue when the box leaves.
DELETE_TIMEOUT: Final = 3.0


class GatewayAdmin:
    """The admin port of the box's gateway. :meth:`close` it."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._http = SimpleAsyncHTTPClient(force_instance=True, max_body_size=_MAX_LOAD_BYTES)

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    async def load(self) -> GatewayLoad | None:
        """Send ``GET /load``; return None if the gateway is away or its reply is invalid."""
        try:
            body = await self._send("GET", "/load")
            return parse_load(orjson.loads(body))
        except (HTTPClientError, OSError, ValueError) as exc:
            logger.debug("gateway: %s", exc)
            return None

    async def report(self) -> GatewayReport | None:
        """Send ``GET /report``; return None if the gateway is away, or too old for it."""
        try:
            return parse_gateway_report(orjson.loads(await self._send("GET", "/report")))
        except (HTTPClientError, OSError, ValueError) as exc:
            logger.debug("gateway: %s", exc)
            return None

    async def drain(self) -> bool:
        """Send ``POST /drain``; return whether the gateway accepted."""
        try:
            await self._send("POST", "/drain")
        except (HTTPClientError, OSError) as exc:
            logger.debug("gateway: %s", exc)
            return False
        return True

    async def _send(self, method: str, path: str) -> bytes:
        request = HTTPRequest(
            self._url + path,
            method=method,
            body=b"" if method == "POST" else None,
            connect_timeout=GATEWAY_TIMEOUT,
            request_timeout=GATEWAY_TIMEOUT,
        )
        return (await fetch(self._http, request)).body


class CoreEnd:
    """The queue of one feed on one core broker, for as long as the box lives.

    The link has only one URL. It declares the queue again whenever that node is back. Keepers bind
    the queue (:mod:`shovels.boxes`), since a box has no right to.
    """

    def __init__(self, *, box: str, n: int, url: str, credentials: Credentials) -> None:
        self.url = url
        self.feed = box_feed(box, n, url)
        self._name = f"{box}-agent feed {n}"
        self._credentials = credentials
        self._link: Link | None = None

    async def open(self) -> None:
        """Declare the queue, now or as soon as the node replies."""
        self._link = await connect([self.url], name=self._name, credentials=self._credentials)
        await self._link.on_connect(self._declare)

    async def renew(self) -> None:
        """Declare again on a new connection: the present one may be half dead."""
        await self.close()
        await self.open()

    async def keep(self) -> None:
        """Declare again on the present link, in case of a deletion. LinkError if it is down."""
        if self._link is not None:
            await self._link.declare(self._declare)

    async def close(self) -> None:
        """Close the link; the queue is left to its ``x-expires``."""
        if self._link is not None:
            await self._link.close()
            self._link = None

    async def delete(self) -> None:
        """Delete the queue if the node replies in time, and close."""
        if self._link is not None and self._link.connected:
            try:
                async with asyncio.timeout(DELETE_TIMEOUT):
                    await self._link.on_connect(self._delete)
            except TimeoutError:
                logger.warning("%s: left on the core until it expires", self.feed.queue.name)
        await self.close()

    async def _declare(self, declare: Declare) -> None:
        await declare_part(declare, BrokerObjects(queues=(self.feed.queue,)))

    async def _delete(self, declare: Declare) -> None:
        await declare.delete_queue(self.feed.queue.name)


class BoxShovels:
    """The shovels on the box's own broker. Every method may raise ManagementError."""

    def __init__(self, management: Management, credentials: Credentials) -> None:
        self._management = management
        self._credentials = credentials

    async def states(self) -> dict[str, str]:
        """Return the states that the shovels report, by name."""
        states = await self._management.shovel_states()
        return {name: state.state for name, state in states.items()}

    async def keep(self, links: Mapping[str, ShovelLink]) -> None:
        """Make the box's shovels equal ``links`` (by name). Idempotent."""
        found = await self._management.shovels()
        for name, link in links.items():
            value: dict[str, Any] = shovel_value(link, self._credentials)
            if found.get(name) != value:
                await self._management.put_shovel(name, value)
                logger.info("shovel %s: %s", name, "made" if name not in found else "changed")
        for name in filter(owned_box_shovel, found.keys() - links.keys()):
            await self._management.delete_shovel(name)
            logger.info("shovel %s: deleted", name)

    async def restart(self, link: ShovelLink) -> None:
        """Recreate a shovel: delete it and make it again."""
        await self._management.delete_shovel(link.name)
        await self._management.put_shovel(link.name, shovel_value(link, self._credentials))
