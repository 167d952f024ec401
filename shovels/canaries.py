"""Sends canaries and receives them: one link to each broker that a region's shovels touch.

Arrivals are passed to a :class:`~shovels.watch.CanaryWatch`; no decision is made here. Every keeper
has its own queues, exclusive and with a unique name. So any number of keepers may run, and no queue
is left of one that dies.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import secrets
from collections.abc import Mapping
from typing import Final

from newsfabric import metrics
from newsfabric.amqp import ConfirmingPublisher, Consumer, Declare, Delivery, Link
from newsfabric.amqp.link import connect
from newsfabric.errors import LinkError
from newsfabric.messages.control import Canary, canary_key, decode_canary, encode_canary
from newsfabric.messages.hops import last_hop
from newsfabric.settings import Credentials, Fabric
from newsfabric.topology import (
    CLIENT,
    CORE_EXCHANGES,
    INTAKE,
    POSTOFFICE,
    PUBLISH,
    RECEIPTS,
    Broker,
    BrokerObjects,
    Cluster,
    Role,
    brokers_of,
    declare_part,
    keeper_queues,
)
from shovels.watch import CanaryWatch

logger = logging.getLogger(__name__)

EVERY: Final = 1.0
# Seconds between two rounds; after a longer time this process must have been stopped.
PAUSED: Final = 4.0

SENT: Final = metrics.counter("shovels_sent_canaries", "Canaries, by outcome", ["outcome"])
ARRIVED: Final = metrics.counter("shovels_arrived_canaries", "Canaries that arrived")
FORGED: Final = metrics.counter(
    "shovels_forged_canaries", "Canaries in a keeper's name that it hasn't sent, or not yet"
)

# Canaries are read at once; among older ones only the newest matter.
_ARGUMENTS: Final = {"x-max-length": 1000, "x-message-ttl": 60_000}
# The destinations of the region's shovels, by the role of their host; receipts go to queues.
_ARRIVALS: Final[Mapping[Role, tuple[str, ...]]] = {
    "client": (PUBLISH,),
    "core": (INTAKE, POSTOFFICE),
    "proxy": (),
}


class Canaries:
    """The canaries of ``region``; call :meth:`open`, :meth:`run`, :meth:`close`."""

    def __init__(
        self, fabric: Fabric, region: str, watch: CanaryWatch, credentials: Credentials
    ) -> None:
        self._fabric = fabric
        self._region = region
        self._watch = watch
        self._credentials = credentials
        self._token = secrets.token_hex(8)
        self._queue = keeper_queues(region) + self._token
        core = Cluster(region, "core")
        self._core = [broker for broker in brokers_of(fabric) if broker.cluster == core]
        # Boxes receive those from their own core's postoffice.
        self._sources = watch.sources | {(broker, POSTOFFICE) for broker in self._core}
        self._links: dict[Broker, Link] = {}
        self._publishers: dict[Broker, ConfirmingPublisher] = {}

    async def open(self) -> None:
        """Connect to every broker, now or as soon as it replies."""
        nodes = brokers_of(self._fabric)
        for broker in sorted({broker for broker, _ in self._sources} | self._watch.hosts):
            name = f"canaries of {self._region}"
            link = await connect([nodes[broker].amqp_url], name=name, credentials=self._credentials)
            self._links[broker] = link
            self._publishers[broker] = await link.publisher(in_flight=10)
        for broker in self._watch.hosts:
            await self._receive(broker)

    @property
    def core(self) -> dict[str, Link]:
        """The links to the region's core brokers by name; they are open."""
        return {broker.name: self._links[broker] for broker in self._core}

    async def run(self) -> None:
        """Send a canary to each source every second, until cancelled."""
        before = _now()
        while True:
            began = _now()
            # A process that was stopped for a while has missed the arrivals meanwhile.
            slept = began - before > PAUSED
            before = began
            self._watch.unheard(
                {broker for broker, link in self._links.items() if slept or not link.connected}
            )
            await asyncio.gather(*(self._send(*source) for source in self._sources))
            await asyncio.sleep(max(0.0, EVERY - (_now() - began)))

    async def close(self) -> None:
        """Close the links, which deletes the queues."""
        for link in self._links.values():
            await link.close()

    async def _send(self, broker: Broker, exchange: str) -> None:
        at = _now()
        canary = Canary(region=self._region, token=self._token, sent_ms=round(at * 1000))
        # A receipt's routing key is its destination queue.
        key = self._queue if exchange == RECEIPTS else ""
        message = encode_canary(canary, user_id=self._credentials.username, key=key)
        try:
            async with asyncio.timeout(EVERY):
                await self._publishers[broker].publish(exchange, message)
        except (LinkError, TimeoutError):
            # The source is away, which is no fault of the shovels.
            SENT.labels("lost").inc()
        else:
            SENT.labels("taken").inc()
            self._watch.sent(broker, exchange, at)

    async def _receive(self, broker: Broker) -> None:
        link, queue = self._links[broker], self._queue
        declare = functools.partial(
            _declare, role=broker.cluster.role, queue=queue, key=canary_key(self._region)
        )
        await link.on_connect(declare)
        consumers: list[Consumer] = []

        def on_canary(delivery: Delivery) -> None:
            consumers[0].ack(delivery)
            self._arrived(broker, delivery)

        consumers.append(await link.consumer(queue, on_canary, prefetch=100))

    def _arrived(self, broker: Broker, delivery: Delivery) -> None:
        shovel = last_hop(delivery.message.properties.headers)
        try:
            canary = decode_canary(delivery.message)
        except ValueError as exc:
            logger.debug("not a canary: %s", exc)
            return
        if shovel is None or canary.token != self._token:
            return
        now = _now()
        # Another process has read the token, and sends it under another login; or with a time in
        # the future, which would stay the newest for ever. (Times are rounded to ms when sent.)
        sender = delivery.message.properties.user_id
        if sender != self._credentials.username or canary.sent_ms > round(now * 1000):
            FORGED.inc()
            return
        ARRIVED.inc()
        self._watch.arrived(broker, shovel, canary.sent_ms / 1000, now)


async def _declare(declare: Declare, *, role: Role, queue: str, key: str) -> None:
    exchanges = CORE_EXCHANGES if role == "core" else CLIENT.exchanges
    await declare_part(declare, BrokerObjects(exchanges=exchanges))
    await declare.queue(queue, durable=False, exclusive=True, arguments=_ARGUMENTS)
    for exchange in _ARRIVALS[role]:
        await declare.bind(queue, exchange, key)


def _now() -> float:
    return asyncio.get_running_loop().time()
