"""Every transport behind proxies with their default settings.

By default, nginx sends HTTP/1.0, buffers answers, and upgrades nothing.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import websockets
from gateways import PATIENCE, Box, RawSocket, Response, opened_box
from proxies import PROXIES, in_front_of

SESSION = "/sockjs/000/a-session"
STREAMS = {
    "xhr_streaming": ("POST", ""),
    "eventsource": ("GET", ""),
    "htmlfile": ("GET", "?c=heard"),
}


@pytest.fixture
async def legacy_box(engine: str) -> AsyncIterator[Box]:
    """Open a box with every transport."""
    async with opened_box(engine, sockjs_legacy=True) as box:
        yield box


@pytest.fixture(params=PROXIES)
async def proxy(
    request: pytest.FixtureRequest, legacy_box: Box, tmp_path: Path
) -> AsyncIterator[tuple[str, int]]:
    """Run each proxy in front of the box; yield its name and port."""
    async with in_front_of(legacy_box.host, request.param, tmp_path) as port:
        yield request.param, port


async def post_verb(box: Box, port: int, **verb: object) -> None:
    body = json.dumps([json.dumps(verb)]).encode()
    answer = await box.request("POST", f"{SESSION}/xhr_send", body, port=port)
    assert answer.status == 204, answer


async def until_heard(raw: RawSocket, text: str) -> None:
    """Wait until ``text`` has arrived, in any wrapping of the transport."""
    await raw.read_until(text.encode())


@pytest.mark.parametrize("transport", STREAMS)
async def test_a_sockjs_stream_brings_each_message_as_it_comes(
    legacy_box: Box, proxy: tuple[str, int], transport: str
) -> None:
    _, port = proxy
    method, query = STREAMS[transport]
    async with legacy_box.opened(port) as raw:
        raw.send_request(method, f"{SESSION}/{transport}{query}")
        assert Response.of(await raw.read_until(b"\r\n\r\n")).status == 200
        await post_verb(legacy_box, port, action="subscribe", topic="news.breaking")
        await until_heard(raw, "subscribed")
        for words in ("first words", "second words"):
            legacy_box.publish(body=words)
            await until_heard(raw, words)


async def test_an_event_stream_brings_each_message_as_it_comes(
    legacy_box: Box, proxy: tuple[str, int]
) -> None:
    _, port = proxy
    async with legacy_box.opened(port) as raw:
        raw.send_request("GET", "/events?topic=news.breaking")
        assert Response.of(await raw.read_until(b"\r\n\r\n")).status == 200
        await until_heard(raw, "subscribed")
        for words in ("first words", "second words"):
            legacy_box.publish(body=words)
            await until_heard(raw, words)


@pytest.mark.parametrize(("transport", "method"), [("xhr", "POST"), ("jsonp", "GET")])
async def test_polls_are_answered(
    legacy_box: Box, proxy: tuple[str, int], transport: str, method: str
) -> None:
    _, port = proxy
    path = f"{SESSION}/{transport}?c=heard"
    opened = await legacy_box.request(method, path, port=port)
    assert b"o" in opened.body
    await post_verb(legacy_box, port, action="ping", ref="over-there")
    assert b"over-there" in (await legacy_box.request(method, path, port=port)).body


async def test_what_was_missed_can_be_asked_for(legacy_box: Box, proxy: tuple[str, int]) -> None:
    _, port = proxy
    answer = await legacy_box.request("GET", "/history?topic=news.breaking", port=port)
    assert answer.status == 200
    assert answer.json()["position"]


async def test_a_web_socket_goes_through_where_the_proxy_upgrades(
    legacy_box: Box, proxy: tuple[str, int]
) -> None:
    """nginx needs a setting: without it the page is answered at once, and uses SockJS streams."""
    name, port = proxy
    if name == "nginx":
        async with legacy_box.opened(port) as raw:
            assert (await raw.upgrade()).status == 400
        return
    async with websockets.connect(f"ws://127.0.0.1:{port}/websocket") as socket:
        await socket.send(json.dumps({"action": "ping", "ref": "over-there"}))
        heard = await asyncio.wait_for(socket.recv(), PATIENCE)
        assert json.loads(heard) == {"type": "pong", "ref": "over-there"}
