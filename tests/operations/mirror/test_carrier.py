"""The carrier between two brokers in memory: it carries a message or drops it, without a wait."""

from __future__ import annotations

import asyncio
import collections
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from envelopes import START_MS, envelope
from gateways import until
from hypothesis import given
from hypothesis import strategies as st

from newsfabric.amqp.message import Message, Properties
from newsfabric.amqp.stub import StubBroker, StubLink
from newsfabric.messages.envelope import encode
from newsfabric.topics import TopicPolicy, TopicTable
from operations.mirror.carrier import Carrier, SendBuffer
from operations.mirror.copying import Candidate, Copying, carried_patterns
from operations.mirror.share_record import Outcome

TABLE = TopicTable(
    [
        TopicPolicy(pattern="news.*", topic_class="gold"),
        TopicPolicy(pattern="user.*", access="owner"),
    ]
)


class Between:
    """A carrier, both brokers, and the carrier's log."""

    def __init__(self, buffer: SendBuffer | None, share: float) -> None:
        self.original, self.other = StubBroker(), StubBroker()
        self.original.declare_exchange("postoffice")
        self.other.declare_exchange("publish")
        self.came = self.other.tap("publish")
        self.now = START_MS / 1000
        self.heard: list[Candidate] = []
        self.outcomes: dict[int, list[Outcome]] = collections.defaultdict(list)
        self.carrier = Carrier(
            Copying(TABLE, share=share),
            clock=lambda: self.now,
            on_candidate=self.heard.append,
            on_outcome=lambda identity, outcome: self.outcomes[identity].append(outcome),
            buffer=buffer,
        )

    def publish_original(self, *numbers: int, **fields: Any) -> None:
        for n in numbers:
            self.original.publish("postoffice", encode(envelope(n, **fields)))

    def ends(self) -> list[Outcome]:
        return [found[-1] for found in self.outcomes.values()]

    def arrived(self) -> list[str | None]:
        return [message.properties.message_id for message in self.other.pop_messages(self.came)]


@contextlib.asynccontextmanager
async def between(
    *, buffer: SendBuffer | None = None, share: float = 1.0, up: bool = True
) -> AsyncIterator[Between]:
    found = Between(buffer, share)
    links: list[StubLink] = [found.original.connect(), found.other.connect()]
    if not up:
        found.other.cut()
    patterns = carried_patterns(TABLE, with_private=False)
    await found.carrier.open(links[0], links[1], patterns)
    running = asyncio.create_task(found.carrier.run())
    try:
        yield found
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        for link in links:
            await link.close()


async def test_what_one_fabric_routes_is_published_in_the_other() -> None:
    async with between() as both:
        both.publish_original(1, 2)
        await until(lambda: both.ends() == ["taken", "taken"])
        assert both.arrived() == ["message-1", "message-2"]
        assert both.carrier.heard == 2


async def test_what_is_private_isn_t_even_sent_to_the_mirror() -> None:
    async with between() as both:
        both.publish_original(1, topic="user.42")
        both.publish_original(2)
        await until(lambda: both.ends() == ["taken"])
        assert both.arrived() == ["message-2"]
        assert both.carrier.left_out == {}


async def test_of_a_share_all_is_heard_and_a_part_goes() -> None:
    async with between(share=0.5) as both:
        both.publish_original(*range(100))
        await until(lambda: len(both.heard) == 100)
        expected = [f"message-{n}" for n in range(100) if both.heard[n].copy is not None]
        assert 30 < len(expected) < 70
        await until(lambda: both.ends() == ["taken"] * len(expected))
        assert both.arrived() == expected


async def test_while_the_other_is_away_the_original_s_queue_stays_empty() -> None:
    async with between(buffer=SendBuffer(most=3), up=False) as both:
        both.publish_original(*range(10))
        await until(lambda: len(both.heard) == 10)
        (queue,) = both.original.route("postoffice", "news.x")
        assert both.original.depth(queue) == 0
        assert both.ends() == ["dropped"] * 7
        await both.other.heal()
        await until(lambda: both.ends() == ["dropped"] * 7 + ["taken"] * 3)
        assert both.arrived() == ["message-7", "message-8", "message-9"]


