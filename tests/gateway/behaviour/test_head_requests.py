"""HEAD: the answer of GET, without the content."""

from __future__ import annotations

import pytest
from gateways import Box, Response

# Headers with new values in each answer.
FRESH = {"date", "content-length"}


def lasting(response: Response) -> dict[str, str]:
    return {name: value for name, value in response.headers.items() if name not in FRESH}


@pytest.mark.parametrize(
    "path",
    [
        "/events?topic=news.breaking",
        "/events?topic=weather.oslo",
        "/events",
        "/history?topic=news.breaking",
        "/history?topic=user.7",
        "/sockjs",
        "/sockjs/info",
        "/sockjs/iframe.html",
        "/sockjs.min.js",
        "/healthz/live",
        "/healthz/ready",
    ],
)
async def test_head_is_answered_like_get_without_content(box: Box, path: str) -> None:
    head = await box.request("HEAD", path, Origin="https://news.example")
    async with box.opened() as raw:
        raw.send_request("GET", path, Connection="close", Origin="https://news.example")
        get = Response.of(await raw.read_until(b"\r\n\r\n"))
    assert head.body == b""
    assert (head.status, lasting(head)) == (get.status, lasting(get))


async def test_head_opens_no_stream(box: Box) -> None:
    before = await box.metric('newsfabric_gateway_connects_total{transport="sse"}')
    assert (await box.request("HEAD", "/events?topic=news.breaking")).status == 200
    assert await box.metric('newsfabric_gateway_connects_total{transport="sse"}') == before


@pytest.mark.parametrize("transport", ["xhr", "xhr_send", "xhr_streaming", "eventsource"])
async def test_head_of_a_sockjs_session_is_405(box: Box, transport: str) -> None:
    """GET takes the waiting messages, so HEAD can't have the same answer."""
    response = await box.request("HEAD", f"/sockjs/000/a-session/{transport}")
    assert response.status == 405
    assert "HEAD" not in response.headers["allow"]
    assert not box.gateway.core.readers.open


@pytest.mark.parametrize("path", ["/events", "/history"])
async def test_a_preflight_allows_what_there_is(box: Box, path: str) -> None:
    response = await box.request("OPTIONS", path, Origin="https://news.example")
    assert (response.status, response.body) == (204, b"")
    assert response.headers["access-control-allow-methods"] == "GET, HEAD, OPTIONS"
    assert "Authorization" in response.headers["access-control-allow-headers"]
