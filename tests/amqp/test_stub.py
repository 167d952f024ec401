"""The stub beyond its contract: tests can look in, set its clock, and make it fail on demand."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from newsfabric.amqp import Declare, Link, Message, Properties
from newsfabric.amqp.stub import StubBroker
from newsfabric.errors import PublishNacked


@pytest.fixture
def broker() -> StubBroker:
    return StubBroker()


@pytest.fixture
async def link(broker: StubBroker) -> AsyncIterator[Link]:
    link = broker.connect()
    await link.on_connect(_exchange)
    yield link
    await link.close()


async def _exchange(broker: Declare) -> None:
    await broker.exchange("news")


async def test_a_tap_sees_what_is_published(broker: StubBroker, link: Link) -> None:
    everything, sport = broker.tap("news"), broker.tap("news", "sport.*")
    publisher = await link.publisher()
    for topic in ("sport.tennis", "world"):
        await publisher.publish("news", Message(topic, b"{}"))
    assert broker.depth(everything) == 2
    assert [message.topic for message in broker.pop_messages(everything)] == [
        "sport.tennis",
        "world",
    ]
    assert [message.topic for message in broker.pop_messages(sport)] == ["sport.tennis"]
    assert broker.pop_messages(everything) == []


async def test_a_stranger_may_publish_without_a_link(broker: StubBroker, link: Link) -> None:
    tap = broker.tap("news", "world")
    assert broker.publish("news", Message("world", b"1"))
    assert not broker.publish("news", Message("elsewhere", b"2"))
    assert [message.body for message in broker.pop_messages(tap)] == [b"1"]


async def test_messages_expire_by_the_clock_that_is_given() -> None:
    now = 100.0
    broker = StubBroker(clock=lambda: now)
    broker.declare_exchange("news")
    tap = broker.tap("news")
    broker.publish("news", Message("a", b"short", Properties(expiration="1000")))
    broker.publish("news", Message("a", b"long", Properties(expiration="2000")))
    now = 101.0
    assert broker.depth(tap) == 1
    assert [message.body for message in broker.pop_messages(tap)] == [b"long"]


async def test_it_refuses_everything_when_asked_to(broker: StubBroker, link: Link) -> None:
    tap = broker.tap("news")
    publisher = await link.publisher()
    broker.nacks = True
    with pytest.raises(PublishNacked):
        await publisher.publish("news", Message("a", b"1"))
    broker.nacks = False
    await publisher.publish("news", Message("a", b"2"))
    assert [message.body for message in broker.pop_messages(tap)] == [b"2"]


async def test_links_made_while_it_is_cut_come_up_when_it_heals(broker: StubBroker) -> None:
    broker.cut()
    link = broker.connect()
    await link.on_connect(_exchange)
    assert not link.connected
    await broker.heal()
    assert link.connected
    assert broker.tap("news")
    await link.close()
    broker.cut()
    await broker.heal()
    assert not link.connected