async def test_what_has_waited_for_ten_seconds_doesn_t_go_any_more() -> None:
    async with between(up=False) as both:
        both.publish_original(1)
        await until(lambda: len(both.heard) == 1)
        both.now += 10
        both.carrier.expire()
        assert both.ends() == ["dropped"]
        both.publish_original(2)
        await both.other.heal()
        await until(lambda: both.ends() == ["dropped", "taken"])
        assert both.arrived() == ["message-2"]


async def test_an_other_that_refuses_everything_is_reported_and_gets_nothing_twice() -> None:
    async with between() as both:
        both.other.nacks = True
        both.publish_original(1, 2)
        await until(lambda: both.ends() == ["refused", "refused"])
        assert both.carrier.refuses
        assert "refused" in both.carrier.refusal
        both.other.nacks = False
        both.publish_original(3)
        await until(lambda: both.ends() == ["refused", "refused", "taken"])
        assert both.arrived() == ["message-3"]
        assert not both.carrier.refuses


async def test_an_other_without_the_exchange_costs_only_what_was_sent() -> None:
    async with between() as both:
        both.other.delete_exchange("publish")
        both.publish_original(1)
        await until(lambda: both.ends() == ["unconfirmed"])
        assert "publish" in both.carrier.refusal
        both.other.declare_exchange("publish")
        both.publish_original(2)
        await until(lambda: both.ends() == ["unconfirmed", "taken"])


async def test_after_a_cut_of_the_original_it_hears_again() -> None:
    async with between() as both:
        both.original.cut()
        await both.original.heal()
        both.publish_original(1)
        await until(lambda: both.ends() == ["taken"])


async def test_after_the_loss_of_its_queue_it_hears_again() -> None:
    async with between() as both:
        (queue,) = both.original.route("postoffice", "news.x")
        both.original.delete_queue(queue)
        await until(lambda: both.original.route("postoffice", "news.x") == [queue])
        both.publish_original(1)
        await until(lambda: both.ends() == ["taken"])


async def test_its_queue_is_bounded_exclusive_and_gone_when_it_goes() -> None:
    async with between() as both:
        (queue,) = both.original.route("postoffice", "news.x")
        options = both.original._queues[queue].options
        assert (options.exclusive, options.durable, options.auto_delete) == (True, False, True)
        assert options.arguments == {
            "x-max-length": 10_000,
            "x-max-length-bytes": 64 << 20,
            "x-message-ttl": 10_000,
        }
        await both.carrier.stop()
        assert both.original.route("postoffice", "news.x") == []


@pytest.mark.parametrize(
    "message",
    [
        Message("news.x", b"", Properties()),
        Message("news.x", b"\xff" * 70_000, Properties(headers={"id": 7})),
        Message("news.x", b"{}", Properties(headers={"id": "x" * 1_000}, message_id="caf\udce9")),
    ],
)
async def test_a_hostile_message_is_counted_and_the_next_one_goes(message: Message) -> None:
    async with between() as both:
        both.original.publish("postoffice", message)
        both.publish_original(1)
        await until(lambda: both.ends() == ["taken"])
        assert both.carrier.left_out == {"unreadable": 1}


@given(
    st.lists(st.tuples(st.integers(0, 30), st.floats(0, 3)), max_size=50),
    st.integers(1, 5),
    st.integers(1, 60),
)
def test_a_buffer_keeps_to_its_bounds_and_loses_the_oldest(
    pushes: list[tuple[int, float]], most: int, most_bytes: int
) -> None:
    buffer = SendBuffer(most=most, most_bytes=most_bytes, oldest=10.0)
    now, gone = 0.0, []
    for n, (size, later) in enumerate(pushes):
        now += later
        gone += buffer.push(n, Message("news.x", b"x" * size), now)
        assert len(buffer) <= most
    kept = []
    size = 0
    while buffer:
        identity, copy = buffer.pop()
        kept.append(identity)
        size += len(copy.body)
    assert size <= most_bytes
    assert gone + kept == list(range(len(pushes)))
