"""Readers that don't take their messages: closed, or served as their topic's policy says, within
the bounds of their outbox."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from gateways import PATIENCE, Box, opened_box

from gateway.wire.outbox import OutboxLimits

SMALL = OutboxLimits(hard_bytes=300_000, soft_bytes=200_000, soft_seconds=60)
BIG = "x" * 60_000
COUNT = 60


async def stuck_reader(box: Box, raw: Any, topic: str) -> None:
    """Connect a reader that doesn't read, and whose kernel buffers little."""
    await raw.upgrade()
    raw.send_verb(action="subscribe", topic=topic)
    await raw.read_frame()


@pytest.mark.promise("D6")
async def test_a_slow_reader_of_messages_that_must_not_be_dropped_is_closed(engine: str) -> None:
    # It has all the time it needs to read the reason.
    settings = {"outbox": SMALL, "linger": PATIENCE}
    async with opened_box(engine, **settings) as box, box.opened(receive_buffer=4096) as raw:
        await stuck_reader(box, raw, "news.breaking")
        async with box.reader("news.breaking") as quick:
            for n in range(COUNT):
                box.publish(body=[n, BIG])
                assert (await quick.hear())["body"][0] == n
        pushes = await raw.read_pushes()
        assert [p["body"][0] for p in pushes[:-1]] == list(range(len(pushes) - 1))
        assert len(pushes) < COUNT
        assert (pushes[-1]["type"], pushes[-1]["code"]) == ("disconnect", 4101)


@pytest.mark.promise("D6")
async def test_a_slow_reader_loses_the_oldest_where_that_is_the_policy(engine: str) -> None:
    async with opened_box(engine, outbox=SMALL) as box, box.opened(receive_buffer=4096) as raw:
        await stuck_reader(box, raw, "video.feed")
        async with box.reader("video.feed") as quick:
            for n in range(COUNT):
                box.publish("video.feed", body=[n, BIG])
                assert (await quick.hear())["body"][0] == n
        got: list[int] = []
        while not got or got[-1] != COUNT - 1:
            got.append(json.loads((await raw.read_frame())[1])["body"][0])
        assert got == sorted(set(got))
        assert len(got) < COUNT
        assert got[-3:] == [COUNT - 3, COUNT - 2, COUNT - 1]


@pytest.mark.promise("D6")
async def test_a_slow_reader_gets_the_newest_of_each_key_where_that_is_the_policy(
    engine: str,
) -> None:
    async with opened_box(engine, outbox=SMALL) as box, box.opened(receive_buffer=4096) as raw:
        await stuck_reader(box, raw, "live.blog")
        async with box.reader("live.blog") as quick:
            for n in range(COUNT):
                box.publish("live.blog", body=[n, BIG], key="ab"[n % 2], version=n)
                assert (await quick.hear())["body"][0] == n
        got: list[int] = []
        while not got or got[-1] != COUNT - 1:
            got.append(json.loads((await raw.read_frame())[1])["body"][0])
        assert got == sorted(set(got))
        assert got[-2:] == [COUNT - 2, COUNT - 1]
        assert len(got) < COUNT


async def test_a_slow_reader_still_gets_replies(engine: str) -> None:
    async with opened_box(engine, outbox=SMALL) as box, box.opened(receive_buffer=4096) as raw:
        await stuck_reader(box, raw, "video.feed")
        async with box.reader("video.feed") as quick:
            for _ in range(COUNT):
                box.publish("video.feed", body=BIG)
                await quick.hear()
        raw.send_verb(action="ping", ref="late")
        while (push := json.loads((await raw.read_frame())[1]))["type"] == "message":
            pass
        assert push == {"type": "pong", "ref": "late"}


async def test_many_replays_for_a_slow_reader_wait_their_turn(engine: str) -> None:
    limits = OutboxLimits(hard_bytes=1_500_000, soft_bytes=1_000_000)
    async with opened_box(engine, outbox=limits, replay_bytes=700_000) as box:
        topics = [f"news.t{n}" for n in range(6)]
        for topic in topics:
            await box.was_past([box.envelope(topic, body=[n, BIG]) for n in range(10)])
        async with box.opened(receive_buffer=4096) as raw:
            await raw.upgrade()
            for topic in topics:
                raw.send_verb(action="subscribe", topic=topic, rewind=10)
            got = [json.loads((await raw.read_frame())[1]) for _ in range(6 * 11)]
        assert [p["type"] for p in got] == (["subscribed"] + ["message"] * 10) * 6


async def test_a_replay_is_cut_to_the_newest_that_fit(engine: str) -> None:
    async with opened_box(engine, replay_bytes=200_000) as box:
        await box.was_past([box.envelope(body=[n, BIG]) for n in range(10)])
        async with box.reader() as reader:
            await reader.subscribe("news.breaking", rewind=10)
            assert [body[0] for body in await reader.hear_bodies(3)] == [7, 8, 9]
            await reader.is_up_to_date()


async def test_who_is_too_slow_for_what_an_over_long_message_gets_is_closed_once(
    engine: str,
) -> None:
    limits = OutboxLimits(hard_bytes=3_000, soft_bytes=3_000, soft_seconds=60)
    async with opened_box(engine, outbox=limits) as box, box.reader("video.feed") as quick:
        before = await closed(box)
        # After one of these numbers of replies there is no room for the answer to the long message.
        for count, replies in enumerate(range(2, 12)):
            async with box.opened(receive_buffer=4096) as raw:
                await stuck_reader(box, raw, "video.feed")
                for n in range(300):
                    box.publish("video.feed", body=[n, "x" * 1_000])
                    await quick.hear()
                for _ in range(replies):
                    raw.send_verb(action="ping")
                    # Answered before the next message is sent.
                    await asyncio.sleep(0.01)
                raw.send_frame(0x81, bytes(20_000))
                await reaches(lambda: closed(box), before + count + 1)
        readers = 'newsfabric_gateway_readers{transport="websocket"}'
        await reaches(lambda: box.metric(readers), 1)
        assert await closed(box) == before + 10


async def closed(box: Box) -> float:
    """Return the number of readers closed as too slow, or for a message that was too long."""
    sample = 'newsfabric_gateway_closes_total{reason="%s"}'
    return sum([await box.metric(sample % reason) for reason in ("slow_reader", "too_big")])


async def reaches(figure: Callable[[], Awaitable[float]], wanted: float) -> None:
    """Wait until ``figure`` is ``wanted``; TimeoutError if it takes too long."""
    async with asyncio.timeout(PATIENCE):
        while await figure() != wanted:  # noqa: ASYNC110 - what is waited for sets no event
            await asyncio.sleep(0.01)
