"""A page with clients/js in Chromium: the time until it has news again after a failure.

The page's gateway or region fails. Messages are published in the region that stays, ten a second. A
reader notices the time from the break to the first message over the next connection, within 0.1 s.
"Killed" ends connections; "cut" is silence: stopped processes neither refuse nor reply, like a dead
wire. Each break starts with a whole world and a page that has just been opened.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import shutil
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

from playwright.async_api import BrowserContext, Page, async_playwright

from bench.rows import BenchRow
from bench.world import running_world
from localfabric.world.faults import Faults, Signal
from localfabric.world.layout import RegionLayout, WorldLayout
from localfabric.world.parts import WorldPart, dataplane_name, find_parts
from localfabric.world.state import read_running
from newsfabric.errors import Disconnected, SetupError
from newsfabric.publish import AsyncPublisher
from newsfabric.reader import fetch_endpoints

TOPIC: Final = "news.bench-failover"
GATEWAY_SECONDS: Final = 3.0
REGION_SECONDS: Final = 8.0
_PAUSE: Final = 0.1
_WITHIN: Final = 60.0
_FLAGS: Final = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
_FOLLOW: Final = """
([topic, transports]) => {
  const log = {got: [], opened: []};
  const fabric = newsfabric.connect({endpoints: "/endpoints.json", transports});
  fabric.on("state", ({state}) => { if (state === "open") log.opened.push(Date.now()); });
  fabric.subscribe(topic, {onMessage: () => log.got.push(Date.now())});
  Object.assign(window, {fabric, log});
}
"""
_BACK: Final = """
(broken) => {
  const opened = log.opened.find((at) => at > broken);
  return opened && log.got.find((at) => at >= opened);
}
"""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """A failure of a page's gateway or whole region, and the ``limit`` of its recovery in s."""

    name: str
    verb: Signal
    region: bool
    limit: float
    # The only transport that pages may use; None: any.
    transport: str | None = None


BREAKS: Final = (
    Break(name="its gateway is killed", verb="kill", region=False, limit=GATEWAY_SECONDS),
    Break(name="its region is killed", verb="kill", region=True, limit=REGION_SECONDS),
    Break(name="its region is cut", verb="stop", region=True, limit=REGION_SECONDS),
    Break(
        name="its region is cut, without WebSocket",
        verb="stop",
        region=True,
        limit=REGION_SECONDS,
        transport="xhr-streaming",
    ),
)


def measure() -> list[BenchRow]:
    """Return a row for each break; SetupError without RabbitMQ or Chromium."""
    chromium = shutil.which("chromium")
    if chromium is None:
        raise SetupError("Chromium is not installed: `make setup` installs it")
    with running_world("--retail", "2") as (status, _):
        layout, _ = read_running(Path(status["state"]))
        return asyncio.run(break_each(layout, chromium))


async def break_each(layout: WorldLayout, chromium: str) -> list[BenchRow]:
    """Return the rows. The first region breaks, the second stays."""
    breaks, stays = layout.regions[:2]
    rows = []
    async with async_playwright() as playwright, _published(stays):
        browser = await playwright.chromium.launch(executable_path=chromium, args=_FLAGS)
        for each in BREAKS:
            await _until_whole(breaks)
            seconds = await _break(layout, breaks, await browser.new_context(), each)
            rows.append(
                BenchRow(
                    f"{each.name}: until the page has the next message",
                    seconds,
                    "s",
                    digits=2,
                    at_most=each.limit,
                )
            )
        await browser.close()
    return rows


@contextlib.asynccontextmanager
async def _published(region: RegionLayout) -> AsyncIterator[None]:
    async def publish(publisher: AsyncPublisher) -> None:
        while True:
            await publisher.publish(TOPIC, {"at": time.time()})
            await asyncio.sleep(_PAUSE)

    urls = ",".join(broker.amqp_url for broker in region.client)
    async with await AsyncPublisher.open([urls], app_id="bench") as publisher:
        publishing = asyncio.create_task(publish(publisher))
        try:
            yield
        finally:
            publishing.cancel()
            await asyncio.gather(publishing, return_exceptions=True)


async def _until_whole(region: RegionLayout) -> None:
    """Return when every box of ``region`` is listed."""
    async with asyncio.timeout(_WITHIN):
        while True:
            with contextlib.suppress(Disconnected):
                found = await fetch_endpoints(region.endpoints_url)
                if len(found.gateways) == len(region.boxes):
                    return
            await asyncio.sleep(0.5)


async def _break(
    layout: WorldLayout, region: RegionLayout, context: BrowserContext, each: Break
) -> float:
    """Return the seconds from the break until the page has a message again; then heal the parts."""
    page = await _opened(context, region, each.transport)
    gateway: str = await page.evaluate("fabric.state.gateway")
    parts = _parts(layout, region, gateway, whole=each.region)
    faults = Faults(layout.paths.state)
    broken = time.time() * 1000
    await asyncio.to_thread(faults.apply, each.verb, parts)
    try:
        await page.wait_for_function(_BACK, arg=broken, polling=20, timeout=_WITHIN * 1000)
        back: float = await page.evaluate(_BACK, broken)
    finally:
        await asyncio.to_thread(faults.heal, parts)
        await context.close()
    return (back - broken) / 1000


async def _opened(context: BrowserContext, region: RegionLayout, transport: str | None) -> Page:
    """Return a page that receives messages from ``region``."""
    site = region.endpoints_url.removesuffix("/endpoints.json")
    page = await context.new_page()
    await page.goto(f"{site}/healthz/live")
    await page.add_script_tag(url=f"{site}/static/newsfabric.js")
    # An absent transport is left out of the arguments: null wouldn't select the default.
    await page.evaluate(_FOLLOW, [TOPIC, [transport]] if transport else [TOPIC])
    await page.wait_for_function("() => log.got.length > 2", timeout=_WITHIN * 1000)
    return page


def _parts(
    layout: WorldLayout, region: RegionLayout, gateway: str, *, whole: bool
) -> Sequence[WorldPart]:
    """Return the processes of the gateway at a URL, or all that readers of the region use."""
    boxes = [box for box in region.boxes if whole or gateway.startswith(box.websocket_url)]
    names = [name for box in boxes for name in (box.gateway, dataplane_name(box))]
    return find_parts(layout, [*names, region.named("frontdesk").name] if whole else names)
