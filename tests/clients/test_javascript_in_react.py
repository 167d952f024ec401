"""newsfabric/react in React 19 and Chromium, at a real gateway."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
from chromium import FLAGS, find_chromium
from gateways import Box, opened_box
from playwright.async_api import Page, async_playwright, expect
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

from newsfabric.topics import TopicPolicy, TopicTable

pytestmark = pytest.mark.browser

CLIENT: Final = Path(__file__).parents[2] / "clients" / "js"
TABLE: Final = TopicTable([TopicPolicy(pattern="news.*", keep=10)])


@pytest.fixture(scope="module")
def script() -> str:
    """Return React, our hooks and a page of components, as one script."""
    if shutil.which("node") is None or not (CLIENT / "node_modules" / "react-dom").is_dir():
        if os.environ.get("CI"):
            pytest.fail("CI must have node and React: `make setup` installs them")
        pytest.skip("React is not installed")
    made = subprocess.run(
        ["node", "test/react-page.mjs"],
        cwd=CLIENT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return made.stdout


class ReactSite(RequestHandler):
    """An empty page, and an endpoints.json that names the box."""

    def initialize(self, box: Box) -> None:
        self._box = box

    def get(self, path: str) -> None:
        if path != "endpoints.json":
            self.finish("<!doctype html><html><body></body></html>")
            return
        url = f"ws://127.0.0.1:{self._box.gateway.port}/websocket"
        gateways = [{"websocket_url": url, "weight": 1.0}]
        self.finish({"region": "here", "gateways": gateways, "alternates": []})


@pytest.fixture
async def box() -> AsyncIterator[Box]:
    async with opened_box("tornado", table=TABLE) as box:
        yield box


@pytest.fixture
async def page(box: Box, script: str) -> AsyncIterator[Page]:
    sockets = bind_sockets(0, "127.0.0.1")
    server = HTTPServer(Application([(r"/(.*)", ReactSite, {"box": box})]))
    server.add_sockets(sockets)
    async with async_playwright() as playwright:
        program = find_chromium()
        browser = await playwright.chromium.launch(executable_path=program, args=FLAGS)
        page = await browser.new_page()
        await page.goto(f"http://127.0.0.1:{sockets[0].getsockname()[1]}/")
        await page.add_script_tag(content=script)
        yield page
        await browser.close()
    server.stop()


async def test_a_component_follows_its_topic_and_no_other(box: Box, page: Page) -> None:
    news = page.locator("#news")
    await expect(page.locator("#state")).to_have_text("open")
    await expect(news).to_have_text("news.world true ")
    for n in range(4):
        box.publish("news.world", {"n": n})
    await expect(news).to_have_text("news.world true  3 2 1")
    await page.evaluate("choose('news.sport')")
    await expect(news).to_have_text("news.sport true ")
    box.publish("news.world", {"n": 4})
    box.publish("news.sport", {"n": 5})
    await expect(news).to_have_text("news.sport true  5")
    await page.evaluate("choose('weather')")
    await expect(news).to_have_text("weather false 102")
    await page.evaluate("choose(null)")
    await expect(news).to_have_count(0)
    # Strict mode runs each effect twice: a topic that is left at once is never subscribed.
    verbs = await page.evaluate(
        "sentVerbs.filter(({topic}) => topic).map(({action, topic}) => `${action} ${topic}`)"
    )
    assert verbs == [
        "subscribe news.world",
        "unsubscribe news.world",
        "subscribe news.sport",
        "unsubscribe news.sport",
        "subscribe weather",
    ]
