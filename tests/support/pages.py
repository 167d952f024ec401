"""A page with clients/js in a real browser: its messages, and its recovery after a break."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

from chromium import FLAGS, find_chromium
from playwright.async_api import Browser, BrowserContext, Page, async_playwright

_FOLLOW = """
([topic, {rewind, ...options}]) => {
  const log = {got: [], states: [], gaps: 0, refused: []};
  const fabric = newsfabric.connect({endpoints: "/endpoints.json", ...options});
  fabric.on("state", (state) => log.states.push({...state, at: Date.now()}));
  fabric.subscribe(topic, {
    rewind,
    onMessage: ({body}) => log.got.push({n: body.n, at: Date.now()}),
    onSubscribed: () => { log.isServed = true; },
    onGap: () => { log.gaps += 1; },
    onError: (error) => log.refused.push(error.code),
  });
  Object.assign(window, {fabric, log});
}
"""
# The first message over the first connection after a break.
_BACK = """
(broken) => {
  const open = log.states.find(({state, at}) => state === "open" && at > broken);
  return open && log.got.find(({at}) => at >= open.at);
}
"""


@contextlib.asynccontextmanager
async def browsing(*flags: str) -> AsyncIterator[Browser]:
    """Start Chromium, and close it at the end; ``flags`` follow those it always has."""
    program = find_chromium()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=[*FLAGS, *flags])
        yield browser
        await browser.close()


@dataclasses.dataclass
class ReadingPage:
    """A page that follows one topic whose messages have the body ``{"n": …}``."""

    page: Page

    @classmethod
    async def opened(
        cls, context: BrowserContext, site: str, topic: str, *, path: str = "/", **options: Any
    ) -> ReadingPage:
        """Open a page of ``site`` (with /static/newsfabric.js); wait until a gateway serves it."""
        page = await context.new_page()
        # Chromium lets no document that a test makes up read from this machine.
        await page.goto(f"{site}{path}")
        await page.add_script_tag(url=f"{site}/static/newsfabric.js")
        await page.evaluate(_FOLLOW, [topic, options])
        reading = cls(page)
        await reading.until("log.isServed && fabric.state.state === 'open'", 30)
        return reading

    async def until(self, condition: str, seconds: float = 60) -> None:
        """Wait for a JavaScript expression; not by animation frames, which hidden tabs lack."""
        await self.page.wait_for_function(f"() => {condition}", polling=20, timeout=seconds * 1000)

    async def has(self, count: int) -> None:
        await self.until(f"log.got.length >= {count}")

    async def numbers(self) -> list[int]:
        found: list[int] = await self.page.evaluate("log.got.map(({n}) => n)")
        return found

    async def has_exactly(self, published: int) -> None:
        """Check that the page got all numbers below ``published`` once, with no gap or refusal."""
        await self.has(published)
        assert sorted(await self.numbers()) == list(range(published))
        assert await self.page.evaluate("[log.gaps, log.refused]") == [0, []]

    async def state(self, name: str) -> Any:
        return await self.page.evaluate(f"fabric.state.{name}")

    async def back_after(self, broken: float) -> float:
        """Return the seconds from ``broken`` (ms since the epoch) to the next message after it."""
        await self.until(f"({_BACK.strip()})({broken})", 30)
        at: float = await self.page.evaluate(f"({_BACK.strip()})({broken}).at")
        return (at - broken) / 1000
