"""A fan-out continues after any failure of a single reader."""

from __future__ import annotations

import asyncio

from envelopes import envelope

from gateway.feed.fanout import Fanout
from gateway.memory.kept_topics import Audience, TopicSubscription
from gateway.wire.frames import Framing
from gateway.wire.publication import Publication
from newsfabric.closing import INTERNAL, CloseReason
from newsfabric.topics import TopicPolicy


class Taker:
    transport = "websocket"
    framing = Framing.RAW

    def __init__(self, *, broken: bool = False) -> None:
        self.broken = broken
        self.got: list[int] = []
        self.closed: CloseReason | None = None

    def deliver(self, frame: bytes, publication: Publication) -> bool:
        if self.broken:
            raise RuntimeError("a bug")
        self.got.append(publication.envelope.seq)
        return True

    def close(self, reason: CloseReason) -> None:
        self.closed = reason


def publication(number: int) -> Publication:
    return Publication(envelope(number), TopicPolicy(pattern="#"), None)


def audience(*takers: Taker) -> Audience:
    return (("websocket", tuple(TopicSubscription("news.breaking", taker) for taker in takers)),)


async def test_publications_go_out_in_order_and_are_done_one_after_the_other() -> None:
    fanout, takers, done = Fanout(chunk=2), [Taker() for _ in range(5)], []
    finished = asyncio.Event()
    for n in range(3):
        fanout.publish(publication(n), audience(*takers), done=lambda n=n: done.append(n))
    fanout.publish(publication(9), (), done=finished.set)
    assert [taker.got for taker in takers] == [[]] * 5
    await asyncio.wait_for(finished.wait(), 60)
    assert [taker.got for taker in takers] == [[0, 1, 2]] * 5
    assert done == [0, 1, 2]
    assert fanout.deliveries == 15


async def test_others_get_their_turn_between_two_chunks() -> None:
    fanout, takers = Fanout(chunk=2), [Taker() for _ in range(5)]
    fanout.publish(publication(1), audience(*takers), done=lambda: None)
    await asyncio.sleep(0)
    assert [len(taker.got) for taker in takers] == [1, 1, 0, 0, 0]
    await asyncio.sleep(0)
    assert [len(taker.got) for taker in takers] == [1, 1, 1, 1, 0]


async def test_who_unsubscribed_before_its_turn_gets_nothing() -> None:
    fanout, takers = Fanout(chunk=2), [Taker() for _ in range(3)]
    ((_, group),) = readers = audience(*takers)
    finished = asyncio.Event()
    fanout.publish(publication(1), readers, done=finished.set)
    group[1].active = False
    await asyncio.wait_for(finished.wait(), 60)
    assert [taker.got for taker in takers] == [[1], [], [1]]


async def test_a_bug_in_one_delivery_costs_one_connection(expect_error_log: object) -> None:
    expect_error_log("delivering .* failed")  # type: ignore[operator]
    fanout, takers = Fanout(chunk=100), [Taker(), Taker(broken=True), Taker()]
    finished = asyncio.Event()
    fanout.publish(publication(1), audience(*takers), done=finished.set)
    await asyncio.wait_for(finished.wait(), 60)
    assert [taker.got for taker in takers] == [[1], [], [1]]
    assert [taker.closed for taker in takers] == [None, INTERNAL, None]
