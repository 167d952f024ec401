"""The operations board's page in a real browser, on a made-up frontdesk (board_frontdesk.py).

Every line on the page's console fails the test: an error there, or a breach of the
Content-Security-Policy that the frontdesk sends.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
from board_frontdesk import BoardFrontdesk
from playwright.async_api import Browser, Page, expect

_RULES: Final = "['wcag2a', 'wcag2aa', 'wcag21aa', 'wcag22aa', 'best-practice']"
# Lines that every browser writes to the console when it loses the frontdesk.
_UNREACHABLE: Final = re.compile(r"net::ERR_|status of 401|status of 403")


@contextlib.asynccontextmanager
async def board(
    browser: Browser, frontdesk: BoardFrontdesk, *, shown: bool = True, **options: Any
) -> AsyncIterator[Page]:
    """Open the page, by default waiting for live data; ``options`` are the browser context's."""
    context = await browser.new_context(**options)
    page = await context.new_page()
    seen: list[str] = []
    page.on("console", lambda message: seen.append(message.text))
    page.on("pageerror", lambda error: seen.append(str(error)))
    await page.goto(frontdesk.page_url)
    if shown:
        await expect(page.locator("#board")).to_be_visible()
        await expect(page.locator("#link")).to_contain_text("Live")
    yield page
    assert [line for line in seen if not _UNREACHABLE.search(line)] == []
    await context.close()


def tile(page: Page, name: str, region: str = "oregon") -> Any:
    """Return the tile of box ``name``, given without its region's name."""
    found = page.get_by_role("region", name=region, exact=True)
    return found.get_by_role("list", name="Boxes of").get_by_role(
        "button", name=re.compile(rf"^{name} ")
    )


async def axe_faults(page: Page) -> list[tuple[str, str]]:
    """Return axe-core's findings: rule and element. The page must be allowed to evaluate text."""
    await page.evaluate(f"{_axe()};0")
    # Of a rule that found no fault one element is listed: listing all takes a third of the time.
    options = f"{{runOnly: {_RULES}, resultTypes: ['violations']}}"
    found = await page.evaluate(f"axe.run(document, {options})")
    # A rule that found no element to check would find no fault either.
    assert len(found["passes"]) > 20
    return [(fault["id"], node["html"]) for fault in found["violations"] for node in fault["nodes"]]


def _axe() -> str:
    """Return the source of axe-core; without it, skip on a laptop and fail in CI."""
    file = Path(__file__).parents[2] / "clients" / "js" / "node_modules" / "axe-core" / "axe.min.js"
    if not file.exists():
        missing = "axe-core is not installed: scripts/setup javascript"
        if os.environ.get("CI"):
            pytest.fail(f"CI must have it: {missing}")
        pytest.skip(missing)
    return file.read_text("utf-8")
