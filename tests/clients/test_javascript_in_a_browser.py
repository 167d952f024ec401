"""clients/js in a real browser, on real gateways: they break under it, tabs share, a device sleeps.

Two regions with two gateways each run in this process, on stub brokers; readers connect through
wires that can be cut. The same in a whole world: tests/e2e/test_the_javascript_client.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
from gateways import Box, opened_box
from pages import ReadingPage, browsing
from playwright.async_api import Browser, BrowserContext, Page
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler
from wires import Wire

from gateway.wire.protocol import ReaderLimits
from newsfabric.store.memory import MemoryStore
from newsfabric.topics import TopicPolicy, TopicTable

logger = logging.getLogger(__name__)
pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

STATIC: Final = Path(__file__).parents[2] / "newsfabric" / "static"
TOPIC: Final = "news.world"
TABLE: Final = TopicTable([TopicPolicy(pattern="news.*", topic_class="gold", keep=1000)])
# From the break until the page has the next message: 3 s and 8 s are promised, and measured by
# `bench failover`. Here the machine may be busy.
SOON: Final = 60.0


class _Site(RequestHandler):
    """A frontdesk, as far as pages need it."""

    def initialize(self, region: BrowserRegion) -> None:
        self._region = region

    def get(self, path: str) -> None:
        self.set_header("Access-Control-Allow-Origin", "*")
        if path == "endpoints.json" and self._region.is_closed:
            self.send_error(404)
        elif path == "endpoints.json":
            self.finish(self._region.endpoints())
        elif path == "static/newsfabric.js":
            self.set_header("Content-Type", "text/javascript")
            self.finish((STATIC / "newsfabric.js").read_bytes())
        else:
            self.finish("<!doctype html><title>try</title>")


@dataclasses.dataclass
class BrowserRegion:
    """The boxes of a region, and the wires to them and to its site."""

    name: str
    boxes: list[Box] = dataclasses.field(default_factory=list)
    exits: list[contextlib.AsyncExitStack] = dataclasses.field(default_factory=list)
    wires: list[Wire] = dataclasses.field(default_factory=list)
    site: Wire | None = None
    others: list[BrowserRegion] = dataclasses.field(default_factory=list)
    is_closed: bool = False

    @property
    def url(self) -> str:
        assert self.site is not None
        return f"http://127.0.0.1:{self.site.port}"

    def endpoints(self) -> dict[str, Any]:
        return {
            "region": self.name,
            "gateways": [
                {
                    "websocket_url": f"ws://127.0.0.1:{wire.port}/websocket",
                    "sockjs_url": f"http://127.0.0.1:{wire.port}/sockjs",
                    "weight": 1,
                }
                for wire in self.wires
            ],
            "alternates": [
                {"region": other.name, "endpoints_url": f"{other.url}/endpoints.json"}
                for other in self.others
            ],
            "ttl": 5,
            "retry_ms": 100,
        }

    def wire_of(self, url: str) -> Wire:
        """Return the wire of a gateway's ``url``."""
        return next(wire for wire in self.wires if f":{wire.port}/" in url)


@dataclasses.dataclass
class TwoRegionFabric:
    """Two regions, and a publisher whose messages reach the store and all gateways.

    Region ``away`` lists no gateways until a test opens it: which region is faster is chance.
    """

    home: BrowserRegion
    away: BrowserRegion
    store: MemoryStore
    router: Box
    published: int = 0

    async def publish(self) -> None:
        # All numbers are one router's, whichever boxes are left.
        made = self.router.envelope(TOPIC, {"n": self.published})
        await self.store.write([made])
        for box in [*self.home.boxes, *self.away.boxes]:
            box.send_envelope(made)
        self.published += 1

    @contextlib.asynccontextmanager
    async def publishing(self) -> AsyncIterator[None]:
        """Publish ten messages a second meanwhile."""

        async def go_on() -> None:
            while True:
                await self.publish()
                await asyncio.sleep(0.1)

        task = asyncio.create_task(go_on())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest_asyncio.fixture(loop_scope="module")
