"""Attacks of a publisher that may write to ``publish``.

Real brokers, real shovels, and two routers as in production, except for the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from amqp_links import Inbox
from brokers import NamedNodes as Nodes
from hostile import (
    Hostile,
    asking,
    field,
    filling,
    long,
    nested,
)
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from localfabric.world.rabbitmq_home import RabbitmqHome
from newsfabric.amqp import Declare, Link, Message
from newsfabric.amqp.fields import MAX_TABLE_BYTES, OVERSIZE, encode_table
from newsfabric.amqp.link import connect
from newsfabric.brokers.management import Management
from newsfabric.messages import control
from newsfabric.messages.control import Receipt, decode_receipt
from newsfabric.messages.envelope import decode
from newsfabric.publish import AsyncPublisher
from newsfabric.settings import Credentials, Fabric, Node, Region
from newsfabric.store.memory import MemoryStore
from newsfabric.topics import parse_topics
from newsfabric.topology import Binding, Bounds, Exchange, Queue, ShovelLink, shovel_value
from operations.cli.messages import make_message
from shovels.apply import ManagementClients, carry_out, read_state
from wholesale.router.service import RouterService, RouterSettings

pytestmark = [pytest.mark.broker, pytest.mark.timeout(240)]

TOPICS = parse_topics(
    {
        "topic": [
            {"pattern": "live.*", "class": "gold"},
            {"pattern": "ticks.*", "class": "bronze"},
            {"pattern": "news.*"},
        ]
    }
)
BOUNDS = Bounds(max_length=10_000, max_bytes=1 << 28)
# Less than the time after which messages expire in a queue (150 s).
PATIENCE = 60.0
INNOCENTS = 40


@pytest.fixture(scope="module")
def nodes(rabbitmq_home: RabbitmqHome, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    folder = tmp_path_factory.mktemp("publisher")
    with Nodes(folder, rabbitmq_home, ["oregon-client-1", "oregon-core-1"]) as started:
        yield started


@pytest.fixture
async def region(nodes: Nodes) -> Region:
    """Make a region with its shovels, one more for gold, and one from ``wide``, an entrance whose
    frames are as large as the core's."""
    client, core = nodes.node("oregon-client-1"), nodes.node("oregon-core-1")
    made = Region(name="oregon", frontdesk_url="http://127.0.0.1:1", client=(client,), core=(core,))
    async with ManagementClients(Fabric((made,)), Credentials()) as brokers:
        done = await carry_out(brokers, await read_state(brokers, "oregon", TOPICS))
    assert [(each.action, each.error) for each in done if each.error] == []
    await _shovel("publish.oregon.1.2", client, "publish", "live.*", core)
    await _shovel("publish.wide.1", core, "wide", "#", core)
    return made


async def _shovel(name: str, source: Node, exchange: str, key: str, core: Node) -> None:
    queue = Queue(f"shovel.{name}", BOUNDS)
    async with Management(source.management_url, Credentials()) as management:
        await management.put_exchange(Exchange(exchange))
        await management.put_queue(queue.name, queue.bounds.arguments())
        await management.put_binding(Binding(exchange, queue.name, key))
    link = ShovelLink(name=name, source=source.amqp_url, queue=queue, exchange="intake")
    async with Management(core.management_url, Credentials()) as management:
        await management.put_shovel(name, shovel_value(link, Credentials()))


class Losses(logging.Handler):
    """The log's lines about lost connections."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if " lost " in record.getMessage():
            self.lines.append(record.getMessage())


@dataclasses.dataclass
class Fabrics:
    """The region's routers, and observers at both ends."""

    region: Region
    losses: list[str]
    postoffice: Inbox
    rejected: Inbox
    receipts: Inbox
    hostile: Hostile
    wide: Hostile

    async def answers(self, count: int) -> list[tuple[str | None, Receipt]]:
        """Return the next ``count`` receipts for the attacker, with their correlation ids."""
        found = []
        for _ in range(count):
            message = (await _soon(self.receipts.next())).message
            found.append((message.properties.correlation_id, decode_receipt(message)))
        return found

    async def routed(self, count: int) -> list[str | None]:
        """Return the message ids of the next ``count`` messages that readers get.

        A box takes the first copy of each: on a slow machine a publisher sends some again.
        """
        found: dict[str | None, None] = {}
        while len(found) < count:
            message = (await _soon(self.postoffice.next())).message
            if message.properties.type != control.TICK:
                found[decode(message).message_id] = None
        return list(found)

    async def evidence(self, count: int) -> list[Message]:
        """Return the next ``count`` messages in ``rejected``."""
        return [(await _soon(self.rejected.next())).message for _ in range(count)]


async def _soon(work: Any) -> Any:
    async with asyncio.timeout(PATIENCE):
        return await work


