"""An address at its limit of connections: new readers are refused, silent ones make room."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator

import pytest
import websockets
from gateways import PATIENCE, Box, RawSocket, Reader, opened_box

from gateway.readers import connection
from gateway.transports import sse, streaming
from gateway.transports.sockjs import sessions

LIMIT = 4
OFFICE = 100
# The limit that an operator sets for an office of that size.
OFFICE_LIMIT = 120
TEXT = 0x81


@pytest.fixture
async def box(engine: str) -> AsyncIterator[Box]:
    """Open a box that sends no heartbeats of its own during a test."""
    async with opened_box(engine, per_address=LIMIT, heartbeat=3_600.0) as box:
        yield box


@contextlib.asynccontextmanager
async def mute(box: Box, count: int) -> AsyncIterator[list[RawSocket]]:
    """Connect ``count`` readers whose network has failed: they answer nothing."""
    async with contextlib.AsyncExitStack() as stack:
        readers = [await stack.enter_async_context(box.opened()) for _ in range(count)]
        for raw in readers:
            assert (await raw.upgrade()).status == 101
        yield readers


async def pushes_of(raw: RawSocket) -> list[dict[str, object]]:
    assert (await raw.upgrade()).status == 101
    return await raw.read_pushes()


async def test_a_websocket_too_many_learns_it_and_when_to_come_again(box: Box) -> None:
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


async def test_beyond_those_who_get_a_reason_a_websocket_too_many_is_answered_503(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of WebSockets that the control plane serves: the data plane has a bound of its own."""
    monkeypatch.setattr(connection, "_TURNED_AWAY_AT_ONCE", 0)
    async with (
        opened_box("tornado", per_address=LIMIT, heartbeat=3_600.0, unfinished_seconds=2.0) as box,
        mute(box, LIMIT),
        box.opened() as raw,
    ):
        assert (await raw.upgrade()).status == 503
        assert await raw.read_all() == b"not now: address"


async def test_who_says_nothing_makes_room_and_who_lives_stays(box: Box) -> None:
    """An office whose network failed silently, and works again."""
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
                raw.send_verb(action="ping")
                while (frame := await raw.read_frame())[0] != TEXT:
                    pass
                if json.loads(frame[1])["type"] == "pong":
                    back.append(raw)
                else:
                    await raw.close()
                    await asyncio.sleep(0.05)
        for raw in silent:
            assert [push["code"] for push in await raw.read_pushes()] == [4203]
        # It has answered the ping that asked whether it lives.
        box.publish(body="still here")
        assert (await living.hear())["body"] == "still here"
        assert await box.metric(no_pong) == before + LIMIT - 1