async def fabric(request: pytest.FixtureRequest) -> AsyncIterator[TwoRegionFabric]:
    """Yield two regions; a parameter replaces the gateways' limits of a reader."""
    reader: ReaderLimits = getattr(request, "param", ReaderLimits())
    home, away = BrowserRegion("oregon"), BrowserRegion("dublin", is_closed=True)
    home.others, away.others = [away], [home]
    store = MemoryStore(TABLE)
    async with contextlib.AsyncExitStack() as stack:
        for region in (home, away):
            for _ in range(2):
                exits = await stack.enter_async_context(contextlib.AsyncExitStack())
                opening = opened_box(store=store, table=TABLE, reader=reader)
                box = await exits.enter_async_context(opening)
                region.exits.append(exits)
                region.boxes.append(box)
                region.wires.append(await Wire(int(box.host.rpartition(":")[2])).open())
            server = HTTPServer(Application([(r"/(.*)", _Site, {"region": region})]))
            (listening,) = bind_sockets(0, "127.0.0.1")
            server.add_sockets([listening])
            stack.push_async_callback(server.close_all_connections)
            stack.callback(server.stop)
            region.site = await Wire(listening.getsockname()[1]).open()
        for wire in [*home.wires, *away.wires, home.site, away.site]:
            assert wire is not None
            stack.push_async_callback(wire.close)
        yield TwoRegionFabric(home, away, store, home.boxes[0])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with browsing() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="module")
async def context(browser: Browser) -> AsyncIterator[BrowserContext]:
    context = await browser.new_context()
    yield context
    await context.close()


async def opened(context: BrowserContext, fabric: TwoRegionFabric, **options: Any) -> ReadingPage:
    return await ReadingPage.opened(context, fabric.home.url, TOPIC, **options)


@pytest.mark.parametrize("how", ["killed", "cut"])
async def test_a_gateway_goes_under_the_page(
    fabric: TwoRegionFabric, context: BrowserContext, how: str
) -> None:
    reading = await opened(context, fabric)
    wire = fabric.home.wire_of(await reading.state("gateway"))
    async with fabric.publishing():
        await reading.has(5)
        (wire.kill if how == "killed" else wire.cut)()
        seconds = await reading.back_after(time.time() * 1000)
    logger.info("failover, gateway %s: %.2f s", how, seconds)
    await reading.has_exactly(fabric.published)
    assert seconds <= SOON
    assert await reading.state("region") == "oregon"


@pytest.mark.parametrize(
    ("how", "options"),
    [
        ("killed", {}),
        ("cut", {}),
        ("cut", {"transports": ["xhr-streaming"]}),
    ],
    ids=["killed", "cut", "cut, without WebSocket"],
)
async def test_a_region_goes_under_the_page(
    fabric: TwoRegionFabric, context: BrowserContext, how: str, options: dict[str, Any]
) -> None:
    reading = await opened(context, fabric, **options)
    fabric.away.is_closed = False
    async with fabric.publishing():
        await reading.has(5)
        for wire in [*fabric.home.wires, fabric.home.site]:
            assert wire is not None
            (wire.kill if how == "killed" else wire.cut)()
        seconds = await reading.back_after(time.time() * 1000)
    logger.info("failover, region %s: %.2f s", how, seconds)
    await reading.has_exactly(fabric.published)
    assert seconds <= SOON
    assert await reading.state("region") == "dublin"


async def test_tabs_share_one_connection_and_hand_it_on(
    fabric: TwoRegionFabric, context: BrowserContext
) -> None:
    sockets: list[str] = []
    context.on("page", lambda page: page.on("websocket", lambda ws: sockets.append(ws.url)))
    tabs = [await opened(context, fabric) for _ in range(3)]
    assert len(sockets) == 1
    assert [await tab.state("tab") for tab in tabs] == ["leader", "follower", "follower"]
    async with fabric.publishing():
        for tab in tabs:
            await tab.has(5)
        await tabs.pop(0).page.close()
        await tabs[0].until("fabric.state.tab === 'leader' && fabric.state.state === 'open'")
        await tabs[1].has(fabric.published + 5)
    for tab in tabs:
        await tab.has_exactly(fabric.published)
    assert len(sockets) == 2


