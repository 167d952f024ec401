"""The contract of :class:`newsfabric.amqp.Link`, checked on the stub and on a real broker."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from amqp_links import PATIENCE, BrokerHandle, Inbox, ready

from newsfabric.amqp import Declare, Delivery, Link, Message, Properties
from newsfabric.errors import LinkBusy, LinkClosed, LinkError, PublishReturned


async def declare_queue(link: Link, queue: str, **options: Any) -> None:
    """Declare a queue that is deleted when ``link`` closes."""
    await link.on_connect(lambda broker: _queue(broker, queue, options))


async def _queue(broker: Declare, queue: str, options: dict[str, Any]) -> None:
    await broker.queue(queue, **{"exclusive": True, "durable": False} | options)


async def declare_fed(link: Link, kind: str, exchange: str, **bindings: str) -> None:
    async def declare(broker: Declare) -> None:
        await broker.exchange(exchange, type=kind)
        for queue, key in bindings.items():
            await broker.queue(queue, durable=False, exclusive=True)
            await broker.bind(queue, exchange, key)

    await link.on_connect(declare)


async def forget(link: Link, queue: str) -> None:
    await link.on_connect(lambda broker: broker.delete_queue(queue))


async def test_a_message_arrives_as_it_was_sent(broker: BrokerHandle, name: str) -> None:
    link = await broker.link()
    await declare_fed(link, "topic", f"{name}-news", **{f"{name}q": "news.*"})
    sent = Message(
        "news.breaking",
        '{"headline":"Grüße"}'.encode(),
        Properties(
            content_type="application/json",
            headers={
                "text": "größer",
                "bytes": b"\0\xff",
                "small": -1,
                "large": 2**40,
                "ratio": 0.1,
                "flag": True,
                "nothing": None,
                "when": datetime(2024, 2, 29, tzinfo=UTC),
                "price": Decimal("12.34"),
                "path": ["a@1", "b@2"],
                "nested": {"deep": [{"deeper": 1}]},
            },
            correlation_id="c",
            reply_to="r",
            expiration="60000",
            message_id="m",
            timestamp=1_700_000_000,
            type="t",
            app_id="a",
        ),
    )
    inbox = await Inbox().consume(link, f"{name}q")
    await (await link.publisher()).publish(f"{name}-news", sent)
    received = await inbox.next()
    assert received.message == sent
    assert received.redelivered is False
    assert {k: type(v) for k, v in received.message.properties.headers.items()} == {
        k: type(v) for k, v in sent.properties.headers.items()
    }


async def test_text_that_is_not_utf8_arrives_with_its_bytes(
    broker: BrokerHandle, name: str
) -> None:
    link = await broker.link()
    await declare_fed(link, "topic", f"{name}-news", **{f"{name}q": "#"})
    latin = b"caf\xe9".decode("utf-8", "surrogateescape")
    sent = Message(latin, b"{}", Properties(message_id=latin, headers={latin: latin}))
    inbox = await Inbox().consume(link, f"{name}q")
    await (await link.publisher()).publish(f"{name}-news", sent)
    assert (await inbox.next()).message == sent


async def test_a_topic_exchange_feeds_the_queues_whose_pattern_matches(
    broker: BrokerHandle, name: str
) -> None:
    link = await broker.link()
    sport, world = f"{name}sport", f"{name}world"
    await declare_fed(link, "topic", name, **{sport: "news.sport.#", world: "news.*"})
    publisher = await link.publisher()
    for topic in ("news.sport.tennis", "news.sport", "news.world", "weather"):
        await publisher.publish(name, Message(topic, topic.encode()))
    assert await (await Inbox().consume(link, sport)).bodies(2) == [
        b"news.sport.tennis",
        b"news.sport",
    ]
    assert await (await Inbox().consume(link, world)).bodies(2) == [b"news.sport", b"news.world"]


async def test_a_direct_exchange_wants_the_key_and_a_fanout_does_not(
    broker: BrokerHandle, name: str
) -> None:
    link = await broker.link()
    await declare_fed(link, "direct", f"{name}-d", **{f"{name}d": "me"})
    await declare_fed(link, "fanout", f"{name}-f", **{f"{name}f": "me"})
    publisher = await link.publisher()
    for exchange in (f"{name}-d", f"{name}-f"):
        await publisher.publish(exchange, Message("you", b"you"))
        await publisher.publish(exchange, Message("me", b"me"))
    assert await (await Inbox().consume(link, f"{name}d")).bodies(1) == [b"me"]
    assert await (await Inbox().consume(link, f"{name}f")).bodies(2) == [b"you", b"me"]


async def test_the_default_exchange_knows_queues_by_name(broker: BrokerHandle, name: str) -> None:
    link = await broker.link()
    await declare_queue(link, name)
    await (await link.publisher()).publish("", Message(name, b"1"))
    assert await (await Inbox().consume(link, name)).bodies(1) == [b"1"]


async def test_a_queue_bound_twice_gets_one_copy(broker: BrokerHandle, name: str) -> None:
    link = await broker.link()
    await declare_fed(link, "topic", f"{name}-x", **{name: "a.#"})
    await link.on_connect(lambda broker: broker.bind(name, f"{name}-x", "#.b"))
    publisher = await link.publisher()
    await publisher.publish(f"{name}-x", Message("a.b", b"both"))
    await publisher.publish(f"{name}-x", Message("b", b"one"))
    assert await (await Inbox().consume(link, name)).bodies(2) == [b"both", b"one"]


async def test_the_broker_makes_up_a_name(broker: BrokerHandle) -> None:
    link = await broker.link()
    names: list[str] = []

    async def declare(broker: Declare) -> None:
        names.append(await broker.queue("", exclusive=True, durable=False))

    await link.on_connect(declare)
    assert names[0].startswith("amq.gen-")


async def test_what_was_deleted_is_declared_again_on_the_connection_of_now(
    broker: BrokerHandle, name: str
) -> None:
    link = await broker.link()
    await declare_queue(link, name)
    await link.declare(lambda broker: broker.delete_queue(name))
    await link.declare(lambda broker: _queue(broker, name, {}))
    await (await link.publisher()).publish("", Message(name, b"1"))
    assert await (await Inbox().consume(link, name)).bodies(1) == [b"1"]
    with pytest.raises(LinkError, match="no exchange"):
        await link.declare(lambda broker: broker.bind(name, f"{name}-nowhere", "#"))
    await link.close()
    with pytest.raises(LinkClosed):
        await link.declare(lambda broker: _queue(broker, name, {}))


async def test_publications_in_flight_are_counted_and_bounded(
    broker: BrokerHandle, name: str
) -> None:
    link = await broker.link()
    await declare_queue(link, name)
    publisher = await link.publisher(in_flight=2)
    confirms = [publisher.publish_nowait("", Message(name, b"%d" % n)) for n in range(2)]
    assert publisher.in_flight == 2
    with pytest.raises(LinkBusy):
        publisher.publish_nowait("", Message(name, b"3"))
    await ready(publisher)
    await asyncio.gather(*confirms)
    assert publisher.in_flight == 0
    assert await (await Inbox().consume(link, name)).bodies(2) == [b"0", b"1"]


async def test_publish_waits_its_turn(broker: BrokerHandle, name: str) -> None:
    link = await broker.link()
    await declare_queue(link, name)
    publisher = await link.publisher(in_flight=3)
    messages = [Message(name, b"%d" % n) for n in range(50)]
    await asyncio.gather(*(publisher.publish("", each) for each in messages))
    bodies = await (await Inbox().consume(link, name)).bodies(50)
    assert sorted(bodies) == sorted(each.body for each in messages)


@pytest.mark.promise("C2")
async def test_a_mandatory_message_without_a_queue_is_refused(
    broker: BrokerHandle, name: str
) -> None:
    link = await broker.link()
    await declare_fed(link, "topic", f"{name}-x", **{name: "yes"})
    publisher = await link.publisher()
    outcomes = await asyncio.gather(
        *(
            publisher.publish(f"{name}-x", Message(topic, b"same"), mandatory=True)
            for topic in ("yes", "no", "yes", "no")
        ),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [
        type(None),
        PublishReturned,
        type(None),
        PublishReturned,
    ]
    await publisher.publish(f"{name}-x", Message("no", b"nobody asks"))


async def test_a_missing_exchange_fails_what_is_in_flight_and_no_more(
    broker: BrokerHandle, name: str
) -> None:
    link = await broker.link()
    await declare_queue(link, name)
    publisher, neighbour = await link.publisher(), await link.publisher()
    with pytest.raises(LinkClosed, match="no exchange"):
        await publisher.publish(f"{name}-nowhere", Message("key", b""))
    await neighbour.publish("", Message(name, b"1"))
    await (await ready(publisher)).publish("", Message(name, b"2"))
    assert await (await Inbox().consume(link, name)).bodies(2) == [b"1", b"2"]


async def test_a_message_with_no_amqp_form_is_the_callers_mistake(broker: BrokerHandle) -> None:
    publisher = await (await broker.link()).publisher()
    with pytest.raises(ValueError, match="300 bytes"):
        publisher.publish_nowait("", Message("k" * 300, b""))
    assert publisher.in_flight == 0
    await publisher.publish("", Message("k", b""))


async def test_a_consumer_holds_no_more_than_its_prefetch(broker: BrokerHandle, name: str) -> None:
    link = await broker.link()
    await declare_queue(link, name)
    publisher = await link.publisher()
    for n in range(4):
        await publisher.publish("", Message(name, b"%d" % n))
    inbox = await Inbox().consume(link, name, prefetch=2)
    first, second = await inbox.next(), await inbox.next()
    # A confirm takes a full round trip: any delivery would have arrived by now.
    await publisher.publish("", Message(name, b"4"))
    assert inbox.waiting() == 0
    inbox.ack(second)
    assert (await inbox.next()).message.body == b"2"
    inbox.ack(first)
    assert (await inbox.next()).message.body == b"3"


async def test_what_is_not_acked_goes_to_the_next_in_its_old_order(
    broker: BrokerHandle, name: str
) -> None:
    owner, leaving = await broker.link(), await broker.link()
    await declare_queue(owner, name, exclusive=False, durable=True)
    publisher = await owner.publisher()
    for n in range(5):
        await publisher.publish("", Message(name, b"%d" % n))
    inbox = await Inbox().consume(leaving, name)
    deliveries = [await inbox.next() for _ in range(5)]
    inbox.ack(deliveries[3], deliveries[0])
    await leaving.close()
    heirs = await Inbox().consume(owner, name)
    again = [await heirs.next() for _ in range(3)]
    assert [each.message.body for each in again] == [b"1", b"2", b"4"]
    assert all(each.redelivered for each in again)
    heirs.ack(*again)
    await forget(owner, name)


async def test_a_rejected_delivery_comes_back_or_goes_away(broker: BrokerHandle, name: str) -> None:
    link = await broker.link()
    await declare_queue(link, name)
    publisher = await link.publisher()
    await publisher.publish("", Message(name, b"1"))
    inbox = await Inbox().consume(link, name)
    inbox.reject(await inbox.next(), requeue=True)
    again = await inbox.next()
    assert (again.message.body, again.redelivered) == (b"1", True)
    inbox.reject(again, requeue=False)
    await publisher.publish("", Message(name, b"2"))
    assert (await inbox.next()).message.body == b"2"


async def test_settling_twice_is_harmless(broker: BrokerHandle, name: str) -> None:
    link = await broker.link()
    await declare_queue(link, name)
    publisher = await link.publisher()
    await publisher.publish("", Message(name, b"1"))
    inbox = await Inbox().consume(link, name)
    delivery = await inbox.next()
    inbox.ack(delivery)
    await publisher.publish("", Message(name, b"2"))
    inbox.ack(delivery)
    inbox.reject(delivery, requeue=True)
    following = await inbox.next()
    assert (following.message.body, following.redelivered) == (b"2", False)


async def test_competing_consumers_share_a_queue(broker: BrokerHandle, name: str) -> None:
    one, other = await broker.link(), await broker.link()
    await declare_queue(one, name, exclusive=False, durable=True)
    publisher = await one.publisher()
    inboxes = [
        await Inbox().consume(one, name, prefetch=1),
        await Inbox().consume(other, name, prefetch=1),
    ]
    for n in range(2):
        await publisher.publish("", Message(name, b"%d" % n))
    # Each inbox may hold one message, so neither can have both.
    held = [await inbox.next() for inbox in inboxes]
    assert sorted(each.message.body for each in held) == [b"0", b"1"]
    for inbox, delivery in zip(inboxes, held, strict=True):
        inbox.acks_at_once = True
        inbox.ack(delivery)
    for n in range(100):
        await publisher.publish("", Message(name, b"%d" % n))
    await forget(one, name)


async def test_a_bounded_queue_drops_its_oldest(broker: BrokerHandle, name: str) -> None:
    link = await broker.link()
    await declare_queue(link, name, arguments={"x-max-length": 3})
    publisher = await link.publisher()
    for n in range(5):
        await publisher.publish("", Message(name, b"%d" % n))
    assert await (await Inbox().consume(link, name)).bodies(3) == [b"2", b"3", b"4"]


@pytest.mark.parametrize(("arguments", "expiration"), [({"x-message-ttl": 0}, None), ({}, "0")])
async def test_an_expired_message_is_not_delivered(
    broker: BrokerHandle, name: str, arguments: dict[str, Any], expiration: str | None
) -> None:
    link = await broker.link()
    await declare_queue(link, name, arguments=arguments)
    await declare_queue(link, f"{name}-other")
    publisher = await link.publisher()
    stale = Message(name, b"stale", Properties(expiration=expiration))
    await publisher.publish("", stale, mandatory=True)
    inbox = await Inbox().consume(link, name)
    other = await Inbox().consume(link, f"{name}-other")
    await publisher.publish("", Message(f"{name}-other", b"later"))
    assert (await other.next()).message.body == b"later"
    assert inbox.waiting() == 0


async def test_nothing_is_delivered_before_the_caller_has_its_consumer(
    broker: BrokerHandle, name: str
) -> None:
    link = await broker.link()
    await declare_queue(link, name)
    await (await link.publisher()).publish("", Message(name, b"1"))
    inbox = Inbox()
    inbox.acks_at_once = True
    await inbox.consume(link, name)
    assert (await inbox.next()).message.body == b"1"


async def test_a_consumer_waits_for_its_queue(broker: BrokerHandle, name: str) -> None:
    link = await broker.link()
    inbox = await Inbox().consume(link, name)
    await declare_queue(link, name)
    await (await link.publisher()).publish("", Message(name, b"1"))
    assert (await inbox.next()).message.body == b"1"


async def test_a_consumer_survives_its_queue(broker: BrokerHandle, name: str) -> None:
    link = await broker.link()
    await declare_queue(link, name)
    inbox = await Inbox().consume(link, name)
    publisher = await link.publisher()
    await publisher.publish("", Message(name, b"1"))
    before = await inbox.next()
    await forget(link, name)
    await declare_queue(link, name)
    await publisher.publish("", Message(name, b"2"))
    after = await inbox.next()
    assert (after.message.body, after.redelivered) == (b"2", False)
    inbox.ack(before)
    inbox.ack(after)
    await publisher.publish("", Message(name, b"3"))
    assert (await inbox.next()).message.body == b"3"


async def test_a_consumer_declares_its_own_queue_again_when_that_is_lost(
    broker: BrokerHandle,
) -> None:
    link = await broker.link()
    declared: asyncio.Queue[str] = asyncio.Queue()

    async def declare(broker: Declare) -> str:
        name = await broker.queue("", durable=False, exclusive=True, auto_delete=True)
        declared.put_nowait(name)
        return name

    inbox = await Inbox().consume(link, declare)
    inbox.acks_at_once = True
    publisher = await link.publisher()
    async with asyncio.timeout(PATIENCE):
        first = await declared.get()
        await publisher.publish("", Message(first, b"1"))
        assert (await inbox.next()).message.body == b"1"
        await forget(link, first)
        second = await declared.get()
        assert second != first
        await publisher.publish("", Message(second, b"2"))
        assert (await inbox.next()).message.body == b"2"
        await broker.cut()
        await broker.heal()
        await ready(publisher)
        await publisher.publish("", Message(await declared.get(), b"3"))
        assert (await inbox.next()).message.body == b"3"
    assert declared.empty()


async def test_a_delivery_that_upsets_its_taker_comes_once_more_and_never_again(
    broker: BrokerHandle, name: str, expect_error_log: Any
) -> None:
    expect_error_log("failed, (requeued|dropped)")
    link, other = await broker.link(), await broker.link()
    await declare_queue(link, name, exclusive=False, durable=True)
    publisher = await link.publisher()
    seen: asyncio.Queue[tuple[bytes, bool]] = asyncio.Queue()

    def take_delivery(delivery: Delivery) -> None:
        seen.put_nowait((delivery.message.body, delivery.redelivered))
        if delivery.message.body == b"bad":
            raise RuntimeError("can't")
        consumer.ack(delivery)

    consumer = await other.consumer(name, take_delivery, prefetch=1)
    for body in (b"bad", b"good"):
        await publisher.publish("", Message(name, body))
    async with asyncio.timeout(60):
        assert [await seen.get() for _ in range(3)] == [
            (b"bad", False),
            (b"bad", True),
            (b"good", False),
        ]
    await other.close()
    await publisher.publish("", Message(name, b"last"))
    heir = await Inbox().consume(link, name)
    assert (await heir.next()).message.body == b"last"
    await forget(link, name)


async def test_what_was_redelivered_through_no_fault_of_its_own_is_taken_as_any_other(
    broker: BrokerHandle, name: str
) -> None:
    link, other = await broker.link(), await broker.link()
    await declare_queue(link, name, exclusive=False, durable=True)
    await (await link.publisher()).publish("", Message(name, b"innocent"))
    await (await Inbox().consume(other, name)).next()
    await other.close()
    heir = await Inbox().consume(link, name)
    delivery = await heir.next()
    assert (delivery.message.body, delivery.redelivered) == (b"innocent", True)
    heir.ack(delivery)
    await forget(link, name)


async def test_a_cancelled_consumer_gets_nothing_more_and_can_finish_its_work(
    broker: BrokerHandle, name: str
) -> None:
    link, other = await broker.link(), await broker.link()
    await declare_queue(link, name, exclusive=False, durable=True)
    publisher = await link.publisher()
    for n in range(2):
        await publisher.publish("", Message(name, b"%d" % n))
    inbox = await Inbox().consume(other, name)
    first, second = await inbox.next(), await inbox.next()
    assert inbox.consumer is not None
    await inbox.consumer.cancel()
    await publisher.publish("", Message(name, b"2"))
    inbox.ack(first)
    inbox.reject(second, requeue=True)
    heir = await Inbox().consume(link, name)
    assert sorted(await heir.bodies(2)) == [b"1", b"2"]
    assert inbox.waiting() == 0
    await other.close()
    await publisher.publish("", Message(name, b"3"))
    assert (await heir.next()).message.body == b"3"
    await forget(link, name)


async def test_declaring_again_is_harmless_and_otherwise_an_error_that_can_be_caught(
    broker: BrokerHandle, name: str
) -> None:
    link = await broker.link()
    refusals: list[str] = []

    async def declare(broker: Declare) -> None:
        for _ in range(2):
            await broker.exchange(f"{name}-x", type="topic")
            await broker.queue(name, exclusive=True, durable=False)
        for attempt in (
            broker.exchange(f"{name}-x", type="fanout"),
            broker.queue(name, exclusive=True, durable=False, arguments={"x-max-length": 1}),
            broker.bind(name, f"{name}-nowhere", "#"),
            broker.bind(f"{name}-nowhere", f"{name}-x", "#"),
        ):
            try:
                await attempt
            except LinkError as exc:
                refusals.append(str(exc)[:3])
        await broker.delete_queue(f"{name}-nowhere")

    await link.on_connect(declare)
    assert refusals == ["406", "406", "404", "404"]


async def test_a_declaration_that_fails_hurts_nobody_else(
    broker: BrokerHandle, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    link = await broker.link()
    with caplog.at_level(logging.WARNING):
        await link.on_connect(lambda broker: broker.bind(name, f"{name}-nowhere", "#"))
    assert "404" in caplog.text
    await declare_queue(link, f"{name}-good")
    await (await link.publisher()).publish("", Message(f"{name}-good", b"1"))
    assert await (await Inbox().consume(link, f"{name}-good")).bodies(1) == [b"1"]


async def established(link: Link) -> None:
    async with asyncio.timeout(60):
        while not link.established:  # noqa: ASYNC110 - what is waited for sets no event
            await asyncio.sleep(0.01)


async def test_a_link_is_established_once_all_that_is_declared_is_there(
    broker: BrokerHandle, name: str
) -> None:
    link, other = await broker.link(), await broker.link()
    await declare_queue(link, name)
    await established(link)

    async def binds(declare: Declare) -> None:
        await declare.bind(name, f"{name}.missing", "#")

    await link.on_connect(binds)
    assert (link.connected, link.established) == (True, False)

    async def makes(declare: Declare) -> None:
        await declare.exchange(f"{name}.missing", durable=False)

    await other.on_connect(makes)
    await broker.cut()
    assert not link.established
    await broker.heal()
    await established(link)


async def test_a_cut_fails_what_is_in_flight_and_everything_comes_back(
    broker: BrokerHandle, name: str
) -> None:
    link = await broker.link()
    declared = 0

    async def declare(broker: Declare) -> None:
        nonlocal declared
        declared += 1
        await broker.queue(name, exclusive=True, durable=False)

    await link.on_connect(declare)
    publisher = await link.publisher()
    inbox = await Inbox().consume(link, name)
    await publisher.publish("", Message(name, b"before"))
    old = await inbox.next()

    confirm = publisher.publish_nowait("", Message(name, b"in flight"))
    await broker.cut()
    with pytest.raises(LinkClosed):
        await confirm
    assert publisher.in_flight == 0
    assert not link.connected
    with pytest.raises(LinkClosed):
        await publisher.publish("", Message(name, b"while down"))
    with pytest.raises(LinkClosed):
        publisher.publish_nowait("", Message(name, b"while down"))
    waiting = asyncio.create_task(publisher.ready())

    await broker.heal()
    async with asyncio.timeout(60):
        await waiting
    assert link.connected
    assert declared == 2
    await publisher.publish("", Message(name, b"after"))
    delivery = await inbox.next()
    assert delivery.message.body == b"after"
    # The delivery of an old channel: its ack is dropped and doesn't harm the new channel.
    inbox.ack(old)
    inbox.ack(delivery)
    await publisher.publish("", Message(name, b"later"))
    assert (await inbox.next()).message.body == b"later"


async def test_what_was_being_worked_on_at_a_cut_is_delivered_again(
    broker: BrokerHandle, name: str
) -> None:
    link = await broker.link()
    await declare_queue(link, name, exclusive=False, durable=True)
    publisher = await link.publisher()
    inbox = await Inbox().consume(link, name)
    await publisher.publish("", Message(name, b"1"))
    assert (await inbox.next()).redelivered is False
    await broker.cut()
    await broker.heal()
    again = await inbox.next()
    assert (again.message.body, again.redelivered) == (b"1", True)
    await forget(link, name)


async def test_publishers_and_consumers_can_be_made_while_the_link_is_down(
    broker: BrokerHandle, name: str
) -> None:
    link = await broker.link()
    await broker.cut()
    await declare_queue(link, name)
    publisher = await link.publisher()
    inbox = await Inbox().consume(link, name)
    with pytest.raises(LinkClosed):
        await publisher.publish("", Message(name, b"early"))
    await broker.heal()
    await (await ready(publisher)).publish("", Message(name, b"1"))
    assert (await inbox.next()).message.body == b"1"


async def test_closing_keeps_acks_and_confirms_and_is_final(
    broker: BrokerHandle, name: str
) -> None:
    link, other = await broker.link(), await broker.link()
    await declare_queue(other, name, exclusive=False, durable=True)
    publisher = await link.publisher()
    inbox = await Inbox().consume(link, name)
    await publisher.publish("", Message(name, b"1"))
    inbox.ack(await inbox.next())
    assert inbox.consumer is not None
    await inbox.consumer.cancel()
    confirm = publisher.publish_nowait("", Message(name, b"2"))
    await link.close()
    await confirm
    assert not link.connected
    with pytest.raises(LinkClosed):
        publisher.publish_nowait("", Message(name, b"3"))
    await link.close()
    heir = await Inbox().consume(other, name)
    assert (await heir.next()).message.body == b"2"
    await forget(other, name)


@pytest.mark.parametrize("prefetch", [0, 65_536])
async def test_prefetch_has_bounds(broker: BrokerHandle, prefetch: int) -> None:
    link = await broker.link()
    with pytest.raises(ValueError, match="prefetch"):
        await link.consumer("any", lambda _delivery: None, prefetch=prefetch)


async def test_in_flight_has_a_bound(broker: BrokerHandle) -> None:
    link = await broker.link()
    with pytest.raises(ValueError, match="in_flight"):
        await link.publisher(in_flight=0)
