"""The operations board in Chromium: its first paint, its frames, and the bytes of its updates.

The frontdesk is simulated (tests/support/board_frontdesk.py) and so is its fabric: two regions of
40 boxes, some of them in trouble, with an update each second. Other parts measure the cost of the
replies of a real frontdesk.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from playwright.async_api import Browser, Page, async_playwright

from bench.rows import BenchRow
from newsfabric.errors import SetupError

REGIONS: Final = 2
BOXES: Final = 40
LOADS: Final = 7
SECONDS: Final = 20
UPDATES: Final = 5
PAINT_MS: Final = 300
BYTES_PER_BOX: Final = 2048
# Two frames of a screen that shows sixty a second: an eye sees no shorter delay.
FRAME_MS: Final = 34
_FRONTDESK: Final = Path(__file__).parents[1] / "tests" / "support" / "board_frontdesk.py"
_FLAGS: Final = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
_SIZE: Final[Any] = {"width": 1440, "height": 1000}
_WITHIN: Final = 20_000
_PAINTED: Final = """
() => [
  performance.getEntriesByName("first-contentful-paint")[0].startTime,
  performance.getEntriesByName("board-shown")[0].startTime,
]
"""
#: An expression for ``Page.evaluate``, with seconds: the length of each frame, ms.
FRAMES: Final = """
(seconds) => new Promise((done) => {
  const found = [];
  let last = performance.now();
  const end = last + seconds * 1000;
  const frame = (now) => {
    found.push(now - last);
    last = now;
    if (now < end) requestAnimationFrame(frame);
    else done(found.slice(1));
  };
  requestAnimationFrame(frame);
})
"""
_BYTES: Final = """
async (updates) => {
  const reader = (await fetch("/board/stream")).body.getReader();
  let [bytes, seen] = [0, 0];
  while (seen < updates) {
    const {value} = await reader.read();
    bytes += value.length;
    // An update ends with an empty line, and nothing else in it does.
    for (let n = 1; n < value.length; n += 1) if (value[n] === 10 && value[n - 1] === 10) seen += 1;
  }
  await reader.cancel();
  return bytes / seen;
}
"""


def measure() -> list[BenchRow]:
    """Return the rows; SetupError without Chromium."""
    chromium = shutil.which("chromium")
    if chromium is None:
        raise SetupError("Chromium is not installed: `make setup` installs it")
    with _running_frontdesk() as url:
        return asyncio.run(_measure_page(url, chromium))


@contextlib.contextmanager
def _running_frontdesk() -> Iterator[str]:
    words = ["--regions", str(REGIONS), "--boxes", str(BOXES), "--eventful"]
    command = [sys.executable, str(_FRONTDESK), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as frontdesk:
        try:
            assert frontdesk.stdout is not None
            yield frontdesk.stdout.readline().strip()
        finally:
            frontdesk.terminate()


async def _measure_page(url: str, chromium: str) -> list[BenchRow]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=_FLAGS)
        painted, shown = zip(*[await _load(browser, url) for _ in range(LOADS)], strict=True)
        page = await browser.new_page(viewport=_SIZE)
        await _open(page, url)
        # By then the page has finished the work that it does only once.
        await page.locator("#plots").scroll_into_view_if_needed()
        await page.wait_for_selector(".plot:nth-child(8) canvas", timeout=_WITHIN)
        frames = sorted(await page.evaluate(FRAMES, SECONDS))
        size = await page.evaluate(_BYTES, UPDATES)
        await browser.close()
    return _rows(list(painted), list(shown), frames, size)


async def _load(browser: Browser, url: str) -> tuple[float, float]:
    """Return the times of the first paint and of the first with the fabric, in ms, uncached."""
    context = await browser.new_context(viewport=_SIZE)
    page = await context.new_page()
    await _open(page, url)
    painted, shown = await page.evaluate(_PAINTED)
    await context.close()
    return painted, shown


async def _open(page: Page, url: str) -> None:
    await page.goto(url)
    await page.wait_for_selector("#board:not([hidden])", timeout=_WITHIN)


def _rows(
    painted: list[float], shown: list[float], frames: list[float], size: float
) -> list[BenchRow]:
    return [
        BenchRow(
            f"first paint, median of {LOADS} loads",
            statistics.median(painted),
            "ms",
            digits=0,
            at_most=PAINT_MS,
        ),
        BenchRow(
            f"… with {REGIONS} regions of {BOXES} boxes in it",
            statistics.median(shown),
            "ms",
            digits=0,
        ),
        BenchRow(f"frames in {SECONDS} s of updates, p50", statistics.median(frames), "ms"),
        BenchRow("… p99", frames[int(len(frames) * 0.99)], "ms", at_most=FRAME_MS),
        BenchRow("… the longest", frames[-1], "ms"),
        BenchRow(
            "an update for each box",
            size / (REGIONS * BOXES),
            "bytes",
            digits=0,
            at_most=BYTES_PER_BOX,
        ),
    ]
