"""An anonymous reader wants more connections than its share, and a gateway without any left."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import pytest
from dataplanes import PAGE, plane_of, subscribed
from descriptors import Descriptors
from gateways import ENGINES, Box, RawSocket, Response, opened_box, until

from gateway.process.settings import NativeSettings

LIMIT = 5
# Attacks that need two processes. CI has both.
needs_native = pytest.mark.skipif("native" not in ENGINES, reason="there is no data plane")
NOTHING = b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n"
ELSEWHERE = "127.0.0.2"


@pytest.fixture
async def box(engine: str) -> AsyncIterator[Box]:
    """Yield a box in which an address may have five connections."""
    async with opened_box(engine, per_address=LIMIT) as box:
        yield box


@pytest.fixture
async def native_box() -> AsyncIterator[Box]:
    """Yield such a box with a data plane."""
    async with opened_box("native", per_address=LIMIT) as box:
        yield box


@contextlib.asynccontextmanager
async def crowd(box: Box, count: int) -> AsyncIterator[list[RawSocket]]:
    """Yield so many connections, all from one address."""
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(box.opened()) for _ in range(count)]


async def status_of(raw: RawSocket, request: bytes) -> int | None:
    """Return the status of the reply to a request; None if the connection ends instead."""
    with contextlib.suppress(ConnectionError):
        raw.send(request)
    heard = await answer(raw)
    return None if heard is None else heard.status


async def answer(raw: RawSocket) -> Response | None:
    """Return the head of the next reply; None if the connection ends."""
    try:
        return Response.of(await raw.read_until(b"\r\n\r\n"))
    except (EOFError, ConnectionError):
        return None


async def test_a_stranger_opens_more_event_streams_than_his_address_may_have(box: Box) -> None:
    async with contextlib.AsyncExitStack() as stack:
        let_in = []
        # One after the other: each gets its reply before the next one connects.
        for _ in range(60):
            raw = await stack.enter_async_context(box.opened())
            if await status_of(raw, PAGE) == 200:
                let_in.append(raw)
        assert len(let_in) == LIMIT
        # Other addresses are served, and a connection that ends makes room.
        async with box.opened(source=ELSEWHERE) as other:
            await subscribed(other, "news.breaking")
        await let_in[0].close()
        async with asyncio.timeout(60):
            while True:
                async with box.opened() as again:
                    if await status_of(again, PAGE) == 200:
                        break


async def test_a_stranger_opens_more_websockets_behind_other_requests(
    box: Box, engine: str
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        let_in = []
        for _ in range(30):
            raw = await stack.enter_async_context(box.opened())
            if await status_of(raw, NOTHING) == 404:
                await raw.read_until(b"</html>")
                let_in.append(raw)
        assert len(let_in) == LIMIT
        for raw in let_in:
            # A data plane holds the WebSockets: the control plane has none that would die with it.
            assert (await raw.upgrade()).status == (503 if engine == "native" else 101)


async def polled(raw: RawSocket, name: str) -> int:
    """Return the status of a SockJS session's first poll, on a connection that stays open."""
    raw.send_request("POST", f"/sockjs/0/{name}/xhr")
    heard = await answer(raw)
    assert heard is not None
    await raw.read(int(heard.headers["content-length"]))
    return heard.status


async def test_a_stranger_opens_any_number_of_sessions_over_one_connection(engine: str) -> None:
    fields = {"per_address": LIMIT, "sockjs_disconnect_delay": 600.0}
    async with opened_box(engine, **fields) as box, box.opened() as raw:
        async with box.opened() as streaming:
            streaming.send_request("POST", "/sockjs/0/streaming/xhr_streaming")
            await streaming.read_until(b"o\n")
            statuses = [await polled(raw, f"s{number}") for number in range(20)]
            assert statuses == [200] * (LIMIT - 1) + [503] * (21 - LIMIT)
            # Other addresses are served.
            async with box.opened(source=ELSEWHERE) as other:
                assert await polled(other, "other") == 200
        # A session that ends makes room.
        async with asyncio.timeout(60):
            while await polled(raw, "again") == 503:
                pass
        assert await polled(raw, "and-again") == 503
    assert box.gateway.core.reader_count == 0


async def test_a_stranger_has_the_readers_of_his_address_asked_for_signs_of_life_without_end(
    engine: str,
) -> None:
    ping, text = 0x89, 0x81
    async with (
        opened_box(engine, per_address=LIMIT, heartbeat=3_600.0) as box,
        crowd(box, LIMIT) as readers,
    ):
        for raw in readers:
            assert (await raw.upgrade()).status == 101
        for _ in range(30):
            async with box.opened() as stranger:
                assert await status_of(stranger, PAGE) == 503
        for raw in readers:
            raw.send_verb(action="ping")
            frames = []
            while not frames or frames[-1] != text:
                frames.append((await raw.read_frame())[0])
            assert frames.count(ping) <= 1


