"""A real browser on both regions' pages shows the messages of an AMQP publisher.

A page reads from the region that answers fastest, which on a busy machine is a matter of chance:
here each finds only its own region.
"""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator

import pytest
from chromium import launched
from playwright.sync_api import Browser, Page, expect
from worlds import ROOT, World

pytestmark = [pytest.mark.world, pytest.mark.browser, pytest.mark.timeout(420)]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as browser:
        yield browser


def _open(browser: Browser, world: World, name: str, *, websocket: bool) -> Page:
    """Open the page of region ``name``, which can't ask the other regions for their gateways."""
    page = browser.new_page()
    region = world.region(name)
    for other in world.status()["regions"]:
        if other["name"] != name:
            page.route(other["endpoints_url"], lambda route: route.abort())
    if not websocket:
        # The effect of a hostile proxy on a browser.
        page.add_init_script("delete window.WebSocket")
    page.goto(region["frontdesk_url"])
    expect(page.get_by_test_id("state")).to_contain_text("live", ignore_case=True)
    expect(page.get_by_test_id("region")).to_contain_text(name, ignore_case=True)
    return page


def _publish(world: World, topic: str, headline: str) -> None:
    script = [sys.executable, str(ROOT / "examples" / "publish.py"), world.amqp_url("oregon")]
    subprocess.run([*script, topic, f'{{"headline": "{headline}"}}'], check=True, timeout=30)


@pytest.mark.parametrize("websocket", [True, False], ids=["websocket", "without-websocket"])
def test_a_headline_appears_in_both_regions(
    world: World, browser: Browser, websocket: bool
) -> None:
    pages = [
        _open(browser, world, region["name"], websocket=websocket)
        for region in world.status()["regions"]
    ]
    headline = f"Seen in a browser {uuid.uuid4()}"
    _publish(world, "news.breaking", headline)
    for page in pages:
        story = page.get_by_test_id("story").filter(has_text=headline)
        expect(story).to_have_count(1)
        transport = page.get_by_test_id("transport").inner_text().lower()
        assert ("websocket" in transport) is websocket
        page.close()


def test_a_new_version_replaces_the_old_one_in_place(world: World, browser: Browser) -> None:
    page = _open(browser, world, "dublin", websocket=True)
    key = f"story-{uuid.uuid4()}"
    stories = page.locator(f'[data-testid="story"][data-key="{key}"]')
    for version in (1, 2):
        headline = f'{{"headline": "version {version}"}}'
        world.run("publish", "news.world", headline, "--key", key, "--version", str(version))
        expect(stories).to_contain_text(f"version {version}")
    expect(stories).to_have_count(1)
    page.close()
