"""Request heads that are too long, as pages that collect cookies send them."""

from __future__ import annotations

import pytest
from gateways import Box, RawSocket, Response

PATHS = [
    "/events?topic=news.breaking",
    "/history?topic=news.breaking",
    "/websocket",
    "/sockjs/info",
    "/sockjs/000/a-session/xhr_streaming",
    "/nothing",
]


async def is_refused(raw: RawSocket) -> None:
    answer = Response.of(await raw.read_all())
    assert (answer.status, answer.body) == (431, b"head too large")
    assert answer.headers["connection"] == "close"


@pytest.mark.parametrize("path", PATHS)
async def test_a_head_of_more_than_16_kib_is_answered_431(box: Box, path: str) -> None:
    async with box.opened() as raw:
        raw.send_request("GET", path, Cookie="x" * (16 * 1024))
        await is_refused(raw)


@pytest.mark.parametrize("path", PATHS)
async def test_it_is_refused_before_it_has_ended(box: Box, path: str) -> None:
    async with box.opened() as raw:
        raw.send(f"GET {path} HTTP/1.1\r\nHost: x\r\nCookie: ".encode() + b"x" * (17 * 1024))
        await is_refused(raw)


@pytest.mark.parametrize("path", PATHS)
async def test_one_that_is_still_coming_hears_the_answer(box: Box, path: str) -> None:
    async with box.opened() as raw:
        raw.send_request("GET", path, Cookie="x" * 500_000)
        await is_refused(raw)


async def test_behind_another_request_it_is_refused_as_well(box: Box) -> None:
    async with box.opened() as raw:
        raw.send_request("GET", "/healthz/live")
        first = Response.of(await raw.read_until(b"\r\n\r\n"))
        await raw.read(int(first.headers["content-length"]))
        raw.send_request("GET", "/events?topic=news.breaking", Cookie="x" * 20_000)
        await is_refused(raw)


async def test_a_head_of_almost_16_kib_is_served(box: Box) -> None:
    async with box.opened() as raw:
        raw.send_request("GET", "/events?topic=news.breaking", Cookie="x" * 16_000)
        assert Response.of(await raw.read_until(b"\r\n\r\n")).status == 200
