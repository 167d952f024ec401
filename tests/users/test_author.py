"""An author of pages: React 19 and newsfabric/react of the packed npm archive, three tabs, a login.

All cases of each of these are in clients/js/test and tests/clients/test_javascript_*.py.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final
from urllib.request import Request, urlopen

import pytest
from packed import UsersWorld, missing, printed
from pages import browsing
from playwright.async_api import BrowserContext, Page, expect
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler
from worlds import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.world, pytest.mark.browser, pytest.mark.timeout(420)]

TOOLS: Final = ROOT / "clients" / "js" / "node_modules"
APP: Final = """
import { StrictMode, createElement as h, useState } from "react";
import { createRoot } from "react-dom/client";
import { connect } from "newsfabric";
import { useConnection, useTopic } from "newsfabric/react";

const fabric = connect({ endpoints: window.endpoints });
window.fabric = fabric;

function Topic({ id, topic }) {
  const { messages, isServed, error } = useTopic(fabric, topic);
  const came = messages.map(({ body }) => body.n);
  return h("p", { id }, [isServed, error?.code ?? "", ...came].join(" "));
}

function App() {
  const [mine, follow] = useState(null);
  window.follow = follow;
  return h("main", null,
    h("p", { id: "state" }, useConnection(fabric).state),
    h(Topic, { id: "news", topic: window.topic }),
    mine && h(Topic, { id: "mine", topic: mine }));
}

createRoot(document.querySelector("#app")).render(h(StrictMode, null, h(App)));
"""
BUNDLE: Final = """
require("esbuild").buildSync({
  entryPoints: ["app.mjs"], outfile: "app.js", bundle: true, format: "iife", target: "es2022",
  define: { "process.env.NODE_ENV": '"production"' },
});
"""
# Counts the tab's own open sockets; a connection of another tab isn't counted.
COUNTING: Final = """
window.sockets = new Set();
const Real = WebSocket;
window.WebSocket = class extends Real {
  constructor(...given) {
    super(...given);
    sockets.add(this);
    this.addEventListener("close", () => sockets.delete(this));
  }
};
"""


class AuthorSite(RequestHandler):
    """The author's page and its script."""

    def initialize(self, page: str, script: str) -> None:
        self._page, self._script = page, script

    def get(self, path: str) -> None:
        if path == "app.js":
            self.set_header("Content-Type", "text/javascript; charset=utf-8")
        self.finish(self._script if path == "app.js" else self._page)


@pytest.fixture(scope="module")
def script(unpacked: Path) -> str:
    """Return the author's app, bundled with the files that ``npm pack`` packs."""
    if shutil.which("npm") is None or not (TOOLS / "react-dom").is_dir():
        missing("npm, esbuild or React is missing: `make setup` installs them")
    project = unpacked.parent / "app"
    modules = project / "node_modules"
    modules.mkdir(parents=True)
    # A build would yield the files of the checkout (tests/clients/test_javascript.py).
    pack = ["npm", "pack", "--ignore-scripts", "--silent", "--pack-destination", str(project)]
    printed(pack, unpacked / "clients" / "js")
    (archive,) = project.glob("newsfabric-*.tgz")
    shutil.unpack_archive(archive, project, filter="data")
    (project / "package").rename(modules / "newsfabric")
    for name in ("esbuild", "@esbuild", "react", "react-dom", "scheduler"):
        (modules / name).symlink_to(TOOLS / name)
    (project / "app.mjs").write_text(APP, "utf-8")
    printed(["node", "-e", BUNDLE], project)
    return (project / "app.js").read_text("utf-8")


@pytest.fixture
def topic() -> str:
    return f"news.users-{uuid.uuid4()}"


@pytest.fixture
async def browser(used: UsersWorld, script: str, topic: str) -> AsyncIterator[BrowserContext]:
    """Yield a browser whose pages are on the author's site."""
    settings = {"endpoints": used.region("oregon")["endpoints_url"], "topic": topic}
    page = (
        f"<!doctype html><div id='app'></div><script>Object.assign(window, {json.dumps(settings)})"
        "</script><script src='/app.js'></script>"
    )
    sockets = bind_sockets(0, "127.0.0.1")
    server = HTTPServer(Application([(r"/(.*)", AuthorSite, {"page": page, "script": script})]))
    server.add_sockets(sockets)
    async with browsing() as chromium:
        url = f"http://127.0.0.1:{sockets[0].getsockname()[1]}"
        context = await chromium.new_context(base_url=url)
        await context.add_init_script(COUNTING)
        yield context
    server.stop()


async def opened(browser: BrowserContext) -> Page:
    """Open one more tab, which receives messages."""
    page = await browser.new_page()
    await page.goto("/")
    await expect(page.locator("#state")).to_have_text("open")
    await expect(page.locator("#news")).to_have_text("true ")
    return page


async def sockets(page: Page) -> int:
    """Return the number of connections that the tab has itself."""
    count: int = await page.evaluate("window.sockets.size")
    return count


def publish(used: UsersWorld, **message: Any) -> None:
    url = used.region("dublin")["frontdesk_url"] + "/publish"
    request = Request(url, json.dumps(message).encode(), {"Content-Type": "application/json"})
    with urlopen(request, timeout=60) as answer:
        assert answer.status == 201


async def test_three_tabs_have_one_connection_and_one_login(
    browser: BrowserContext, used: UsersWorld, topic: str
) -> None:
    tabs = [await opened(browser) for _ in range(3)]
    assert sorted([await sockets(tab) for tab in tabs]) == [0, 0, 1]
    publish(used, topic=topic, body={"n": 1})
    for tab in tabs:
        await expect(tab.locator("#news")).to_have_text("true  1")

    user = f"users-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    token = used.run("token", user)
    assert token.returncode == 0, token.stderr
    await tabs[0].evaluate("(token) => fabric.login(token)", token.stdout.strip())
    for tab in tabs:
        await tab.wait_for_function("(user) => fabric.state.user === user", arg=user)
        await tab.evaluate("(topic) => follow(topic)", f"user.{user}")
        await expect(tab.locator("#mine")).to_have_text("true ")

    # The tab with the most connections: one or two; all others have none.
    leader = tabs[max(range(len(tabs)), key=[await sockets(tab) for tab in tabs].__getitem__)]
    await leader.close()
    left = [tab for tab in tabs if tab is not leader]
    for tab in left:
        await expect(tab.locator("#state")).to_have_text("open")
    publish(used, topic=topic, body={"n": 2})
    publish(used, topic=f"user.{user}", body={"n": 3})
    for tab in left:
        await expect(tab.locator("#news")).to_have_text("true  2 1")
        await expect(tab.locator("#mine")).to_have_text("true  3")
    assert sorted([await sockets(tab) for tab in left]) == [0, 1]

    await left[0].evaluate("fabric.logout()")
    for tab in left:
        await tab.wait_for_function("() => !fabric.state.user")
        await expect(tab.locator("#mine")).to_contain_text("false 101")
    publish(used, topic=topic, body={"n": 4})
    for tab in left:
        await expect(tab.locator("#news")).to_have_text("true  4 2 1")