@pytest.fixture
async def fabric(region: Region) -> AsyncIterator[Fabrics]:
    core, client = region.core[0].amqp_url, region.client[0].amqp_url
    losses = Losses()
    logging.getLogger("newsfabric.amqp.link").addHandler(losses)
    async with contextlib.AsyncExitStack() as stack:
        looking_on = await _link(stack, core, "looking on")
        stack.callback(logging.getLogger("newsfabric.amqp.link").removeHandler, losses)
        made = Fabrics(
            region=region,
            losses=losses.lines,
            postoffice=await _tap(looking_on, "postoffice", "#"),
            rejected=await _tap(looking_on, "rejected", "#"),
            receipts=await _tap(await _link(stack, client, "receipts"), "", "evil"),
            hostile=await Hostile.at(client),
            wide=await Hostile.at(core),
        )
        stack.push_async_callback(made.hostile.close)
        stack.push_async_callback(made.wide.close)
        store = MemoryStore(TOPICS)
        for n in (1, 2):
            await _router(stack, core, f"oregon-router-{n}", store)
        yield made
    # Everything was acknowledged: no message is left that would be delivered again.
    async with contextlib.AsyncExitStack() as stack:
        link = await _link(stack, core, "afterwards")
        for queue in ("router.1", "router.2"):
            inbox = await Inbox().consume(link, queue)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await inbox.next()


async def _link(stack: contextlib.AsyncExitStack, url: str, name: str) -> Link:
    link = await connect([url], name=name)
    stack.push_async_callback(link.close)
    return link


async def _tap(link: Link, exchange: str, key: str) -> Inbox:
    """Return an inbox of the messages to ``exchange`` with ``key``; it is declared already.

    Without an exchange: the messages to the queue ``key``.
    """
    declared = asyncio.Event()
    queue = f"tap.{exchange}" if key == "#" else key

    async def declare(broker: Declare) -> None:
        await broker.queue(queue, durable=False, exclusive=True)
        if exchange:
            await broker.bind(queue, exchange, key)
        declared.set()

    await link.on_connect(declare)
    await _soon(declared.wait())
    inbox = Inbox()
    inbox.acks_at_once = True
    return await inbox.consume(link, queue)


async def _router(
    stack: contextlib.AsyncExitStack, core: str, name: str, store: MemoryStore
) -> None:
    link = await _link(stack, core, name)
    settings = RouterSettings(name=name, region="oregon", queues=("router.1", "router.2"))
    service = RouterService(settings, links=link, taking=link, store=store, topics=TOPICS)
    stop = asyncio.Event()
    task = asyncio.create_task(service.serve(stop))
    await service.listening.wait()

    async def end() -> None:
        stop.set()
        await task

    stack.push_async_callback(end)


@contextlib.asynccontextmanager
async def innocent(region: Region) -> AsyncIterator[AsyncPublisher]:
    urls = [region.client[0].amqp_url]
    async with await AsyncPublisher.open(urls, app_id="desk", timeout=PATIENCE) as publisher:
        yield publisher


async def innocents(publisher: AsyncPublisher, run: str) -> list[str]:
    """Send messages one after the other; return the ids of those that were routed."""
    routed = []
    for n in range(INNOCENTS):
        message_id = f"{run}-{n}"
        message = make_message("news.x", b"{}", message_id=message_id, app_id="desk", now_ms=1)
        if (await publisher.send(message)).status == "routed":
            routed.append(message_id)
    return routed


@pytest.mark.promise("O6", "R2")
@pytest.mark.parametrize("entrance", ["client", "wide"])
async def test_headers_that_fill_a_frame_stop_a_region(fabric: Fabrics, entrance: str) -> None:
    """Send a hundred at once. The shovel makes each larger than the routers' frame limit."""
    if entrance == "client":
        attacker, exchange = fabric.hostile, b"publish"
    else:
        attacker, exchange = fabric.wide, b"wide"
    assert attacker.frame_max == {"client": 20_480, "wide": 131_072}[entrance]
    poison = [filling(attacker.frame_max, "evil", f"poison-{n}") for n in range(100)]
    async with innocent(fabric.region) as publisher:
        before = await innocents(publisher, f"{entrance}-before")
        flowing = asyncio.create_task(innocents(publisher, f"{entrance}-meanwhile"))
        assert await attacker.publish(exchange, b"news.x", *poison)
        answers = await fabric.answers(100)
        meanwhile = await flowing
    assert (len(before), len(meanwhile)) == (INNOCENTS, INNOCENTS)
    assert await fabric.routed(2 * INNOCENTS) == [*before, *meanwhile]
    assert {name for name, _ in answers} == {f"poison-{n}" for n in range(100)}
    assert {(receipt.status, receipt.reason) for _, receipt in answers} == {
        ("rejected", "bad_header")
    }
    for message in await fabric.evidence(100):
        assert message.body == b"{}"
        assert message.properties.headers["reason"] == "bad_header"
        assert len(message.properties.headers[OVERSIZE]) > MAX_TABLE_BYTES // 2
    assert fabric.losses == []


