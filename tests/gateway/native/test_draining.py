"""A paced drain of many readers on several threads, as the readers see it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from pathlib import Path

import pytest
from dataplanes import PAGE, attached, dataplane, driven, gateway_settings, subscribed
from gateways import RawSocket

from gateway.native import commands

READERS = 120


async def goodbye(raw: RawSocket) -> tuple[float, dict[str, object], int]:
    """Answer the close; return its time, the ``disconnect`` push and the close code."""
    pushes = []
    while (frame := await raw.read_frame())[0] != 0x88:
        pushes.append(json.loads(frame[1]))
    at = asyncio.get_running_loop().time()
    raw.send_frame(0x88, frame[1][:2])
    assert len(pushes) == 1
    return at, pushes[0], int.from_bytes(frame[1][:2], "big")


@pytest.mark.parametrize("how", ["drain", "SIGTERM"])
async def test_readers_go_at_the_pace_and_with_jitter(tmp_path: Path, how: str) -> None:
    """120 readers at 60 a second on 3 threads: two seconds, however the threads share them."""
    paced = gateway_settings(drain_seconds=0.0, drain_per_second=60, linger=2.0)
    loop = asyncio.get_running_loop()
    async with (
        driven(tmp_path, "--threads=3", settings=paced) as (plane, control),
        contextlib.AsyncExitStack() as stack,
    ):
        raws = [await stack.enter_async_context(plane.reader()) for _ in range(READERS)]
        for raw in raws:
            await subscribed(raw, "news.breaking")
        start = loop.time()
        if how == "drain":
            control.send(commands.drain(0.0, 60))
        else:
            plane.process.send_signal(signal.SIGTERM)
        leaving = [asyncio.create_task(goodbye(raw)) for raw in raws]
        await control.until_counter("closes.drain", READERS // 4)
        counters = await control.count()
        assert counters["draining"] == 1
        assert counters["closes.drain"] + counters["readers.websocket"] == READERS
        async with plane.reader() as late:
            answer = await late.upgrade()
            assert (answer.status, "retry-after" in answer.headers) == (503, True)
        goodbyes = await asyncio.gather(*leaving)
        times = sorted(at - start for at, _, _ in goodbyes)
        # Never more than the pace allows by then, give or take a step of the drain. A busy machine
        # makes goodbyes late, not early.
        assert all(at > number / 60 - 0.1 for number, at in enumerate(times))
        assert {code for _, _, code in goodbyes} == {1012}
        waits = [push["retry_after_ms"] for _, push, _ in goodbyes]
        assert all(isinstance(wait, int) and 0 <= wait <= 2_000 for wait in waits)
        assert len(set(waits)) > READERS // 2
        assert await plane.ended() == 0


async def test_while_it_drains_other_requests_are_still_handed_over(tmp_path: Path) -> None:
    async with (
        driven(tmp_path, settings=gateway_settings(linger=1.0)) as (plane, control),
        plane.reader() as raw,
        plane.reader() as page,
    ):
        await subscribed(raw, "news.breaking")
        control.send(commands.drain(2.0, 10))
        page.send(PAGE)
        passed, _ = await asyncio.wait_for(control.handed.get(), 60)
        passed.close()
        await control.counted(handovers=1, draining=1)


async def test_readers_who_dont_answer_are_cut_off_after_the_linger_time(tmp_path: Path) -> None:
    async with (
        dataplane(tmp_path) as plane,
        contextlib.AsyncExitStack() as stack,
        attached(plane, gateway_settings(linger=0.3)) as control,
    ):
        raws = [await stack.enter_async_context(plane.reader()) for _ in range(5)]
        for raw in raws:
            await subscribed(raw, "news.breaking")
        control.send(commands.drain(0.0, 1_000))
        assert await plane.ended() == 0


async def test_sigterm_before_any_settings_ends_it(tmp_path: Path) -> None:
    async with dataplane(tmp_path) as plane:
        plane.process.send_signal(signal.SIGTERM)
        assert await plane.ended() == 0
        assert not plane.path.exists()


async def test_sigterm_without_a_control_plane_drains_by_the_last_settings(
    tmp_path: Path,
) -> None:
    async with dataplane(tmp_path) as plane, plane.reader() as raw:
        async with attached(plane, gateway_settings(linger=1.0)):
            await subscribed(raw, "news.breaking")
        plane.process.send_signal(signal.SIGTERM)
        _, push, code = await goodbye(raw)
        assert (push["code"], code) == (1012, 1012)
        assert await plane.ended() == 0


async def test_a_drain_without_readers_ends_at_once(tmp_path: Path) -> None:
    async with driven(tmp_path, "--threads=3") as (plane, control):
        control.send(commands.drain(60.0, 1))
        assert await plane.ended() == 0


async def test_a_reader_that_is_only_shaking_hands_doesnt_hold_a_drain_up(tmp_path: Path) -> None:
    async with (
        driven(tmp_path, settings=gateway_settings(linger=0.3)) as (plane, control),
        plane.reader() as half,
        plane.reader() as raw,
    ):
        half.send(PAGE[:20])
        await subscribed(raw, "news.breaking")
        control.send(commands.drain(0.2, 1_000))
        assert await plane.ended() == 0
