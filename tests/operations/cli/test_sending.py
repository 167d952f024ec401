"""The publisher that the commands use, against a broker in memory and a router of a few lines."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator

import pytest

from newsfabric.amqp import Declare, Delivery, Message
from newsfabric.amqp.stub import StubBroker
from newsfabric.errors import Returned, Unanswered
from newsfabric.messages.control import Receipt, encode_receipt
from newsfabric.publish import AsyncPublisher
from newsfabric.topics import PublisherRights, TopicTable
from newsfabric.topology import declare_client
from operations.cli.messages import make_message
from operations.cli.recording import RecordedLine, ReplayCounts, play
from operations.cli.sending import in_its_name, send_with_retry
from operations.cli.wait_limit import wait_limited

PATIENCE = 60.0
SEND_AGAIN = 0.05


def message(message_id: str = "m-1", topic: str = "news.x") -> Message:
    return make_message(topic, b"{}", message_id=message_id, app_id="a", now_ms=1)


@dataclasses.dataclass
class FakeRouter:
    """A router that sends a receipt for each message, unless it is deaf."""

    broker: StubBroker
    seen: list[str] = dataclasses.field(default_factory=list)
    deaf_for: int = 0

    async def start(self) -> None:
        self.link = self.broker.connect()
        await self.link.on_connect(self._declare)
        self.publisher = await self.link.publisher()
        self.consumer = await self.link.consumer("router", self._on_delivery)

    async def _declare(self, declare: Declare) -> None:
        await declare_client(declare)
        await declare.queue("router")
        await declare.bind("router", "publish", "#")

    def _on_delivery(self, delivery: Delivery) -> None:
        self.consumer.ack(delivery)
        properties = delivery.message.properties
        message_id = properties.message_id or ""
        self.seen.append(message_id)
        if self.deaf_for > 0:
            self.deaf_for -= 1
            return
        bad = delivery.message.topic == "bad"
        receipt = Receipt(
            status="rejected" if bad else "routed",
            region="oregon",
            router="r",
            topic=delivery.message.topic,
            message_id=message_id,
            id=None if bad else f"id of {message_id}",
            reason="topic_not_allowed" if bad else None,
        )
        assert properties.reply_to is not None
        answer = encode_receipt(
            receipt, reply_to=properties.reply_to, correlation_id=properties.correlation_id
        )
        self.publisher.publish_nowait("", answer)


@pytest.fixture
def broker() -> StubBroker:
    return StubBroker()


@pytest.fixture
async def router(broker: StubBroker) -> AsyncIterator[FakeRouter]:
    router = FakeRouter(broker)
    await router.start()
    yield router
    await router.link.close()


@contextlib.asynccontextmanager
async def publishing(broker: StubBroker, send_again: float) -> AsyncIterator[AsyncPublisher]:
    links = [broker.connect()]
    settings = {"send_again": send_again, "timeout": None}
    async with await AsyncPublisher.over(links, app_id="a", **settings) as publisher:
        yield publisher


@pytest.fixture
async def publisher(broker: StubBroker, router: FakeRouter) -> AsyncIterator[AsyncPublisher]:
    async with publishing(broker, SEND_AGAIN) as publisher:
        yield publisher


async def send(publisher: AsyncPublisher, one: Message) -> Receipt:
    return await asyncio.wait_for(send_with_retry(publisher, one), PATIENCE)


async def test_a_message_is_sent_once_and_its_receipt_comes_back(
    broker: StubBroker, router: FakeRouter
) -> None:
    # A busy machine may take longer than SEND_AGAIN for the receipt.
    async with publishing(broker, 2 * PATIENCE) as publisher:
        receipt = await send(publisher, message())
    assert (receipt.status, receipt.id) == ("routed", "id of m-1")
    assert router.seen == ["m-1"]


async def test_without_a_receipt_it_is_sent_again_under_the_same_id(
    publisher: AsyncPublisher, router: FakeRouter
) -> None:
    router.deaf_for = 2
    assert (await send(publisher, message())).id == "id of m-1"
    assert len(router.seen) >= 3
    assert set(router.seen) == {"m-1"}


async def test_a_rejection_is_a_receipt_too(publisher: AsyncPublisher) -> None:
    receipt = await send(publisher, message(topic="bad"))
    assert (receipt.status, receipt.reason) == ("rejected", "topic_not_allowed")


async def test_receipts_find_their_messages_among_many(publisher: AsyncPublisher) -> None:
    receipts = await asyncio.gather(*(send(publisher, message(f"m-{n}")) for n in range(50)))
    assert [receipt.id for receipt in receipts] == [f"id of m-{n}" for n in range(50)]


async def test_a_cut_link_delays_a_message_and_does_not_lose_it(
    publisher: AsyncPublisher, broker: StubBroker
) -> None:
    broker.cut()
    sending = asyncio.ensure_future(send(publisher, message()))
    await broker.heal()
    assert (await sending).id == "id of m-1"


async def test_a_broker_that_refuses_the_message_is_asked_again(
    publisher: AsyncPublisher, broker: StubBroker
) -> None:
    broker.nacks = True
    sending = asyncio.ensure_future(send(publisher, message()))
    await asyncio.sleep(2 * SEND_AGAIN)
    assert not sending.done()
    broker.nacks = False
    assert (await sending).id == "id of m-1"


async def test_what_is_returned_is_sent_again_until_somebody_waits_for_it(
    publisher: AsyncPublisher, broker: StubBroker, router: FakeRouter
) -> None:
    broker.delete_queue("router")
    sending = asyncio.ensure_future(send(publisher, message()))
    await asyncio.sleep(2 * SEND_AGAIN)
    assert not sending.done()
    await router.link.on_connect(router._declare)
    router.consumer = await router.link.consumer("router", router._on_delivery)
    assert (await sending).id == "id of m-1"


async def test_a_recording_is_played_and_counted(
    publisher: AsyncPublisher, router: FakeRouter
) -> None:
    lines = [
        RecordedLine(
            at=float(n), topic="bad" if n == 3 else "news.x", body=b"{}", message_id=f"m-{n}"
        )
        for n in range(300)
    ]
    answered: list[int] = []

    def on_receipt(counts: ReplayCounts) -> None:
        answered.append(counts.answered)

    async with wait_limited(lambda: "waiting", PATIENCE) as wait:
        await play(
            lines,
            [publisher],
            speed=0,
            suffix="s",
            on_receipt=on_receipt,
            wait=wait,
            topics=TopicTable([]),
            counts=(counts := ReplayCounts()),
        )
    assert (counts.routed, dict(counts.rejected)) == (299, {"topic_not_allowed": 1})
    assert answered == list(range(1, 301))
    assert set(router.seen) == {f"m-{n}-s" for n in range(300)}


async def test_a_recorded_message_over_the_limit_is_counted_and_the_others_go(
    publisher: AsyncPublisher, router: FakeRouter
) -> None:
    lines = [
        RecordedLine(at=0, topic="news.x", body=body, message_id=f"m-{n}")
        for n, body in enumerate((b"{}", b"x" * 200_000, b"{}"))
    ]
    async with wait_limited(lambda: "waiting", PATIENCE) as wait:
        await play(
            lines,
            [publisher],
            speed=0,
            suffix="",
            on_receipt=lambda _receipt: None,
            wait=wait,
            topics=TopicTable([]),
            counts=(counts := ReplayCounts()),
        )
    assert (counts.routed, dict(counts.rejected)) == (2, {"too_large": 1})
    assert set(router.seen) == {"m-0", "m-2"}


async def test_where_publishers_have_rights_an_operator_says_for_whom_it_publishes(
    publisher: AsyncPublisher, broker: StubBroker, router: FakeRouter
) -> None:
    tap = broker.tap("publish")
    for name, rights in (("m-1", [PublisherRights("a", ("#",))]), ("m-2", [])):
        await send(publisher, in_its_name(message(name), TopicTable([], rights)))
    found = [sent.properties for sent in broker.pop_messages(tap)]
    assert {one.message_id: one.user_id for one in found} == {"m-1": "a", "m-2": None}


async def test_a_message_that_stays_returned_is_reported_in_time(broker: StubBroker) -> None:
    link = broker.connect()
    await link.on_connect(declare_client)
    async with publishing(broker, SEND_AGAIN) as publisher:
        with pytest.raises(Returned):
            await asyncio.wait_for(send_with_retry(publisher, message(), SEND_AGAIN), PATIENCE)
    await link.close()


async def test_without_a_link_nothing_was_sent(broker: StubBroker) -> None:
    broker.cut()
    links = [broker.connect()]
    async with await AsyncPublisher.over(links, app_id="a", timeout=0.05) as publisher:
        with pytest.raises(Unanswered, match="nothing was sent: publish it again") as error:
            await publisher.send(message())
    assert error.value.sent is False


async def test_a_deaf_router_leaves_it_open_what_became_of_the_message(
    broker: StubBroker, router: FakeRouter
) -> None:
    router.deaf_for = 1000
    links = [broker.connect()]
    async with await AsyncPublisher.over(links, app_id="a", timeout=0.2) as publisher:
        with pytest.raises(Unanswered, match="may have been routed") as error:
            await publisher.send(message())
    assert error.value.sent is True


async def test_a_publisher_knows_which_region_answered(
    broker: StubBroker, router: FakeRouter
) -> None:
    nearest = StubBroker()
    nearest.cut()
    links = [nearest.connect(), broker.connect()]
    async with await AsyncPublisher.over(links, app_id="a", timeout=None) as publisher:
        assert publisher.answered_by is None
        await send(publisher, message())
        assert publisher.answered_by == 1
