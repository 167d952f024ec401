"""The operations board's page in a real browser, on a frontdesk that is made up (board_desk.py).

Whatever the page does, nothing may be said on its console: an error there, or a breach of the
policy that the frontdesk sends, fails the test.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
from board_desk import BoardDesk
from playwright.async_api import Browser, Page, expect

_RULES: Final = "['wcag2a', 'wcag2aa', 'wcag21aa', 'wcag22aa', 'best-practice']"
# What a lost frontdesk leaves on every browser's console, whoever asks.
_UNREACHABLE: Final = re.compile(r"net::ERR_|status of 401|status of 403")


@contextlib.asynccontextmanager
async def board(
    browser: Browser, desk: BoardDesk, *, shown: bool = True, **options: Any
) -> AsyncIterator[Page]:
    """The page, once it shows something; options are the browser's for it."""
    context = await browser.new_context(**options)
    page = await context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    await page.goto(desk.page_url)
    if shown:
        await expect(page.locator("#board")).to_be_visible()
        await expect(page.locator("#link")).to_contain_text("Live")
    yield page
    assert [line for line in said if not _UNREACHABLE.search(line)] == []
    await context.close()


def tile(page: Page, name: str, region: str = "oregon") -> Any:
    """The tile of box ``name``, without its region's name."""
    found = page.get_by_role("region", name=region, exact=True)
    return found.get_by_role("list", name="Boxes of").get_by_role(
        "button", name=re.compile(rf"^{name} ")
    )


async def axe_faults(page: Page) -> list[tuple[str, str]]:
    """What axe-core finds: its rule and the element. The page must have been let evaluate texts."""
    await page.evaluate(f"{_axe()};0")
    found = await page.evaluate(f"axe.run(document, {{runOnly: {_RULES}}})")
    # Rules that found nothing to look at would find no fault either.
    assert len(found["passes"]) > 20
    return [(fault["id"], node["html"]) for fault in found["violations"] for node in fault["nodes"]]


def _axe() -> str:
    """The source of axe-core; skips without it on a laptop, fails in CI."""
    file = Path(__file__).parents[2] / "clients" / "js" / "node_modules" / "axe-core" / "axe.min.js"
    if not file.exists():
        missing = "axe-core is not installed: scripts/setup javascript"
        if os.environ.get("CI"):
            pytest.fail(f"CI must have it: {missing}")
        pytest.skip(missing)
    return file.read_text("utf-8")
