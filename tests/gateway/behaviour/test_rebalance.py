"""A box without a feed: its readers are sent to a box that has one, or stay if there is none."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from frontdesks import Frontdesk
from gateways import Box, opened_box, until


@pytest.fixture
async def frontdesk() -> AsyncIterator[Frontdesk]:
    frontdesk = Frontdesk()
    yield frontdesk
    await frontdesk.close()


@contextlib.asynccontextmanager
async def two_boxes(
    engine: str, frontdesk: Frontdesk, *, drain_seconds: float = 0.0
) -> AsyncIterator[tuple[Box, Box]]:
    """Open a box that knows ``frontdesk`` and is fed only once, and another that works."""
    settings = {
        "endpoints": (frontdesk.url,),
        "feed_timeout_seconds": 0.5,
        "drain_seconds": drain_seconds,
    }
    async with opened_box(engine, **settings) as box, opened_box("tornado") as other:
        box.tick()
        yield box, other


async def test_readers_of_a_box_without_a_feed_are_sent_to_another(
    engine: str, frontdesk: Frontdesk
) -> None:
    async with two_boxes(engine, frontdesk) as (box, other):
        frontdesk.boxes = [box, other]
        streaming = asyncio.create_task(box.request("GET", "/events?topic=news.breaking"))
        async with box.reader("news.breaking") as reader:
            code, pushes = await reader.hear_close()
        assert code == 4200
        (push,) = pushes
        assert (push["code"], push["reconnect"]) == (4200, True)
        assert 0 <= push["retry_after_ms"] <= 2_000
        assert b'"code":4200' in (await streaming).body
        assert not box.gateway.core.admission.draining


async def test_they_stay_while_nobody_else_is_ready(engine: str, frontdesk: Frontdesk) -> None:
    async with two_boxes(engine, frontdesk) as (box, other), box.reader("news.breaking") as reader:
        frontdesk.boxes = [box]
        await until(lambda: box.gateway.core.has_no_feed)
        before = frontdesk.asked
        await until(lambda: frontdesk.asked >= before + 2)
        await reader.is_up_to_date()
        frontdesk.boxes = [other]
        code, _ = await reader.hear_close()
        assert code == 4200


async def test_another_region_is_elsewhere_too(engine: str, frontdesk: Frontdesk) -> None:
    abroad = Frontdesk()
    try:
        async with two_boxes(engine, frontdesk) as (box, other), box.reader() as reader:
            frontdesk.alternates, abroad.boxes = [abroad], [other]
            code, _ = await reader.hear_close()
            assert code == 4200
    finally:
        await abroad.close()


async def test_when_the_feed_comes_back_the_rest_stay(engine: str, frontdesk: Frontdesk) -> None:
    async with (
        two_boxes(engine, frontdesk, drain_seconds=4.0) as (box, other),
        contextlib.AsyncExitStack() as stack,
    ):
        frontdesk.boxes = [other]
        readers = [await stack.enter_async_context(box.reader()) for _ in range(4)]
        closing = [asyncio.create_task(reader.connection.wait_closed()) for reader in readers]
        await asyncio.wait(closing, return_when=asyncio.FIRST_COMPLETED)
        box.tick()
        await until(lambda: not box.gateway.core.has_no_feed)
        stayed = [r for r, gone in zip(readers, closing, strict=True) if not gone.done()]
        assert len(stayed) >= 2
        for reader in stayed:
            await reader.subscribe("news.breaking")
        box.publish(body="news")
        assert [await reader.hear_bodies(1) for reader in stayed] == [["news"]] * len(stayed)
        for task in closing:
            task.cancel()


async def test_a_box_without_endpoints_keeps_its_readers(engine: str) -> None:
    async with opened_box(engine, feed_timeout_seconds=0.05) as box, box.reader() as reader:
        await until(lambda: box.gateway.core.has_no_feed)
        await reader.is_up_to_date()
