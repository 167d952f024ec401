"""The operations board in a real browser, on the frontdesks of a real world, while parts of it die.

The time until ``/board.json`` shows it is tested in test_the_board.py, all else of the page in
tests/wholesale/frontdesk/pages/test_board_in_a_browser.py.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest
from chromium import launched
from playwright.sync_api import Browser, Locator, Page, expect
from tailing import Tail
from worlds import World

pytestmark = [pytest.mark.world, pytest.mark.browser, pytest.mark.timeout(420)]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as browser:
        yield browser


def _open(browser: Browser, world: World, name: str) -> Page:
    """Open the board of region ``name``; return it once all is well on it."""
    page = browser.new_page()
    page.goto(f"{world.region(name)['frontdesk_url']}/board")
    expect(page.locator("#link")).to_contain_text("Live")
    expect(_headline(page)).to_have_text("All is well")
    return page


def _headline(page: Page) -> Locator:
    return page.get_by_role("heading", level=1)


def _region(page: Page, name: str) -> Locator:
    return page.get_by_role("region", name=name, exact=True)


def test_each_regions_board_shows_all_boxes_services_and_shovels(
    world: World, browser: Browser
) -> None:
    regions = world.status()["regions"]
    for shown in regions:
        page = _open(browser, world, shown["name"])
        for region in regions:
            part = _region(page, region["name"])
            expect(part.locator(".tile")).to_have_count(len(region["gateways"]))
            expect(part.locator(".tile").first).to_contain_text("ready")
            services = part.get_by_role("region", name="Services of").get_by_role("row")
            assert services.count() > 4
            expect(page.locator(f'.map-part[data-key="{region["name"]}/core"]')).to_have_count(1)
        shovels = page.locator(".shovel[data-kind]")
        assert shovels.count() >= sum(len(region["shovels"]) for region in regions)
        expect(page.locator('.shovel[data-state="stopped"]')).to_have_count(0)
        page.close()


def test_what_is_published_is_among_the_busiest_topics(world: World, browser: Browser) -> None:
    page = _open(browser, world, "oregon")
    for n in range(3):
        world.run("publish", "news.world", f'{{"headline": "{n}"}}', "--region", "oregon")
    topics = _region(page, "oregon").locator(".topics")
    expect(topics).to_contain_text("news.world")
    page.close()


def test_a_native_box_shows_its_readers_and_what_it_reports(world: World, browser: Browser) -> None:
    _require_native_engine(world)
    page = _open(browser, world, "oregon")
    box = _region(page, "oregon").get_by_role("button", name=re.compile("^retail-1 "))
    expect(box).to_contain_text(re.compile(r"native \d"))
    figure = box.locator(".tile-readers")
    expect(figure).to_have_text("0")
    tails = [Tail(world, "news.breaking", region="oregon") for _ in range(2)]
    expect(figure).to_have_text("2")
    # By key: a concern that appears or disappears above moves the tile away from a mouse.
    box.press("Enter")
    dialog = page.get_by_role("dialog", name="oregon-retail-1")
    expect(dialog.locator("#inspector-kind")).to_contain_text("native")
    expect(dialog.locator("#inspector-figures")).to_contain_text("gateway_readers")
    expect(dialog.locator("#inspector-shovels").get_by_role("row").first).to_be_visible()
    page.keyboard.press("Escape")
    world.run("publish", "news.breaking", '{"headline": "Read by two"}', "--region", "oregon")
    assert [len(tail.messages()) for tail in tails] == [1, 1]
    expect(figure).to_have_text("0")
    page.close()


def _require_native_engine(world: World) -> None:
    """Skip on a laptop where it isn't built; fail in CI."""
    (box,) = world.region("oregon")["gateways"]
    if box["engine"] != "native":
        missing = "the world's gateways don't run the native engine: `make dataplane` builds it"
        if os.environ.get("CI"):
            pytest.fail(f"CI must have it: {missing}")
        pytest.skip(missing)


def test_a_gateway_that_is_killed_is_shown_on_both_boards(world: World, browser: Browser) -> None:
    pages = [_open(browser, world, name) for name in ("oregon", "dublin")]
    dead = ("oregon-retail-1-gateway", "oregon-retail-1-dataplane")
    world.run("chaos", "kill", *dead)
    for page in pages:
        expect(_headline(page)).to_have_text("Trouble in oregon")
        chips = page.get_by_role("list", name="What needs a look")
        expect(chips).to_contain_text("oregon-retail-1")
        events = page.get_by_role("list", name="Events")
        expect(events).to_contain_text("oregon-retail-1 is not ready")
    world.mend()
    for page in pages:
        expect(_headline(page)).to_have_text("All is well")
        page.close()


def test_a_frontdesk_that_is_killed_is_lost_on_its_board_and_away_on_the_other(
    world: World, browser: Browser
) -> None:
    oregon, dublin = (_open(browser, world, name) for name in ("oregon", "dublin"))
    address = dublin.url
    world.run("chaos", "kill", "dublin-frontdesk-1")
    expect(dublin.locator("#lost")).to_contain_text("dublin-frontdesk-1 is lost")
    link = dublin.locator("#lost").get_by_role("link", name="oregon")
    expect(link).to_have_attribute("href", re.compile(re.escape(oregon.url)))
    expect(_headline(oregon)).to_have_text("dublin is away")
    expect(_region(oregon, "dublin")).to_contain_text("away since")
    world.mend()
    expect(dublin.locator("#link")).to_contain_text("Live")
    expect(_headline(oregon)).to_have_text("All is well")
    assert dublin.url == address
    oregon.close()
    dublin.close()
