"""clients/js logs in at a real gateway, in a real browser, and stays logged in."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
from chromium import FLAGS, find_chromium
from gateways import Box, opened_box
from playwright.async_api import Page, async_playwright
from signing import AUDIENCE, ISSUER, keys_file, token
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

from gateway.process.settings import TokenSettings
from newsfabric.topics import TopicPolicy, TopicTable

pytestmark = pytest.mark.browser

STATIC: Final = Path(__file__).parents[2] / "newsfabric" / "static"
TABLE: Final = TopicTable(
    [
        TopicPolicy(pattern="news.*", keep=10),
        TopicPolicy(pattern="user.*", topic_class="gold", access="owner", keep=10),
    ]
)
CONNECT: Final = """
({topic, given}) => {
  const log = {got: [], errors: [], logins: [], refused: [], states: []};
  const token = given === "fresh" ? () => freshToken() : given;
  const fabric = newsfabric.connect({endpoints: "/endpoints.json", token});
  fabric.on("state", ({state}) => log.states.push(state));
  fabric.on("login", (login) => log.logins.push(login));
  fabric.on("error", ({code}) => log.errors.push(code));
  fabric.subscribe(topic, {
    onMessage: ({body}) => log.got.push(body),
    onError: ({code}) => log.refused.push(code),
  });
  Object.assign(window, {fabric, log});
}
"""


class LoginSite(RequestHandler):
    """A site with one empty page, our library, and an endpoints.json that names the box."""

    def initialize(self, box: list[Box]) -> None:
        self._box = box

    def get(self, path: str) -> None:
        if path == "newsfabric.js":
            self.set_header("Content-Type", "text/javascript")
            self.finish((STATIC / path).read_bytes())
        elif path == "endpoints.json":
            self.finish(_endpoints(self._box[0].host))
        else:
            self.finish('<!doctype html><title>try</title><script src="/newsfabric.js"></script>')


def _endpoints(host: str) -> dict[str, Any]:
    gateway = {
        "websocket_url": f"ws://{host}/websocket",
        "sockjs_url": f"http://{host}/sockjs",
        "weight": 1,
    }
    return {
        "region": "oregon",
        "gateways": [gateway],
        "alternates": [],
        "ttl": 5,
        "retry_ms": 100,
    }


@dataclasses.dataclass
class House:
    """The address of the site, and its box once there is one."""

    url: str
    box: list[Box]


@pytest.fixture
async def house() -> AsyncIterator[House]:
    boxes: list[Box] = []
    server = HTTPServer(Application([(r"/(.*)", LoginSite, {"box": boxes})]))
    (listening,) = bind_sockets(0, "127.0.0.1")
    server.add_sockets([listening])
    yield House(f"http://127.0.0.1:{listening.getsockname()[1]}", boxes)
    server.stop()
    await server.close_all_connections()


@pytest.fixture
async def box(house: House, tmp_path: Path) -> AsyncIterator[Box]:
    settings = TokenSettings(
        keys=keys_file(tmp_path), audience=AUDIENCE, issuer=ISSUER, leeway=0.0, cookie="session"
    )
    async with opened_box("tornado", table=TABLE, tokens=settings, origins=(house.url,)) as box:
        house.box.append(box)
        yield box


@pytest.fixture
async def page(house: House, box: Box) -> AsyncIterator[Page]:
    """Open the site's page in a browser; ``freshToken`` makes tokens that last 6 s.

    There is no randomness, so that a token is renewed 1.8 s before its end, busy machine or not.
    """
    made = itertools.count(1)
    async with async_playwright() as playwright:
        program = find_chromium()
        browser = await playwright.chromium.launch(executable_path=program, args=FLAGS)
        page = await browser.new_page()
        await page.expose_function("freshToken", lambda: token("42", ttl=6.0, jti=next(made)))
        await page.add_init_script("Math.random = () => 0")
        await page.goto(house.url)
        yield page
        await browser.close()


async def _connect(page: Page, topic: str, given: str | None) -> None:
    await page.evaluate(CONNECT, {"topic": topic, "given": given})


async def _log(page: Page, name: str, condition: str) -> Any:
    await page.wait_for_function(f"() => {{ const {name} = log.{name}; return {condition}; }}")
    return await page.evaluate(f"log.{name}")


async def test_a_page_with_a_token_reads_what_is_its_users(box: Box, page: Page) -> None:
    await _connect(page, "user.42", token("42"))
    (login,) = await _log(page, "logins", "logins.length")
    assert login["user"] == "42"
    await page.wait_for_function("fabric.state.state === 'open'")
    # The topic is subscribed when a later verb is answered.
    await page.evaluate("fabric.history('user.42')")
    box.publish("user.42", {"n": 1})
    assert await _log(page, "got", "got.length") == [{"n": 1}]
    assert await page.evaluate("[log.errors, log.refused]") == [[], []]


async def test_a_token_is_renewed_on_the_same_connection(box: Box, page: Page) -> None:
    await _connect(page, "user.42", "fresh")
    await _log(page, "logins", "logins.length >= 2")
    assert await page.evaluate("log.states.lastIndexOf('connecting') < log.states.indexOf('open')")
    box.publish("user.42", {"n": 1})
    assert await _log(page, "got", "got.length") == [{"n": 1}]
    assert await page.evaluate("log.errors") == []


async def test_a_token_that_runs_out_costs_the_login_and_not_the_news(box: Box, page: Page) -> None:
    await _connect(page, "news.world", token("42", ttl=2.0))
    await _log(page, "errors", "errors.length")
    await page.wait_for_function("fabric.state.state === 'open' && fabric.state.user === null")
    await page.evaluate("fabric.history('news.world')")
    box.publish("news.world", {"n": 1})
    assert await _log(page, "got", "got.length") == [{"n": 1}]


async def test_a_page_logs_in_later_and_then_gets_its_topic(box: Box, page: Page) -> None:
    await _connect(page, "user.42", None)
    assert await _log(page, "refused", "refused.length") == [101]
    refused = "fabric.login(given).catch(({name, code}) => [name, code])"
    assert await page.evaluate(f"(given) => {refused}", "no token") == ["FabricError", 101]
    login = await page.evaluate("(given) => fabric.login(given)", token("42", exp=4_000_000_000))
    assert login["user"] == "42"
    await page.evaluate("fabric.history('user.42')")
    box.publish("user.42", {"n": 1})
    assert await _log(page, "got", "got.length") == [{"n": 1}]
    # Another user may log in, on a new connection: the first topic isn't this user's.
    await page.evaluate("void fabric.on('logout', (logout) => { window.out = logout; })")
    login = await page.evaluate("(given) => fabric.login(given)", token("7"))
    assert (login["user"], await page.evaluate("fabric.state.user")) == ("7", "7")
    await page.wait_for_function("window.out && out.user === '42'")
    assert (await _log(page, "refused", "refused.length > 1"))[1:] == [103]
