"""Attacks of another site's web page on a reader who has it open.

The reader is logged in at the gateway by a cookie, which the browser sends for any page. The
attacks use real sockets, on both engines, and Chromium where a browser decides.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
from chromium import named
from gateways import ENGINES, opened_box
from pages import browsing
from playwright.async_api import BrowserContext
from regions import TABLE, OpenedRegion, opened_region
from signing import token
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

from newsfabric.store.memory import MemoryStore

PATIENCE: Final = 60.0
# Browsers take .localhost for this machine, and treat it like HTTPS: cookies of every kind work.
HOME: Final = "gateway.news.localhost"
LISTED: Final = "www.news.localhost"
ELSEWHERE: Final = {
    "another port of the gateway's host": HOME,
    "a sibling subdomain": "evil.news.localhost",
    "another site": "evil.example",
}
SECRET: Final = "a letter to user 42"

# sockjs-client's iframe obeys the page around it: log in by cookie, read the mailbox.
FRAME_THE_GATEWAY: Final = """
(base) => {
  const id = "w";
  const frame = document.createElement("iframe");
  const tell = (type, data) =>
    frame.contentWindow.postMessage(JSON.stringify({windowId: id, type, data}), "*");
  addEventListener("message", ({data}) => {
    const {type, data: frames} = JSON.parse(data);
    if (type === "s") {
      const session = `${base}/000/${Math.random().toString(36).slice(2)}`;
      tell("s", JSON.stringify([SockJS.version, "xhr-polling", session, base]));
    } else if (type === "t" && frames === "o") {
      const verb = JSON.stringify({action: "subscribe", topic: "user.42"});
      tell("m", JSON.stringify(verb));
    } else {
      heard(String(frames));
    }
  });
  frame.src = `${base}/iframe.html#${id}`;
  document.body.append(frame);
}
"""
# The script of a page that may read.
USE_THE_CLIENT: Final = """
(base) => {
  const socket = new SockJS(base, null, {transports: ["iframe-xhr-polling"]});
  socket.onopen = () => socket.send(JSON.stringify({action: "subscribe", topic: "user.42"}));
  socket.onmessage = ({data}) => heard(data);
  socket.onclose = ({code, reason}) => heard(`closed ${code} ${reason}`);
}
"""


class _AnyPage(RequestHandler):
    def get(self, _: str) -> None:
        self.finish("<!doctype html><title>a page</title>")


@dataclasses.dataclass
class Victim:
    """A reader's browser, logged in at the gateway; and the port of all other sites' pages."""

    region: OpenedRegion
    context: BrowserContext
    port: int

    async def opens(self, host: str, script: str) -> str:
        """Run ``script`` on a page of ``host``; return the letter, or the reason of the refusal."""
        base = f"http://{HOME}:{self.region.box.gateway.port}"
        page = await self.context.new_page()
        outcome: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def ends(what: str) -> None:
            if not outcome.done():
                outcome.set_result(what)

        def heard(text: str) -> None:
            if SECRET in text:
                ends("read the mailbox")
            elif '"error' in text or text.startswith("closed"):
                ends(text)

        page.on("console", lambda message: "frame-ancestors" in message.text and ends("not framed"))
        page.on(
            "response", lambda r: "/sockjs/" in r.url and r.status >= 400 and ends(str(r.status))
        )
        await page.expose_function("heard", heard)
        await page.goto(f"http://{host}:{self.port}/")
        await page.add_script_tag(url=f"{base}/sockjs.min.js")
        await page.evaluate(script, f"{base}/sockjs")
        try:
            return await asyncio.wait_for(outcome, PATIENCE)
        finally:
            await page.close()


@contextlib.asynccontextmanager
async def victim_of(
    engine: str, folder: Path, *, listed: bool, **settings: Any
) -> AsyncIterator[Victim]:
    server = HTTPServer(Application([(r"/(.*)", _AnyPage)]))
    (listening,) = bind_sockets(0, "127.0.0.1")
    server.add_sockets([listening])
    port = listening.getsockname()[1]
    if listed:
        settings["origins"] = (f"http://{LISTED}:{port}",)
    async with (
        opened_region(engine, folder, MemoryStore(TABLE), cookie="session", **settings) as region,
        browsing(named(["*.localhost", *ELSEWHERE.values()])) as browser,
    ):
        await region.write_to("42", f'"{SECRET}"')
        context = await browser.new_context()
        await context.add_cookies(
            [
                {
                    "name": "session",
                    "value": token("42"),
                    "domain": HOME,
                    "path": "/",
                    "httpOnly": True,
                    # The worst choice of a site: without it, browsers protect against other sites.
                    "sameSite": "None",
                    "secure": True,
                }
            ]
        )
        yield Victim(region, context, port)
    server.stop()
    await server.close_all_connections()


@pytest.mark.browser
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("listed", [True, False], ids=["origins are listed", "any origin"])
async def test_a_page_of_another_origin_reads_a_mailbox(
    engine: str, tmp_path: Path, listed: bool
) -> None:
    async with victim_of(engine, tmp_path, listed=listed) as victim:
        seen = {
            name: await victim.opens(host, FRAME_THE_GATEWAY) for name, host in ELSEWHERE.items()
        }
        assert seen == dict.fromkeys(ELSEWHERE, "not framed" if listed else "404")
        assert victim.region.box.gateway.core.connects == 0


@pytest.mark.browser
@pytest.mark.parametrize("engine", ENGINES)
async def test_a_page_of_a_listed_origin_reads_the_mailbox_of_its_own_user(
    engine: str, tmp_path: Path
) -> None:
    async with victim_of(engine, tmp_path, listed=True) as victim:
        for script in (FRAME_THE_GATEWAY, USE_THE_CLIENT):
            assert await victim.opens(LISTED, script) == "read the mailbox"


# By script, for which browsers send no origin.
READ_BY_SCRIPT: Final = """
(base) => {
  const script = document.createElement("script");
  window.caught = (frame) => heard(`${frame} a letter to user 42`);
  script.src = `${base}/0/${Math.random().toString(36).slice(2)}/jsonp?c=caught`;
  document.body.append(script);
}
"""


@pytest.mark.browser
@pytest.mark.parametrize("engine", ENGINES)
async def test_a_page_of_an_unlisted_origin_reads_by_script(engine: str, tmp_path: Path) -> None:
    async with victim_of(engine, tmp_path, listed=True, sockjs_legacy=True) as victim:
        for host in ELSEWHERE.values():
            assert await victim.opens(host, READ_BY_SCRIPT) == "403"


# Posts to all that changes a gateway, from a browser on the gateway's own machine.
POST_EVERYTHING: Final = """
async (admin) => {
  const all = [];
  for (const path of ["/drain", "/take-over"]) {
    await fetch(admin + path, {method: "POST", mode: "no-cors"});
    await fetch(admin + path, {method: "POST"}).then((r) => all.push(r.status), () => {});
    await fetch(admin + path).then((r) => all.push(r.status), () => {});
  }
  return all;
}
"""


@pytest.mark.browser
@pytest.mark.parametrize("engine", ENGINES)
async def test_a_page_drains_a_gateway_or_replaces_its_data_plane(
    engine: str, tmp_path: Path
) -> None:
    async with victim_of(engine, tmp_path, listed=True) as victim:
        gateway = victim.region.box.gateway
        before = gateway.core.engine.pid
        page = await victim.context.new_page()
        await page.goto(f"http://evil.example:{victim.port}/")
        assert await page.evaluate(POST_EVERYTHING, f"http://127.0.0.1:{gateway.admin_port}") == []
        # The attacker's name now resolves to this machine: for the browser it is the same origin.
        rebound = f"http://evil.example:{gateway.admin_port}"
        answer = await page.goto(f"{rebound}/load")
        assert answer is not None
        assert answer.status == 403
        assert await page.evaluate(POST_EVERYTHING, rebound) == [403] * 4
        assert not victim.region.box.stop.is_set()
        assert gateway.core.engine.pid == before


@pytest.mark.parametrize("engine", ENGINES)
async def test_requests_that_a_browser_sends_for_a_page_reach_no_admin_port(engine: str) -> None:
    async with opened_box(engine) as box:
        port = box.gateway.admin_port
        pages = (
            {"Origin": "https://evil.example"},
            {"Origin": "null"},
            {"Origin": ""},
            {"Origin": f"http://127.0.0.1:{box.gateway.port}", "Host": f"127.0.0.1:{port}"},
            {"Host": "evil.example"},
            {"Host": f"evil.example:{port}", "Origin": f"http://evil.example:{port}"},
        )
        for page in pages:
            for method, path in (
                ("POST", "/take-over"), ("POST", "/drain"), ("GET", "/metrics"), ("GET", "/load"),
                ("GET", "/engine"), ("GET", "/trace/x"), ("GET", "/healthz/live"),
            ):  # fmt: skip
                answer = await box.request(method, path, port=port, **page)
                assert answer.status == 403, (page, path)
        assert not box.stop.is_set()


@pytest.mark.parametrize("engine", ENGINES)
async def test_programs_go_on_reading_metrics_by_address_and_by_a_listed_name(engine: str) -> None:
    async with opened_box(engine, admin_hosts=("box-1.internal",)) as box:
        port = box.gateway.admin_port
        for host in (f"127.0.0.1:{port}", f"localhost:{port}", "box-1.internal", "10.0.0.7"):
            answer = await box.request("GET", "/metrics", port=port, Host=host)
            assert answer.status == 200
            assert b"newsfabric_gateway_readers" in answer.body
