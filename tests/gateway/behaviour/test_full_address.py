"""An address with all connections that it may have: who comes is told, who is silent makes room."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import pytest
from gateways import PATIENCE, Box, RawSocket, opened_box

LIMIT = 4
TEXT = 0x81


@pytest.fixture
async def box(engine: str) -> AsyncIterator[Box]:
    """One that asks for no sign of life by itself while a test runs."""
    async with opened_box(engine, per_address=LIMIT, heartbeat=3_600.0) as box:
        yield box


@contextlib.asynccontextmanager
async def mute(box: Box, count: int) -> AsyncIterator[list[RawSocket]]:
    """So many readers whose network has gone: they answer nothing."""
    async with contextlib.AsyncExitStack() as stack:
        readers = [await stack.enter_async_context(box.opened()) for _ in range(count)]
        for raw in readers:
            assert (await raw.upgrade()).status == 101
        yield readers


async def pushes_of(raw: RawSocket) -> list[dict[str, object]]:
    assert (await raw.upgrade()).status == 101
    return await raw.read_pushes()


async def test_a_websocket_too_many_is_told_so_and_when_to_come_again(box: Box) -> None:
    async with mute(box, LIMIT), box.opened() as raw:
        assert await pushes_of(raw) == [
            {
                "type": "disconnect",
                "code": 4103,
                "reason": "too many connections of your address",
                "reconnect": True,
                "retry_after_ms": 5_000,
            }
        ]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/events?topic=news.breaking"),
        ("GET", "/history?topic=news.breaking"),
        ("GET", "/sockjs"),
        ("GET", "/sockjs/info"),
        ("POST", "/sockjs/0/a-session/xhr"),
        ("GET", "/nothing"),
    ],
)
async def test_a_request_too_many_is_answered_503(box: Box, method: str, path: str) -> None:
    async with mute(box, LIMIT):
        response = await box.request(method, path)
        assert (response.status, response.body) == (503, b"not now: address")
        assert response.headers["retry-after"] == "5"
        assert await box.metric('newsfabric_gateway_rejected_connects_total{reason="address"}') >= 1


async def test_who_says_nothing_makes_room_and_who_lives_stays(box: Box) -> None:
    """An office whose network has gone without a word, and is back."""
    async with (
        box.reader("news.breaking") as living,
        mute(box, LIMIT - 1) as silent,
        contextlib.AsyncExitStack() as stack,
    ):
        no_pong = 'newsfabric_gateway_closes_total{reason="no_pong"}'
        back, before = [], await box.metric(no_pong)
        async with asyncio.timeout(PATIENCE):
            while len(back) < LIMIT - 1:
                raw = await stack.enter_async_context(box.opened())
                await raw.upgrade()
                raw.say(action="ping")
                while (frame := await raw.read_frame())[0] != TEXT:
                    pass
                if json.loads(frame[1])["type"] == "pong":
                    back.append(raw)
                else:
                    await raw.close()
                    await asyncio.sleep(0.05)
        for raw in silent:
            assert [push["code"] for push in await raw.read_pushes()] == [4203]
        # It has answered the ping that it was asked with.
        box.publish(body="still here")
        assert (await living.hear())["body"] == "still here"
        assert await box.metric(no_pong) == before + LIMIT - 1
