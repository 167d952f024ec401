"""Whole regions in memory, linked: router, mailbox service, and a gateway on real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import itertools
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from clusters import sent_by_box
from core_cluster import CoreCluster, running
from gateways import Box, Reader, opened_box, until
from signing import AUDIENCE, ISSUER, keys_file, token

from gateway.process.settings import TokenSettings
from newsfabric.amqp import Message, Properties
from newsfabric.amqp.message import Delivery
from newsfabric.amqp.stub import StubBroker
from newsfabric.messages.envelope import Envelope, ms_of_id
from newsfabric.messages.mailbox import MARK_KEY
from newsfabric.store import Store
from newsfabric.store.rules import clock_ms
from newsfabric.topics import TopicPolicy, TopicTable
from wholesale.common.source import QueueSource
from wholesale.mailbox.marking import Marking

TABLE = TopicTable(
    [
        TopicPolicy(pattern="news.*", keep=10),
        TopicPolicy(pattern="user.*", topic_class="gold", access="owner", keep=10),
        TopicPolicy(pattern="marks.#", access="granted", keep=10),
    ]
)
_NUMBERS = itertools.count(1)


@dataclasses.dataclass
class OpenedRegion:
    """A region: its core cluster, its box, and the store of the whole fabric."""

    core: CoreCluster
    box: Box

    async def write_to(self, user: str, body: Any, **properties: Any) -> Envelope:
        """Send a message to a user's mailbox; return it as it was routed.

        The next one is of a later millisecond: within one millisecond the order isn't that of time.
        """
        fields = {"app_id": "billing", "message_id": f"letter-{next(_NUMBERS)}"} | properties
        self.core.publish(Message(f"user.{user}", str(body).encode(), Properties(**fields)))
        await until(lambda: self._routed(fields["message_id"]))
        routed = self._routed(fields["message_id"])
        assert routed is not None
        await until(lambda: clock_ms() > ms_of_id(routed.id))
        return routed

    def _routed(self, message_id: str) -> Envelope | None:
        found = (each for each in self.core.envelopes() if each.message_id == message_id)
        return next(found, None)

    @contextlib.asynccontextmanager
    async def device(self, user: str = "42", **claims: Any) -> AsyncIterator[Reader]:
        """Open a reader that is logged in and has no subscriptions."""
        async with self.box.reader() as reader:
            push = await reader.answer_to(action="login", token=token(user, **claims))
            assert push["type"] == "logged_in", push
            yield reader


async def opened_mailbox(reader: Reader, user: str = "42") -> tuple[dict[str, Any], list[Any]]:
    """Return the reply to a subscribe, and the pushes replayed after it."""
    subscribed = await reader.subscribe(f"user.{user}")
    await reader.send_verb(action="ping", ref="opened")
    pushes = []
    while (push := await reader.hear()) != {"type": "pong", "ref": "opened"}:
        pushes.append(push)
    return subscribed, pushes


@contextlib.asynccontextmanager
async def opened_region(
    engine: str,
    folder: Path,
    store: Store,
    *,
    name: str = "oregon",
    table: TopicTable = TABLE,
    cookie: str | None = None,
    **settings: Any,
) -> AsyncIterator[OpenedRegion]:
    """Run a region with router and mailbox service; the readers' public keys are in ``folder``."""
    core = CoreCluster(broker := StubBroker(), broker.connect(), store, table)
    await core.open()
    keys = keys_file(folder)
    tokens = TokenSettings(keys=keys, audience=AUDIENCE, issuer=ISSUER, leeway=0.0, cookie=cookie)
    async with contextlib.AsyncExitStack() as stack:
        box = await stack.enter_async_context(
            opened_box(engine, store=store, table=table, region=name, tokens=tokens, **settings)
        )
        router = running(core, name=f"{name}-router-1", now_ms=clock_ms, epoch=clock_ms())
        await stack.enter_async_context(router)
        await stack.enter_async_context(_marking(core))
        await forward(broker, "postoffice", "#", box.broker, "postoffice")
        await forward(box.broker, "upstream", MARK_KEY, broker, "upstream")
        yield OpenedRegion(core, box)


async def linked(regions: Sequence[OpenedRegion]) -> None:
    """Link the regions: each region's core receives the messages that the others route."""
    for one, other in itertools.permutations(regions, 2):
        await forward(one.core.broker, "outbound", "#", other.core.broker, "postoffice")


async def forward(
    source: StubBroker, exchange: str, key: str, target: StubBroker, destination: str
) -> None:
    """Run a shovel; to ``upstream`` it sets the box's user id on each message."""
    link = source.connect()
    consumers: list[Any] = []

    def take_delivery(delivery: Delivery) -> None:
        message = delivery.message
        target.publish(destination, sent_by_box(message) if destination == "upstream" else message)
        consumers[0].ack(delivery)

    consumers.append(await link.consumer(source.tap(exchange, key), take_delivery))


@contextlib.asynccontextmanager
async def _marking(core: CoreCluster) -> AsyncIterator[None]:
    link = core.broker.connect()
    made = Marking(store=core.store, topics=core.topics, publisher=await link.publisher())
    source = QueueSource()
    consumer = await link.consumer("mailbox", functools.partial(made.take_delivery, source))
    source.attach(consumer)
    task = asyncio.create_task(made.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