async def test_a_tab_that_comes_late_gets_what_it_asks_for_and_nobody_else_does(
    fabric: TwoRegionFabric, context: BrowserContext
) -> None:
    for _ in range(5):
        await fabric.publish()
    first = await opened(context, fabric)
    await fabric.publish()
    await first.has(1)
    second = await opened(context, fabric, rewind=3)
    await second.has(3)
    await fabric.publish()
    await second.has(4)
    await first.has(2)
    assert await first.numbers() == [5, 6]
    assert await second.numbers() == [3, 4, 5, 6]


async def test_tabs_that_do_not_share_have_one_connection_each(
    fabric: TwoRegionFabric, context: BrowserContext
) -> None:
    tabs = [await opened(context, fabric, share=False) for _ in range(2)]
    assert [await tab.state("tab") for tab in tabs] == ["alone", "alone"]
    await fabric.publish()
    for tab in tabs:
        await tab.has_exactly(1)


async def test_a_sandboxed_frame_has_a_connection_of_its_own(
    fabric: TwoRegionFabric, context: BrowserContext
) -> None:
    page = await context.new_page()
    await page.goto(fabric.home.url)
    await page.evaluate(
        """() => {
          const frame = document.createElement("iframe");
          frame.sandbox = "allow-scripts";
          frame.srcdoc = `<script src="${location.origin}/static/newsfabric.js"></script>`;
          document.body.append(frame);
        }"""
    )
    frame = await (await page.wait_for_selector("iframe")).content_frame()
    assert frame is not None
    await frame.wait_for_function("self.newsfabric")
    await frame.evaluate(
        "(endpoints) => { self.fabric = newsfabric.connect({endpoints}); }",
        f"{fabric.home.url}/endpoints.json",
    )
    await frame.wait_for_function("fabric.state.state === 'open' && fabric.state.tab === 'alone'")


async def test_a_leader_that_stands_still_is_replaced(
    fabric: TwoRegionFabric, context: BrowserContext
) -> None:
    """As when the browser has frozen it, or it computes for a minute."""
    leader = await opened(context, fabric)
    follower = await opened(context, fabric)
    devtools = await context.new_cdp_session(leader.page)
    await devtools.send("Debugger.enable")
    await devtools.send("Debugger.pause")
    async with fabric.publishing():
        await follower.until("fabric.state.tab === 'leader' && log.got.length > 10", 30)
        await devtools.send("Debugger.disable")
        await leader.until("fabric.state.tab === 'follower'", 30)
    for tab in (leader, follower):
        await tab.has_exactly(fabric.published)


async def test_a_page_that_was_offline_is_back_as_soon_as_the_network_is(
    fabric: TwoRegionFabric, context: BrowserContext
) -> None:
    # The longest of the possible pauses.
    await context.add_init_script("Math.random = () => 0.999")
    reading = await opened(context, fabric)
    await fabric.publish()
    await reading.has(1)
    await context.set_offline(True)
    fabric.home.wire_of(await reading.state("gateway")).kill()
    # Its pauses have grown beyond the bound below.
    await reading.until("fabric.state.wait > 7900", 100)
    await fabric.publish()
    await context.set_offline(False)
    await reading.until("fabric.state.state === 'open'", 6)
    await reading.has_exactly(2)


async def test_a_quiet_page_asks_in_the_words_that_are_answered_soonest(
    fabric: TwoRegionFabric, context: BrowserContext
) -> None:
    """Gateways answer a verb at once that equals this one byte for byte."""
    asked = asyncio.Event()

    def note(text: str | bytes) -> None:
        if text == '{"action":"ping"}':
            asked.set()

    def watch(page: Page) -> None:
        page.on("websocket", lambda socket: socket.on("framesent", note))

    context.on("page", watch)
    reading = await opened(context, fabric, heartbeat={"visible": 200})
    await asyncio.wait_for(asked.wait(), 30)
    assert await reading.state("state") == "open"


_PAIRS = """
async () => {
  for (let n = 0; n < 300; n += 1) {
    const { unsubscribe } = fabric.subscribe(`news.pair${n}`, {
      onError: ({ code }) => log.refused.push(code),
    });
    await new Promise((resolve) => setTimeout(resolve));
    unsubscribe();
    await new Promise((resolve) => setTimeout(resolve));
  }
}
"""
_TOPICS = """
() => {
  log.followed = 0;
  for (let n = 0; n < 600; n += 1) {
    fabric.subscribe(`news.list${n}`, {
      onSubscribed: () => { log.followed += 1; },
      onError: ({ code }) => log.refused.push(code),
    });
  }
}
"""


