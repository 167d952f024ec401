"""The program that makes docs/board-light.png, -dark.png and -phone.png.

The fabric in them is made up, and always the same. Chromium must be installed; with ``pngquant``,
the pictures shrink to a third of their size.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

from board_fabric import MadeUpFabric
from board_frontdesk import eventful, opened_frontdesk
from pages import browsing
from playwright.async_api import Browser

DOCS: Final = Path(__file__).parents[2] / "docs"
PICTURES: Final[dict[str, dict[str, Any]]] = {
    "board-light": {"color_scheme": "light", "viewport": {"width": 1440, "height": 1500}},
    "board-dark": {"color_scheme": "dark", "viewport": {"width": 1440, "height": 1500}},
    "board-phone": {
        "color_scheme": "light",
        "viewport": {"width": 390, "height": 1300},
        "device_scale_factor": 2,
        "is_mobile": True,
        "has_touch": True,
    },
}


async def main() -> None:
    fabric = MadeUpFabric(boxes=40)
    eventful(fabric)
    async with opened_frontdesk(fabric) as frontdesk, browsing() as browser:
        living = asyncio.create_task(frontdesk.live())
        for name, options in PICTURES.items():
            await _take(browser, frontdesk.page_url, DOCS / f"{name}.png", options)
        living.cancel()


async def _take(browser: Browser, url: str, file: Path, options: dict[str, Any]) -> None:
    context = await browser.new_context(timezone_id="Europe/Dublin", **options)
    page = await context.new_page()
    await page.goto(url)
    await page.locator("#plots").scroll_into_view_if_needed()
    await page.wait_for_selector(".plot:nth-child(8) canvas")
    await page.evaluate("scrollTo(0, 0)")
    await page.screenshot(path=file)
    await context.close()


def _shrink(file: Path) -> None:
    if shutil.which("pngquant"):
        words = ["--force", "--skip-if-larger", "--speed", "1", "--output", str(file), str(file)]
        subprocess.run(["pngquant", *words], check=False)


if __name__ == "__main__":
    asyncio.run(main())
    for picture in PICTURES:
        _shrink(DOCS / f"{picture}.png")
