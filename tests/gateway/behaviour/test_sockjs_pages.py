"""SockJS 1.0: base URL, info, preflight, the page for iframes."""

from __future__ import annotations

import pytest
from gateways import Box, opened_box

SESSION = "/sockjs/000/a-session"


@pytest.mark.parametrize("path", ["/sockjs", "/sockjs/"])
async def test_greeting(box: Box, path: str) -> None:
    response = await box.request("GET", path)
    assert (response.status, response.body) == (200, b"Welcome to SockJS!\n")
    assert response.headers["content-type"] == "text/plain; charset=UTF-8"
    assert "set-cookie" not in response.headers


async def test_an_empty_origin_is_answered_like_none(box: Box) -> None:
    for method, path in (("GET", "/sockjs/info"), ("POST", f"{SESSION}/xhr")):
        response = await box.request(method, path, Origin="")
        assert response.status == 200
        assert response.headers["access-control-allow-origin"] == "*"
        assert "access-control-allow-credentials" not in response.headers


async def test_info(box: Box) -> None:
    response = await box.request("GET", "/sockjs/info", Origin="https://news.example")
    assert response.headers["content-type"] == "application/json; charset=UTF-8"
    assert response.headers["access-control-allow-origin"] == "https://news.example"
    assert response.headers["access-control-allow-credentials"] == "true"
    assert "no-store" in response.headers["cache-control"]
    info = response.json()
    assert 0 <= info.pop("entropy") < 2**32
    assert info == {"websocket": True, "cookie_needed": False, "origins": ["*:*"]}


async def test_preflight(box: Box) -> None:
    for path in ("/sockjs/info", f"{SESSION}/xhr", f"{SESSION}/xhr_send"):
        response = await box.request("OPTIONS", path, Origin="https://a.example")
        assert (response.status, response.body) == (204, b"")
        assert response.headers["access-control-allow-origin"] == "https://a.example"
        assert "OPTIONS" in response.headers["access-control-allow-methods"]
        assert int(response.headers["access-control-max-age"]) > 1_000_000


@pytest.mark.parametrize(
    "name", ["iframe.html", "iframe-a.html", "iframe-.html", "iframe-0.1.2.html"]
)
async def test_iframe_page(box: Box, name: str) -> None:
    page = await box.request("GET", f"/sockjs/{name}")
    assert page.status == 200
    assert b'<script src="/sockjs.min.js"></script>' in page.body
    assert b"SockJS.bootstrap_iframe();" in page.body
    assert "public" in page.headers["cache-control"]
    again = await box.request("GET", f"/sockjs/{name}", If_None_Match=page.headers["etag"])
    assert (again.status, again.body) == (304, b"")


@pytest.mark.parametrize(
    "path",
    ["/iframe.htm", "/iframe", "/IFRAME.HTML", "/iframe.HTML", "/iframe.xml", "/iframe-/.html",
     "/a/b/c/xhr", "/a/b.c/xhr", "//b/xhr", "/a//xhr", "/a/b/", "/a/b/jsonp", "/a/b/htmlfile",
     "/a/b/jsonp_send", "/chunking_test"],
)  # fmt: skip
async def test_other_urls_are_not_there(box: Box, path: str) -> None:
    for method in ("GET", "POST"):
        assert (await box.request(method, f"/sockjs{path}")).status == 404


async def test_an_iframe_page_that_not_everyone_may_frame_is_asked_for_each_time(
    engine: str,
) -> None:
    """Otherwise a browser's cached copy would outlive a change of the list."""
    pages = []
    for origins in (("https://one.example",), ("https://one.example", "https://two.example")):
        async with opened_box(engine, origins=origins) as box:
            pages.append(await box.request("GET", "/sockjs/iframe.html"))
            tag = pages[0].headers["etag"]
            again = await box.request("GET", "/sockjs/iframe.html", If_None_Match=tag)
            assert again.status == (304 if len(pages) == 1 else 200)
    for page, listed in zip(pages, ("https://one.example",) * 2, strict=True):
        assert page.headers["cache-control"] == "no-cache"
        assert page.headers["content-security-policy"].startswith(
            f"frame-ancestors 'self' {listed}"
        )
        # With it, browsers that support it let in every port of our host.
        assert b"document.domain" not in page.body


async def test_the_gateway_serves_sockjs_client_itself(box: Box) -> None:
    script = await box.request("GET", "/sockjs.min.js")
    assert script.status == 200
    assert b"SockJS" in script.body