# Four times as many verbs a second as usual: the page waits for the rest of 600.
@pytest.mark.parametrize(
    "fabric", [ReaderLimits(verbs_per_second=40.0)], indirect=True, ids=[pytest.HIDDEN_PARAM]
)
async def test_a_page_that_follows_and_leaves_300_topics_and_then_wants_600_stays_connected(
    fabric: TwoRegionFabric, context: BrowserContext
) -> None:
    answers: list[dict[str, Any]] = []

    def watch(page: Page) -> None:
        page.on(
            "websocket",
            lambda ws: ws.on("framereceived", lambda text: answers.append(json.loads(text))),
        )

    context.on("page", watch)
    reading = await opened(context, fabric)
    async with fabric.publishing():
        await reading.page.evaluate(_PAIRS)
        await reading.page.evaluate(_TOPICS)
        # One of the 128 topics is the page's first.
        await reading.until("log.followed === 127 && log.refused.length === 473")
    assert await reading.page.evaluate("[...new Set(log.refused)]") == [106]
    assert (
        await reading.page.evaluate("log.states.filter(({state}) => state === 'open').length") == 1
    )
    await reading.until(f"log.got.length === {fabric.published}")
    limits = [
        answer["limits"] for answer in answers if answer["type"] == "pong" and "limits" in answer
    ]
    assert limits == [{"topics": 128, "verbs": 256, "verbs_per_second": 40}]
    assert [answer for answer in answers if answer["type"] == "error"] == []


async def test_a_page_that_is_blocked_while_a_pong_waits_keeps_its_connection(
    fabric: TwoRegionFabric, context: BrowserContext
) -> None:
    """After each ping the page computes for longer than it would wait for the pong."""
    reading = await opened(context, fabric, heartbeat={"visible": 200})
    await reading.page.evaluate(
        """() => {
          log.states = [];
          log.pings = 0;
          fabric.on("state", ({state}) => log.states.push(state));
          const send = WebSocket.prototype.send;
          WebSocket.prototype.send = function (text) {
            send.call(this, text);
            if (text !== '{"action":"ping"}' || log.pings === 2) return;
            log.pings += 1;
            for (const end = performance.now() + 4000; performance.now() < end;);
          };
        }"""
    )
    await reading.until("log.pings === 2", 60)
    await fabric.publish()
    await reading.has_exactly(1)
    assert await reading.page.evaluate("log.states") == []


async def test_where_something_forbids_websocket_the_page_reads_over_http(
    fabric: TwoRegionFabric, context: BrowserContext
) -> None:
    await context.add_init_script(
        """window.WebSocket = class {
          constructor() { setTimeout(() => this.onclose({code: 1006, reason: ""}), 10); }
          close() {}
        };"""
    )
    reading = await opened(context, fabric)
    assert await reading.state("transport") == "xhr-streaming"
    async with fabric.publishing():
        await reading.has(5)
    await reading.has_exactly(fabric.published)


async def test_a_gateway_that_drains_sends_the_page_to_another(
    fabric: TwoRegionFabric, context: BrowserContext
) -> None:
    reading = await opened(context, fabric)
    wire = fabric.home.wire_of(await reading.state("gateway"))
    number = fabric.home.wires.index(wire)
    async with fabric.publishing():
        await reading.has(5)
        del fabric.home.boxes[number]
        drained = time.time() * 1000
        await fabric.home.exits[number].aclose()
        await reading.back_after(drained)
    await reading.has_exactly(fabric.published)
    assert wire is not fabric.home.wire_of(await reading.state("gateway"))
    reasons = await reading.page.evaluate("log.states.map(({reason}) => reason)")
    assert "this box is being drained" in reasons


async def test_a_page_that_closes_its_connection_hears_no_more(
    fabric: TwoRegionFabric, context: BrowserContext
) -> None:
    reading = await opened(context, fabric)
    await fabric.publish()
    await reading.has(1)
    await reading.page.evaluate("fabric.close()")
    assert await reading.state("state") == "stopped"
    await fabric.publish()
    other = await opened(context, fabric, rewind=2)
    await other.has(2)
    assert await reading.numbers() == [0]