async def test_bronze_travels_as_gold_with_a_header_that_names_another_topic(
    fabric: Fabrics,
) -> None:
    copied = encode_table({"CC": ["live.x"]})[4:]
    assert await fabric.hostile.publish(b"publish", b"ticks.x", asking(copied, "evil", "cc"))
    # One receipt for each queue that it was copied into, by both shovels.
    answers = await fabric.answers(4)
    assert {(name, receipt.status, receipt.reason) for name, receipt in answers} == {
        ("cc", "rejected", "cc_not_allowed")
    }
    assert {m.topic for m in await fabric.evidence(4)} == {"cc_not_allowed"}
    async with innocent(fabric.region) as publisher:
        after = await innocents(publisher, "cc-after")
    assert await fabric.routed(INNOCENTS) == after


async def test_bronze_travels_as_gold_with_a_header_that_the_broker_takes_away(
    fabric: Fabrics,
) -> None:
    hidden = encode_table({"BCC": ["live.x"]})[4:]
    assert await fabric.hostile.publish(b"publish", b"ticks.x", asking(hidden, "evil", "bcc"))
    (evidence,) = await fabric.evidence(1)
    assert evidence.topic == "cc_not_allowed"
    assert evidence.properties.headers["topic"] == "ticks.x"
    ((name, messages),) = await fabric.answers(1)
    assert (name, messages.status) == ("bcc", "routed")
    assert await fabric.routed(1) == ["bcc"]


@pytest.mark.parametrize("hidden_by", [b"S" + long(b"x"), b"A" + long(b"")])
async def test_bronze_travels_as_gold_behind_a_second_header_of_the_shovels_name(
    fabric: Fabrics, rabbitmq_home: RabbitmqHome, hidden_by: bytes
) -> None:
    """The shovel adds its name to the first of the two headers.

    A broker of 4.x keeps one header of each name when it removes ``BCC``: here it hides nothing.
    """
    hidden = encode_table({"BCC": ["live.x"]})[4:]
    twice = 2 * field(hidden_by[:1], hidden_by[1:], b"x-shovelled")
    assert await fabric.hostile.publish(b"publish", b"ticks.x", asking(hidden + twice, "evil", "t"))
    if rabbitmq_home.version.startswith("3."):
        answers = await fabric.answers(2)
        assert {(messages.status, messages.reason) for _, messages in answers} == {
            ("rejected", "bad_header")
        }
        assert {m.topic for m in await fabric.evidence(2)} == {"bad_header"}
    else:
        # The copy from the shovel for gold is refused, as it is without these headers.
        assert [m.topic for m in await fabric.evidence(1)] == ["cc_not_allowed"]
        ((_, messages),) = await fabric.answers(1)
        assert messages.status == "routed"
        assert await fabric.routed(1) == ["t"]
    async with innocent(fabric.region) as publisher:
        after = await innocents(publisher, f"twice-after-{len(hidden_by)}")
    assert await fabric.routed(INNOCENTS) == after


NAMES = st.just(b"") | st.sampled_from(
    b"key version timestamp_in_ms traceparent x-shovelled x-death CC BCC \xff\xfe".split()
)
SIZES = {"t": 1, "b": 1, "B": 1, "s": 2, "u": 2, "I": 4, "i": 4, "l": 8, "f": 4, "d": 8, "T": 8}
SCALARS = st.one_of(
    st.sampled_from(sorted(SIZES.items())).flatmap(
        lambda kind: st.binary(min_size=kind[1], max_size=kind[1]).map(
            lambda raw: kind[0].encode() + raw
        )
    ),
    st.binary(min_size=5, max_size=5).map(lambda raw: b"D" + raw),
    st.builds(lambda kind, raw: kind + long(raw), st.sampled_from([b"S", b"x"]), st.binary()),
    st.just(b"V"),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda values: b"A" + long(b"".join(values))),
        st.lists(st.tuples(NAMES, inner), max_size=4).map(
            lambda fields: b"F" + long(b"".join(field(b"", v, n) for n, v in fields))
        ),
    ),
)
TABLES = st.one_of(
    st.lists(st.tuples(NAMES, VALUES), max_size=6).map(
        lambda fields: b"".join(field(b"", value, name) for name, value in fields)
    ),
    st.integers(1, 600).map(nested),
    st.binary(max_size=40),
)


def made(count: int) -> list[bytes]:
    """Return so many header tables, each different from the last."""
    found: list[bytes] = []

    @settings(max_examples=count, database=None, phases=[Phase.generate])
    @given(TABLES)
    def collect(table: bytes) -> None:
        found.append(table)

    collect()
    return found


async def test_some_header_or_other_makes_a_router_stumble(fabric: Fabrics) -> None:
    """Check that each message the broker lets through gets a receipt, and the next is read."""
    url = fabric.region.client[0].amqp_url
    hostile, taken = fabric.hostile, set()
    for n, table in enumerate(made(120)):
        if await hostile.publish(b"publish", b"news.x", asking(table, "evil", str(n))):
            taken.add(str(n))
        else:
            await hostile.close()
            hostile = await Hostile.at(url)
    await hostile.close()
    assert len(taken) > 30
    unanswered = set(taken)
    while unanswered:
        ((name, messages),) = await fabric.answers(1)
        unanswered.discard(str(name))
        assert messages.status == "routed" or messages.reason in ("bad_header", "cc_not_allowed")
    assert fabric.losses == []