def lose(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Return a set to which ports of readers with a dead network are added.

    No packet is lost on loopback, so the kernel's answer for a lost peer is simulated.
    """
    lost: set[int] = set()

    def since(connection: socket.socket) -> float:
        return 60.0 if connection.getpeername()[1] in lost else 0.0

    for module in (sse, sessions):
        monkeypatch.setattr(module, "since_acknowledged", since)
    for module in (streaming, sessions):
        monkeypatch.setattr(module, "ANSWER_SECONDS", 0.2)
    return lost


@pytest.mark.parametrize(
    ("method", "path", "begun", "beat"),
    [
        ("GET", "/events?topic=news.breaking&as={}", b"retry: ", b":\n\n"),
        ("POST", "/sockjs/0/{}/xhr_streaming", b"o\n", b"h\n"),
        ("GET", "/sockjs/0/{}/eventsource", b"data: o", b"data: h"),
    ],
    ids=["sse", "xhr_streaming", "eventsource"],
)
async def test_streams_of_a_dead_network_make_room_and_those_that_live_stay(
    box: Box, monkeypatch: pytest.MonkeyPatch, method: str, path: str, begun: bytes, beat: bytes
) -> None:
    lost = lose(monkeypatch)
    async with box.opened() as living, box.opened() as dead:
        for name, raw in (("living", living), ("dead", dead)):
            raw.send_request(method, path.format(name))
            await raw.read_until(begun)
        lost.add(dead.port)
        async with mute(box, LIMIT - 2), box.opened() as refused:
            await pushes_of(refused)
            await dead.read_until(b"4203")
            await living.read_until(beat)
        # Its place is free: another reader is let in.
        async with box.opened() as back:
            back.send_request(method, path.format("back"))
            await back.read_until(begun)


async def test_a_poll_of_a_dead_network_makes_room(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = lose(monkeypatch)
    async with box.opened() as dead:
        dead.send_request("POST", "/sockjs/0/dead/xhr")
        await dead.read_until(b"o\n")
        dead.send_request("POST", "/sockjs/0/dead/xhr")
        lost.add(dead.port)
        async with mute(box, LIMIT - 1):
            async with box.opened() as refused:
                await pushes_of(refused)
            assert (await dead.read_all()).endswith(b"h\n")


async def test_a_session_that_goes_on_over_another_network_stays(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = lose(monkeypatch)
    async with box.opened() as dead, box.opened() as alive:
        dead.send_request("POST", "/sockjs/0/moved/xhr")
        await dead.read_until(b"o\n")
        dead.send_request("POST", "/sockjs/0/moved/xhr")
        async with mute(box, LIMIT - 2):
            lost.add(dead.port)
            async with box.opened() as refused:
                await pushes_of(refused)
            await dead.read_until(b"h\n")
            alive.send_request("POST", "/sockjs/0/moved/xhr")
            assert await dead.read_all() == b""
        verbs = b'["{\\"action\\":\\"ping\\"}"]'
        assert (await box.request("POST", "/sockjs/0/moved/xhr_send", body=verbs)).status == 204
        await alive.read_until(b"pong")


async def test_an_office_of_a_hundred_whose_network_went_is_back_and_stays(engine: str) -> None:
    """All readers connect at once, while their former connections still hold their places."""
    async with (
        opened_box(engine, per_address=OFFICE_LIMIT, heartbeat=3_600.0) as box,
        mute(box, OFFICE) as silent,
        contextlib.AsyncExitStack() as stack,
    ):
        no_pong = 'newsfabric_gateway_closes_total{reason="no_pong"}'
        before = await box.metric(no_pong)
        came: list[bool] = []

        async def come() -> Reader:
            """Come again and again until there is room, as a page does after a longer while."""
            while True:
                reader = await stack.enter_async_context(box.reader())
                reply = {"type": "disconnect"}
                with contextlib.suppress(websockets.ConnectionClosed):
                    reply = await reader.answer_to(action="ping")
                came.append(reply["type"] == "pong")
                if reply["type"] == "pong":
                    return reader
                assert reply["type"] == "disconnect"
                await asyncio.sleep(0.1)

        async with asyncio.timeout(PATIENCE):
            back = await asyncio.gather(*(come() for _ in range(OFFICE)))
        # At first there were places for a fifth of them.
        assert False in came
        for raw in silent:
            assert [push["code"] for push in await raw.read_pushes()] == [4203]
        # Those who are back have given their sign of life with the others.
        for reader in back:
            await reader.is_up_to_date()
        assert await box.metric(no_pong) == before + OFFICE


async def test_an_office_of_a_hundred_event_streams_whose_network_went_is_back(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = lose(monkeypatch)
    async with (
        opened_box(engine, per_address=OFFICE, heartbeat=3_600.0) as box,
        contextlib.AsyncExitStack() as stack,
    ):

        async def come() -> RawSocket | None:
            raw = await stack.enter_async_context(box.opened())
            raw.send_request("GET", "/events?topic=news.breaking")
            head = await raw.read_until(b"\r\n\r\n")
            return raw if head.startswith(b"HTTP/1.1 200 ") else None

        there = [await come() for _ in range(OFFICE)]
        lost.update(raw.port for raw in there if raw is not None)
        assert len(lost) == OFFICE
        back = 0
        async with asyncio.timeout(PATIENCE):
            while back < OFFICE:
                if await come() is not None:
                    back += 1
                else:
                    await asyncio.sleep(0.05)
        no_pong = 'newsfabric_gateway_closes_total{reason="no_pong"}'
        assert await box.metric(no_pong) >= OFFICE
