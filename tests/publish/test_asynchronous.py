"""The asynchronous publisher, over a broker in memory."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from newsfabric.amqp.message import Delivery, Properties
from newsfabric.amqp.stub import StubBroker, StubLink, StubPublisher
from newsfabric.errors import LinkClosed, Unanswered
from newsfabric.messages.control import Receipt, encode_receipt
from newsfabric.publish import AsyncPublisher, choice
from newsfabric.topology import PUBLISH, TO_QUEUES

TOPIC = "news.breaking"


class RouterStage:
    """A broker in memory, and the messages at its routers, which answer as the test tells them."""

    def __init__(self) -> None:
        self.broker = StubBroker()
        self.broker.declare_exchange(PUBLISH)
        self.arrived: asyncio.Queue[Delivery] = asyncio.Queue()

    async def open(self) -> RouterStage:
        routers = self.broker.tap(PUBLISH)
        await self.broker.connect().consumer(routers, self.arrived.put_nowait)
        return self

    async def next(self) -> Properties:
        """Return the properties of the next message."""
        return (await self.arrived.get()).message.properties

    def answer(self, properties: Properties) -> None:
        """Send the receipt of the message with these properties."""
        assert properties.reply_to
        receipt = Receipt(
            status="routed", region="oregon", router="oregon-1", topic=TOPIC, identity="42"
        )
        answer = encode_receipt(
            receipt, reply_to=properties.reply_to, correlation_id=properties.correlation_id
        )
        self.broker.publish(TO_QUEUES, answer)


async def test_a_receipt_counts_that_comes_while_no_broker_takes_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker with an alarm takes no message, but still delivers."""
    fabric = await RouterStage().open()
    publisher = await AsyncPublisher.over([fabric.broker.connect()], app_id="cms", send_again=0.01)
    publishing = asyncio.create_task(publisher.publish(TOPIC, {"headline": "Hello"}))
    message = await fabric.next()

    asked = asyncio.Event()

    def is_ready(_: StubPublisher) -> bool:
        asked.set()
        return False

    async def ready(_: StubPublisher) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(StubPublisher, "is_ready", property(is_ready))
    monkeypatch.setattr(StubPublisher, "ready", ready)
    # The publisher wants to send it again by now.
    await asked.wait()
    fabric.answer(message)
    async with asyncio.timeout(10):
        assert (await publishing).identity == "42"
    await publisher.close()


async def test_a_queue_for_receipts_that_is_lost_is_made_anew_and_what_waits_is_sent_again() -> (
    None
):
    fabric = await RouterStage().open()
    publisher = await AsyncPublisher.over([fabric.broker.connect()], app_id="cms", send_again=0.01)
    publishing = asyncio.create_task(publisher.publish(TOPIC, {"headline": "Hello"}))
    async with asyncio.timeout(10):
        before = await fabric.next()
        assert before.reply_to
        fabric.broker.delete_queue(before.reply_to)
        # A router has routed it, but the receipt is lost.
        fabric.answer(before)
        after = await fabric.next()
        while after.reply_to == before.reply_to:
            after = await fabric.next()
        assert after.message_id == before.message_id
        fabric.answer(after)
        assert (await publishing).identity == "42"
    await publisher.close()


async def test_a_broker_that_refuses_at_once_is_asked_less_and_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = 0

    def refuse(*_: object, **__: object) -> None:
        nonlocal asked
        asked += 1
        raise LinkClosed("not now")

    monkeypatch.setattr(StubPublisher, "publish_nowait", refuse)
    publisher = await AsyncPublisher.over([StubBroker().connect()], app_id="cms", timeout=2)
    with pytest.raises(Unanswered):
        await publisher.publish(TOPIC, {"headline": "Hello"})
    # Without a pause there would be thousands of tries.
    assert 2 <= asked < 50
    await publisher.close()


class FakeEntrance:
    """A broker with a router behind it, which answers each message unless it is silent."""

    def __init__(self) -> None:
        self.broker = StubBroker()
        self.broker.declare_exchange(PUBLISH)
        self.broker.declare_exchange(TO_QUEUES, "direct")
        self.silent = False
        self.had: list[str] = []

    async def open(self) -> StubLink:
        routers = self.broker.tap(PUBLISH)
        await self.broker.connect().consumer(routers, self._take)
        return self.broker.connect()

    def _take(self, delivery: Delivery) -> None:
        properties = delivery.message.properties
        assert properties.message_id
        assert properties.reply_to
        self.had.append(properties.message_id)
        if not self.silent:
            receipt = Receipt(
                status="routed", region="oregon", router="oregon-1", topic=TOPIC, identity="42"
            )
            answer = encode_receipt(
                receipt, reply_to=properties.reply_to, correlation_id=properties.correlation_id
            )
            self.broker.publish(TO_QUEUES, answer)


async def test_a_broker_that_was_silent_gets_copies_until_it_answers_and_then_messages_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entrances = [FakeEntrance(), FakeEntrance()]
    links = [await entrance.open() for entrance in entrances]
    publisher = await AsyncPublisher.over([links], app_id="cms", send_again=0.2)
    numbers = itertools.count()

    async def publish(message_id: str) -> list[int]:
        """Publish a message; return the brokers that got it."""
        await publisher.publish(TOPIC, "{}", message_id=message_id)
        return [number for number, one in enumerate(entrances) if message_id in one.had]

    [usual] = await publish("first")
    monkeypatch.setattr(choice, "PROBE_EVERY", 600.0)
    entrances[usual].silent = True
    async with asyncio.timeout(60):
        # Once or twice: within a tick of the clock, a receipt is as new as a message.
        while (had := await publish(f"waits {next(numbers)}")) == [0, 1]:
            pass
    assert had == [1 - usual]

    monkeypatch.setattr(choice, "PROBE_EVERY", 0.0)
    assert await publish("a copy beside") == [0, 1]
    assert await publish("and another one") == [0, 1]
    entrances[usual].silent = False
    async with asyncio.timeout(60):
        while (had := await publish(f"answered {next(numbers)}")) == [0, 1]:
            pass
    assert had == [usual]
    await publisher.close()