async def test_a_stranger_keeps_those_open_that_only_hear_that_there_is_no_room(
    engine: str,
) -> None:
    async with (
        opened_box(engine, per_address=LIMIT, unfinished_seconds=600.0) as box,
        crowd(box, LIMIT),
        crowd(box, 1_100) as strangers,
    ):
        # A thousand connections may linger, all others are closed at once.
        await until(lambda: sum(raw.at_end for raw in strangers) >= 100)
        async with box.opened(source=ELSEWHERE) as other:
            await subscribed(other, "news.breaking")


@needs_native
async def test_a_stranger_upgrades_where_a_websocket_would_die_with_the_control_plane(
    native_box: Box,
) -> None:
    box = native_box
    paths = ("/websocket", "/sockjs/websocket", "/sockjs/0/a/websocket")
    for path in paths:
        async with box.opened() as raw:
            raw.send(NOTHING)
            await raw.read_until(b"</html>")
            refused = await raw.upgrade(path)
            assert (refused.status, refused.headers["connection"]) == (503, "close")
            assert int(refused.headers["retry-after"]) > 0
            await raw.read_all()
        # The next connection is handled by the data plane.
        async with box.opened() as raw:
            assert (await raw.upgrade(path)).status == 101
        for odd in ({"Content-Length": "2"}, {"Transfer-Encoding": "chunked"}):
            async with box.opened() as raw:
                assert (await raw.upgrade(path, **odd)).status == 400
    assert not box.gateway.core.readers.open


@needs_native
async def test_a_stranger_has_more_connections_after_a_new_data_plane_has_come(
    native_box: Box,
) -> None:
    box, plane = native_box, plane_of(native_box.gateway.core)
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(LIMIT):
            raw = await stack.enter_async_context(box.opened())
            assert await status_of(raw, PAGE) == 200
        await plane.take_over()
        # The new data plane knows of all connections that the old one handed over.
        await plane.refresh_counters()
        async with box.opened() as another:
            assert await status_of(another, PAGE) == 503


@needs_native
async def test_a_stranger_has_the_data_plane_lose_its_control_plane_by_requests(
    descriptors: Descriptors, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened_box("native") as box, crowd(box, LIMIT) as raws:
        descriptors.allow_none()
        for raw in raws:
            raw.send(PAGE)
        assert await asyncio.gather(*map(answer, raws)) == [None] * LIMIT
        descriptors.give_back()
        # Each of them cost one request, and none of them broke the link.
        assert (await box.request("GET", "/nothing")).status == 404
    assert caplog.text.count("out of descriptors") == 1
    assert "data plane is lost" not in caplog.text


@needs_native
async def test_a_stranger_takes_all_descriptors_of_the_control_plane(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.native.plane.connections_at_most", lambda: 8)
    async with opened_box("native", retry_after_ms=7_000) as box, crowd(box, 40) as raws:
        for raw in raws:
            raw.send(PAGE)
        heard = await asyncio.gather(*map(answer, raws))
        let_in = [one for one in heard if one is not None and one.status == 200]
        later = [one.headers["retry-after"] for one in heard if one and one.status == 503]
        assert (len(let_in), later) == (8, ["7"] * 32)
        # WebSockets, which the data plane holds, go on.
        async with box.reader("news.breaking") as reader:
            box.publish(body={"n": 1})
            assert (await reader.hear())["body"] == {"n": 1}


@needs_native
async def test_a_stranger_forges_his_address_with_a_proxy_header() -> None:
    proxies = NativeSettings(proxy_from=(f"{ELSEWHERE}/32",))
    async with opened_box("native", per_address=1, native=proxies) as box:
        header = b"PROXY TCP4 192.0.2.%d 127.0.0.1 4000 80\r\n"
        async with box.opened(source="127.0.0.3") as stranger:
            assert await status_of(stranger, header % 1) == 400
            await stranger.read_all()
        async with box.opened() as stranger:
            # The stranger counts by its real address, and has that address's share.
            await subscribed(stranger, "news.breaking")
            async with box.opened() as again:
                assert await status_of(again, PAGE) == 503
        async with contextlib.AsyncExitStack() as stack:
            for number in range(3):
                raw = await stack.enter_async_context(box.opened(source=ELSEWHERE))
                raw.send(header % number)
                await subscribed(raw, "news.breaking")


@pytest.fixture
def descriptors() -> Iterator[Descriptors]:
    with Descriptors.bounded() as taken:
        yield taken
