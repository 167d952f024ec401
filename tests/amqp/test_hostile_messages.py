"""Messages made to break a consumer: none may cost the link, or be delivered again for ever.

Each is written to the wire by hand, because no library would send it. RabbitMQ refuses some of them
itself, which ends the hostile connection alone; the others arrive, and can be sent on.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator

import pytest
from amqp_links import Inbox, RabbitHandle
from hostile import HAS_MESSAGE_ID, HAS_TIMESTAMP, Hostile, field, headers, long, nested

from newsfabric.amqp import ConfirmingPublisher, Declare, Delivery, Link, Message
from newsfabric.amqp.fields import MAX_DEPTH, MAX_TABLE_BYTES, OVERSIZE
from newsfabric.amqp.message import Undecodable

pytestmark = pytest.mark.broker


class Victim:
    """A router's answer to a bad message: publish it elsewhere unchanged, then ack."""

    def __init__(
        self, name: str, publisher: ConfirmingPublisher, inbox: Inbox, hostile: Hostile
    ) -> None:
        self.name = name
        self.publisher = publisher
        self.inbox = inbox
        self.hostile = hostile

    async def sent(self, properties: bytes, *, exchange: bytes = b"", key: bytes = b"") -> bool:
        """Return whether the broker took the message."""
        return await self.hostile.publish(exchange, key or self.name.encode(), properties)

    async def survives(self) -> None:
        """Check that the channel still works, and that the next delivery is the next message."""
        await self.publisher.publish("", Message(self.name, b"good"))
        delivery = await self.inbox.next()
        assert delivery.message.body == b"good"
        assert (delivery.redelivered, delivery.generation) == (False, 1)
        self.inbox.ack(delivery)

    async def pass_on(self, delivery: Delivery) -> Delivery:
        """Send the message to our own queue; return its delivery."""
        message = delivery.message
        again = Message(self.name, message.body, message.properties)
        await self.publisher.publish("", again, mandatory=True)
        self.inbox.ack(delivery)
        arrived = await self.inbox.next()
        self.inbox.ack(arrived)
        return arrived


@pytest.fixture
async def victim(rabbit: RabbitHandle, name: str) -> AsyncIterator[Victim]:
    link: Link = await rabbit.link()

    async def declare(broker: Declare) -> None:
        await broker.queue(name, durable=False, exclusive=True)
        await broker.bind(name, "amq.topic", f"#.{name}.#")

    await link.on_connect(declare)
    inbox = await Inbox().consume(link, name)
    hostile = await Hostile.at(rabbit.proxy.url)
    yield Victim(name, await link.publisher(), inbox, hostile)
    await hostile.close()


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        pytest.param(field(b"T", b"\xff" * 8), Undecodable(b"\xff" * 8), id="year 584 billion"),
        pytest.param(field(b"S", long(b"caf\xe9")), "caf\udce9", id="text not UTF-8"),
        pytest.param(field(b"D", b"\xff\x7f\xff\xff\xff"), None, id="255 decimal places"),
        pytest.param(field(b"d", struct.pack(">d", 0.5)), 0.5, id="a float stays one"),
        pytest.param(field(b"l", b"\x7f" + b"\xff" * 7), 2**63 - 1, id="64 bits"),
        pytest.param(field(b"x", long(bytes(range(256)))), bytes(range(256)), id="bytes"),
        pytest.param(field(b"B", b"\xff"), 255, id="an octet"),
    ],
)
async def test_odd_values_arrive_and_can_be_sent_on(
    victim: Victim, raw: bytes, expected: object
) -> None:
    assert await victim.sent(headers(raw))
    delivery = await victim.inbox.next()
    found = delivery.message.properties.headers["key"]
    if expected is not None:
        assert found == expected
        assert type(found) is type(expected)
    arrived = await victim.pass_on(delivery)
    assert arrived.message.properties.headers["key"] == found
    await victim.survives()


async def test_deep_nesting_is_cut_off(victim: Victim) -> None:
    assert await victim.sent(headers(nested(600)))
    delivery = await victim.inbox.next()
    found = delivery.message.properties.headers
    for _ in range(MAX_DEPTH):
        found = found["key"]
    assert isinstance(found["key"], Undecodable)
    await victim.pass_on(delivery)
    await victim.survives()


async def test_a_flood_of_headers_is_not_looked_into(victim: Victim) -> None:
    # Sorted names without duplicates: RabbitMQ 4 leaves such headers unchanged.
    raw = b"".join(field(b"V", b"", b"%05d" % n) for n in range(MAX_TABLE_BYTES // 4))
    assert await victim.sent(headers(raw))
    delivery = await victim.inbox.next()
    assert delivery.message.properties.headers == {OVERSIZE: raw[:MAX_TABLE_BYTES]}
    await victim.pass_on(delivery)
    await victim.survives()


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(field(b"?", b"what"), id="unknown type"),
        pytest.param(field(b"d", struct.pack(">d", float("nan"))), id="NaN"),
        pytest.param(field(b"f", struct.pack(">f", float("-inf"))), id="infinity"),
        pytest.param(field(b"S", b"\xff\xff\xff\xff"), id="longer than its table"),
        pytest.param(field(b"I", b"\0"), id="cut short"),
        pytest.param(b"\xffkey", id="a name cut short"),
    ],
)
async def test_what_the_broker_lets_through_does_no_harm(victim: Victim, raw: bytes) -> None:
    if await victim.sent(headers(raw)):
        await victim.pass_on(await victim.inbox.next())
    await victim.survives()


async def test_keys_and_properties_need_not_be_text(victim: Victim) -> None:
    key = b"caf\xe9." + victim.name.encode()
    properties = struct.pack(">H", HAS_MESSAGE_ID | HAS_TIMESTAMP) + b"\2\xff\xfe" + b"\xff" * 8
    assert await victim.sent(properties, exchange=b"amq.topic", key=key)
    delivery = await victim.inbox.next()
    message = delivery.message
    assert message.topic.encode("utf-8", "surrogateescape") == key
    assert message.properties.message_id == "\udcff\udcfe"
    assert message.properties.timestamp == 2**64 - 1
    await victim.publisher.publish("amq.topic", message, mandatory=True)
    victim.inbox.ack(delivery)
    again = await victim.inbox.next()
    assert again.message == message
    victim.inbox.ack(again)
    await victim.survives()
