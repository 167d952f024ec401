"""Publishing until the broker has confirmed, over a broker in memory and one that refuses."""

from __future__ import annotations

import asyncio

import pytest
from metric_values import value
from prometheus_client import CollectorRegistry, Counter

from newsfabric.amqp import Message
from newsfabric.amqp.stub import StubBroker
from newsfabric.errors import LinkError, LinkRefused, PublishNacked
from wholesale.common.outgoing import PendingPublish, confirmed, send

PLAIN = Message("news.1", b"plain")
FULL = Message("news.1", b"full")


class Answering:
    """A publisher whose broker gives these answers, one for each publication."""

    def __init__(self, *answers: LinkError | None) -> None:
        self._answers = list(answers)
        self.sent: list[bytes] = []

    def publish_nowait(self, _exchange: str, message: Message) -> asyncio.Future[None]:
        self.sent.append(message.body)
        confirm: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        answer = self._answers.pop(0)
        if answer is None:
            confirm.set_result(None)
        else:
            confirm.set_exception(answer)
        return confirm

    async def ready(self) -> None:
        """Return at once."""


@pytest.fixture
def retries() -> Counter:
    return Counter("retries", "For these tests.", registry=CollectorRegistry())


async def test_what_the_broker_refuses_goes_out_again_in_its_plain_form(retries: Counter):
    publisher = Answering(PublishNacked("no"), PublishNacked("no"), None, None)
    publishes = [PendingPublish("intake", FULL, PLAIN), PendingPublish("intake", FULL)]
    for pending in publishes:
        await send(publisher, pending)
    await confirmed(publisher, publishes, retries)
    assert publisher.sent == [b"full", b"full", b"plain", b"full"]
    assert value(retries) == 2


async def test_what_a_queue_refuses_counts_as_sent_where_that_is_counted(retries: Counter):
    publisher = Answering(PublishNacked("no"), LinkError("gone"), None)
    publishes = [PendingPublish("postoffice", FULL), PendingPublish("postoffice", FULL)]
    for pending in publishes:
        await send(publisher, pending)
    refused = Counter("refused", "For this test.", registry=CollectorRegistry())
    await confirmed(publisher, publishes, retries, refused=refused)
    assert (value(retries), value(refused)) == (1, 1)
    assert len(publisher.sent) == 3


async def test_what_was_lost_with_the_link_goes_out_on_the_next_one(retries: Counter):
    broker = StubBroker()
    publisher = await broker.connect().publisher()
    pending = PendingPublish("", Message("here", b"full"))
    await send(publisher, pending)
    broker.cut()
    waiting = asyncio.create_task(confirmed(publisher, [pending], retries))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await broker.heal()
    async with asyncio.timeout(60):
        await waiting
    assert value(retries) == 1


async def test_what_has_no_time_left_isnt_sent_again(retries: Counter):
    publisher = Answering(PublishNacked("no"))
    pending = PendingPublish("intake", FULL, until=10.0)
    await send(publisher, pending, lambda: 9.0)
    await confirmed(publisher, [pending], retries, lambda: 10.0)
    assert publisher.sent == [b"full"]
    assert pending.expired


async def test_a_refusal_is_an_error_like_others_unless_it_is_fatal(retries: Counter):
    publisher = Answering(LinkRefused("403"), LinkRefused("403"), None)
    pending = PendingPublish("intake", FULL)
    await send(publisher, pending)
    with pytest.raises(LinkRefused):
        await confirmed(publisher, [pending], retries, fatal=(LinkRefused,))
    assert publisher.sent == [b"full"]
    await confirmed(publisher, [pending], retries)
    assert publisher.sent == [b"full"] * 3
