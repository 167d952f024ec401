"""Attacks of an anonymous client on the HTTP port of a gateway or a frontdesk."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging

import pytest
from gateways import ENGINES, PATIENCE, opened_box, until
from house import open_house
from sockjs_sessions import watched_bodies

from newsfabric.http.pace import Rate
from newsfabric.topics import TopicPolicy, TopicTable

FEW = Rate(burst=3, per_second=0.01)
MIB = 1 << 20
SESSION = "/sockjs/0/crowded"


async def test_a_stranger_has_a_frontdesk_keep_megabytes_that_nobody_reads() -> None:
    async with open_house(TopicTable([TopicPolicy(pattern="news.#")])) as house:
        for path in ("/history", "/endpoints.json", "/nothing", "/healthz/live"):
            reader, writer = await asyncio.open_connection("127.0.0.1", house.service.port)
            length = f"Content-Length: {8 * MIB}"
            writer.write(f"POST {path} HTTP/1.1\r\nHost: x\r\n{length}\r\n\r\n".encode())
            # The reply is sent before any of the body arrives.
            answer = await asyncio.wait_for(reader.read(), PATIENCE)
            assert answer.startswith(b"HTTP/1.1 400 "), path
            writer.close()
            await writer.wait_closed()


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_few_readers_who_never_finish_keep_all_others_from_speaking(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = watched_bodies(monkeypatch)
    async with (
        opened_box(engine, sockjs_disconnect_delay=60.0) as box,
        contextlib.AsyncExitStack() as stack,
    ):
        assert (await box.request("POST", f"{SESSION}/xhr")).body == b"o\n"
        hogs = [await stack.enter_async_context(box.opened()) for _ in range(2)]
        for hog in hogs:
            hog.send(
                f"POST {SESSION}/xhr_send HTTP/1.1\r\nHost: x\r\n"
                f"Content-Length: {4 * MIB}\r\n\r\n[{' ' * (4 * MIB - 100)}".encode()
            )
        await until(lambda: bodies.held > 8 * MIB - 1_000)
        body = json.dumps(['{"action":"ping","ref":"heard"}'.ljust(2_000)]).encode()
        assert (await box.request("POST", f"{SESSION}/xhr_send", body)).status == 204
        assert b"heard" in (await box.request("POST", f"{SESSION}/xhr")).body


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_reader_who_breaks_off_fills_the_log_and_leaves_something_behind(
    engine: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bodies = watched_bodies(monkeypatch)
    async with opened_box(engine, sockjs_disconnect_delay=60.0) as box:
        await box.request("POST", f"{SESSION}/xhr")
        for _ in range(5):
            async with box.opened() as raw:
                raw.send(
                    f"POST {SESSION}/xhr_send HTTP/1.1\r\nHost: x\r\n"
                    f"Content-Length: 100000\r\n\r\n[{' ' * 50_000}".encode()
                )
                await until(lambda: bodies.held > 50_000)
                raw.reset()
            await until(lambda: bodies.held == 0)
    gc.collect()
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_reader_keeps_the_store_busy_with_histories(engine: str) -> None:
    async with opened_box(engine, history_rate=FEW) as box:
        path = "/history?topic=news.breaking"
        answers = [await box.request("GET", path, Origin="https://a.example") for _ in range(5)]
        assert [answer.status for answer in answers] == [200, 200, 200, 429, 429]
        refused = answers[-1]
        assert refused.json()["code"] == 111
        assert 1 <= int(refused.headers["retry-after"]) <= 100
        assert refused.headers["access-control-allow-origin"] == "https://a.example"


@pytest.mark.parametrize("engine", ENGINES)
async def test_an_origin_that_is_none_raises_an_error_in_a_gateway(
    engine: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened_box(engine, origins=("https://news.example",), sockjs_legacy=True) as box:
        for origin in ("http://[", "http://a]", "http://[::1", "://", "\x80", "null", ""):
            for path in (
                "/sockjs/info",
                "/sockjs/0/s/xhr",
                "/history?topic=x",
                "/sockjs/0/s/jsonp",
            ):
                method = "POST" if path.endswith("xhr") else "GET"
                answer = await box.request(method, path, Origin=origin)
                assert answer.status == 403, (origin, path)
    assert [r for r in caplog.records if r.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_reader_reads_what_only_operators_may(engine: str) -> None:
    async with opened_box(engine) as box:
        for path in ("/metrics", "/load", "/engine", "/trace/x", "/drain", "/take-over"):
            assert (await box.request("GET", path)).status == 404
            assert (await box.request("POST", path)).status == 404
        assert (await box.request("GET", "/healthz/live")).status == 200


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_script_calls_another_name_than_the_one_that_was_checked(engine: str) -> None:
    async with opened_box(engine, sockjs_legacy=True) as box:
        form = {"Content_Type": "application/x-www-form-urlencoded", "Content_Length": "14"}
        answer = await box.request("GET", "/sockjs/0/j/jsonp?c=fine", b"c=alert(1);//x", **form)
        assert answer.body == b'/**/fine("o");\r\n'
