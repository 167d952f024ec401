"""Slow readers on real sockets, and messages that are sent to them together."""

from __future__ import annotations

import asyncio
import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from dataplanes import Control, driven, gateway_settings, subscribed
from gateways import RawSocket

from gateway.wire.outbox import OutboxLimits
from newsfabric.topics import SlowPolicy

OUTBOX = OutboxLimits(hard_bytes=300_000, soft_bytes=200_000, soft_seconds=60.0)
PIECE = "x" * 20_000
DEFLATE = {"Sec_WebSocket_Extensions": "permessage-deflate"}


def bodies(pushes: list[dict[str, Any]]) -> list[int]:
    return [push["body"]["n"] for push in pushes if push["type"] == "message"]


async def publish(
    control: Control, topic: str, count: int, *, start: int = 0, keys: int = 0
) -> None:
    for number in range(start, start + count):
        more = {"key": f"k{number % keys}", "version": number} if keys else {}
        control.publish(topic, {"n": number, "text": PIECE}, **more)
        if number % 20 == 19:
            await control.flushed()
    await control.flushed()


async def read_on(raw: RawSocket, last: int) -> list[dict[str, Any]]:
    """Return the pushes up to message ``last``; pings are ignored."""
    pushes: list[dict[str, Any]] = []
    while not pushes or pushes[-1]["body"]["n"] != last:
        first, payload = await raw.read_frame()
        if first == 0x81:
            pushes.append(json.loads(payload))
    return pushes


async def test_drop_oldest_keeps_the_newest_and_counts_the_others(tmp_path: Path) -> None:
    async with driven(tmp_path, settings=gateway_settings(outbox=OUTBOX)) as (plane, control):
        control.slow = "drop_oldest"
        async with plane.reader(receive_buffer=4096) as slow, plane.reader() as quick:
            await subscribed(slow, "video.clip")
            await subscribed(quick, "video.clip")
            heard: list[int] = []
            for start in range(0, 200, 10):
                # Two thirds of the bound of waiting frames: the quick one reads each ten in time.
                await publish(control, "video.clip", 10, start=start)
                heard += bodies(await read_on(quick, start + 9))
            assert heard == list(range(200))
            got = bodies(await read_on(slow, 199))
            assert got == sorted(got)
            dropped = await control.until_counter("dropped.drop_oldest", 1)
            assert len(got) + dropped == 200
            await control.counted(readers__websocket=2)


async def test_conflate_keeps_the_newest_version_of_each_key(tmp_path: Path) -> None:
    async with driven(tmp_path, settings=gateway_settings(outbox=OUTBOX)) as (plane, control):
        control.slow = "conflate"
        async with plane.reader(receive_buffer=4096) as slow:
            await subscribed(slow, "live.score")
            await publish(control, "live.score", 200, keys=3)
            got = bodies(await read_on(slow, 199))
            assert got[-3:] == [197, 198, 199]
            assert len(got) + (await control.count())["dropped.conflate"] == 200


async def test_what_must_not_be_dropped_ends_a_slow_reader(tmp_path: Path) -> None:
    async with (
        driven(tmp_path, settings=gateway_settings(outbox=OUTBOX, linger=5.0)) as (plane, control),
        plane.reader(receive_buffer=4096) as slow,
    ):
        await subscribed(slow, "news.breaking")
        await publish(control, "news.breaking", 200)
        await control.counted(closes__slow_reader=1, readers__websocket=0)
        pushes = await slow.read_pushes()
        assert (pushes[-1]["type"], pushes[-1]["code"]) == ("disconnect", 4101)
        # In order, without a gap, up to the point where it was given up.
        assert bodies(pushes) == list(range(len(pushes) - 1))
        assert (await control.count())["dropped.disconnect"] > 0


async def test_one_who_is_too_slow_to_hear_that_a_verb_is_too_long_is_closed_once(
    tmp_path: Path,
) -> None:
    limits = OutboxLimits(hard_bytes=1 << 20, soft_bytes=1, soft_seconds=1.0)
    async with (
        driven(tmp_path, settings=gateway_settings(outbox=limits, linger=5.0)) as (plane, control),
        plane.reader() as other,
        plane.reader(receive_buffer=4096) as slow,
    ):
        await subscribed(other, "news.other")
        await subscribed(slow, "news.breaking")
        await publish(control, "news.breaking", 40)
        await asyncio.sleep(1.2)
        slow.send_frame(0x81, bytes(20_000))
        counters = await control.counted(closes__slow_reader=1, readers__websocket=1)
        assert ("closes.too_big" in counters, counters["closing"]) == (False, 1)
        pushes = await slow.read_pushes()
        assert (pushes[-1]["type"], pushes[-1]["code"]) == ("disconnect", 4101)


@pytest.mark.parametrize("slow", ["drop_oldest", "conflate", "disconnect"])
async def test_readers_that_never_read_cost_a_bounded_amount(
    tmp_path: Path, slow: SlowPolicy
) -> None:
    async with driven(tmp_path, "--threads=1", settings=gateway_settings(outbox=OUTBOX)) as (
        plane,
        control,
    ):
        control.slow = slow
        before = plane.rss
        async with (
            plane.reader(receive_buffer=4096) as one,
            plane.reader(receive_buffer=4096) as two,
        ):
            await subscribed(one, "video.clip")
            await subscribed(two, "video.clip")
            await publish(control, "video.clip", 1_500, keys=40)
            # 30 MB were published; remembered messages (10) and two outboxes are 1 MB.
            assert plane.rss - before < 6 << 20


async def test_what_waits_for_a_reader_keeps_each_topics_order(tmp_path: Path) -> None:
    async with (
        driven(tmp_path, "--threads=1") as (plane, control),
        plane.reader(receive_buffer=4096) as raw,
    ):
        await subscribed(raw, "news.one", "news.two")
        for number in range(60):
            control.publish("news.one", {"n": number, "text": PIECE})
        for number in range(60, 560):
            control.publish("news.one" if number % 2 else "news.two", {"n": number})
        await control.flushed()
        got = [json.loads((await raw.read_frame())[1])["body"]["n"] for _ in range(560)]
        ones = [n for n in got if n < 60 or n % 2]
        twos = [n for n in got if n >= 60 and n % 2 == 0]
        assert ones == [*range(60), *range(61, 560, 2)]
        assert twos == list(range(60, 560, 2))


@pytest.mark.parametrize("headers", [{}, DEFLATE], ids=["plain", "deflate"])
async def test_messages_that_come_at_once_leave_in_few_writes(
    tmp_path: Path, headers: dict[str, str]
) -> None:
    async with (
        driven(tmp_path, "--threads=1") as (plane, control),
        plane.reader() as raw,
    ):
        await subscribed(raw, "news.one", **headers)
        await control.flushed()
        before = raw.segments
        for number in range(64):
            control.publish("news.one", {"n": number, "text": "x" * 300})
        got = []
        for _ in range(64):
            first, payload = await raw.read_frame()
            assert bool(first & 0x40) == bool(headers)
            if headers:
                inflate = zlib.decompressobj(-15)
                payload = inflate.decompress(payload + b"\0\0\xff\xff")
            got.append(json.loads(payload)["body"]["n"])
        assert got == list(range(64))
        # Sent one by one they are 35 and more: the kernel joins some of them itself.
        assert raw.segments - before <= 8
