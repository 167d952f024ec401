"""The operations board in a real browser, on a made-up frontdesk that a test controls.

Every line on the page's console fails the test: an error there, or a breach of the
Content-Security-Policy that the frontdesk sends.
"""

from __future__ import annotations

import collections
import re
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
import pytest_asyncio
from board_fabric import MadeUpFabric
from board_frontdesk import eventful, opened_frontdesk
from board_pages import axe_faults, board, tile
from pages import browsing
from playwright.async_api import Browser, Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

HOSTILE: Final = "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with browsing() as browser:
        yield browser


async def luminance(page: Page) -> int:
    """Return the brightness of the page's background: 0 is black, 255 white."""
    colour = await page.evaluate("getComputedStyle(document.body).backgroundColor")
    return max(int(part) for part in re.findall(r"\d+", colour)[:3])


async def test_it_shows_what_the_document_says(browser: Browser) -> None:
    async with opened_frontdesk() as frontdesk, board(browser, frontdesk) as page:
        box = frontdesk.fabric.board_document()["regions"][0]["boxes"][0]
        await expect(page.get_by_role("heading", level=1)).to_have_text("All is well")
        await expect(tile(page, "retail-1")).to_contain_text(f"{box['readers']:,}")
        await expect(tile(page, "retail-1")).to_contain_text(f"{round(box['delay_p99_ms'])} ms")
        await expect(page.locator("#frontdesk")).to_have_text("oregon-frontdesk-1")
        await expect(page.locator("#total-boxes")).to_have_text("8 of 8")


async def test_it_changes_in_place_with_each_update(browser: Browser) -> None:
    async with opened_frontdesk() as frontdesk, board(browser, frontdesk) as page:
        held = await tile(page, "retail-1").element_handle()
        await held.focus()
        before = await held.inner_text()
        frontdesk.fabric.tick(30_000)
        frontdesk.fabric.silence("oregon-retail-2")
        await frontdesk.send()
        await expect(tile(page, "retail-2")).to_contain_text("silent for 3.0 s")
        assert await held.inner_text() != before
        assert await held.evaluate("node => node.isConnected && node === document.activeElement")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Trouble in oregon")


async def test_a_fault_is_named_on_top_and_opens_what_it_is_about(browser: Browser) -> None:
    async with opened_frontdesk() as frontdesk:
        frontdesk.fabric.starting.add("dublin-retail-3")
        frontdesk.fabric.down_nodes.add("oregon-core-2")
        async with board(browser, frontdesk) as page:
            heading = page.get_by_role("list", name="What needs a look").get_by_role("button")
            await expect(heading).to_have_text(
                [
                    "oregon-core-2not running",
                    "dublin-retail-3starting: its feeds: no canary has come yet",
                ]
            )
            await heading.last.click()
            await expect(page.get_by_role("dialog", name="dublin-retail-3")).to_be_visible()


async def test_light_and_dark_follow_the_device_until_one_is_chosen(browser: Browser) -> None:
    async with opened_frontdesk() as frontdesk:
        async with board(browser, frontdesk, color_scheme="light") as page:
            assert await luminance(page) > 200
        async with board(browser, frontdesk, color_scheme="dark") as page:
            assert await luminance(page) < 50
            await page.get_by_role("radio", name="Light").check(force=True)
            assert await luminance(page) > 200
            await page.reload()
            await expect(page.locator("#board")).to_be_visible()
            assert await luminance(page) > 200


@pytest.mark.parametrize("width", [320, 390])
async def test_it_fits_a_phone(browser: Browser, width: int) -> None:
    size = {"width": width, "height": 800}
    async with opened_frontdesk() as frontdesk:
        eventful(frontdesk.fabric)
        async with board(browser, frontdesk, viewport=size, has_touch=True, is_mobile=True) as page:
            assert await page.evaluate("document.documentElement.scrollWidth") == width
            await tile(page, "retail-1").tap()
            dialog = page.get_by_role("dialog", name="oregon-retail-1")
            await expect(dialog).to_be_visible()
            bounds = await dialog.bounding_box()
            assert bounds is not None
            assert bounds["width"] <= width


async def test_the_keyboard_reaches_everything(browser: Browser) -> None:
    async with opened_frontdesk() as frontdesk, board(browser, frontdesk) as page:
        await page.keyboard.press("Tab")
        await expect(page.get_by_role("link", name="Skip to the state")).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_be_focused()
        for _ in range(60):
            await page.keyboard.press("Tab")
            if await page.evaluate("document.activeElement.matches('.tile')"):
                break
        await expect(tile(page, "retail-1")).to_be_focused()
        await page.keyboard.press("ArrowRight")
        await expect(tile(page, "retail-2")).to_be_focused()
        await page.keyboard.press("End")
        await expect(tile(page, "retail-4")).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("dialog", name="oregon-retail-4")).to_be_visible()
        await expect(page.get_by_role("button", name="Close")).to_be_focused()
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("dialog")).to_have_count(0)
        await expect(tile(page, "retail-4")).to_be_focused()
        # All tiles of a region are one stop: the next Tab leaves them.
        await page.keyboard.press("Tab")
        assert not await page.evaluate("document.activeElement.matches('.tile')")


async def test_everything_has_a_name_for_who_cannot_see_it(browser: Browser) -> None:
    async with opened_frontdesk() as frontdesk, board(browser, frontdesk) as page:
        box = frontdesk.fabric.board_document()["regions"][0]["boxes"][0]
        name = re.compile(rf"^retail-1 ready {box['readers']:,} of 60,000 readers .* native 0.1.0$")
        await expect(tile(page, "retail-1")).to_have_accessible_name(name)
        whole = "Map: 2 regions, 8 boxes, 40 shovels, none of them silent"
        await expect(page.get_by_role("img", name=whole)).to_be_visible()
        await page.get_by_text("The same as a list").click()
        rows = page.get_by_role("region", name="Shovels").get_by_role("row")
        await expect(rows).to_have_count(1 + 40)
        for region in ("oregon", "dublin"):
            await expect(page.get_by_role("region", name=region, exact=True)).to_be_visible()
            await expect(page.get_by_role("region", name=f"Services of {region}")).to_be_visible()
        nameless = await page.evaluate(
            "[...document.querySelectorAll('a, button, input')].filter((each) =>"
            " !each.innerText && !each.textContent.trim() && !each.labels?.length).length"
        )
        assert nameless == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("state", ["", "opened", "old"], ids=["", "opened", "old"])
async def test_axe_finds_no_fault(browser: Browser, scheme: Any, state: str) -> None:
    async with opened_frontdesk(MadeUpFabric(boxes=8)) as frontdesk:
        eventful(frontdesk.fabric)
        if state == "old":
            frontdesk.fabric.cut("dublin")
        # axe-core needs eval, which the policy forbids.
        async with board(browser, frontdesk, color_scheme=scheme, bypass_csp=True) as page:
            await page.locator("#plots").scroll_into_view_if_needed()
            await expect(page.locator(".plot canvas")).to_have_count(8)
            if state == "opened":
                await page.get_by_text("The same as a list").click()
                await tile(page, "retail-1").click()
            assert await axe_faults(page) == []


async def test_new_events_are_announced_and_numbers_are_not(browser: Browser) -> None:
    async with opened_frontdesk() as frontdesk:
        frontdesk.fabric.happens("process_ready", "oregon", "oregon-retail-9")
        async with board(browser, frontdesk) as page:
            heard = page.get_by_role("log")
            await expect(heard).to_have_text("")
            frontdesk.fabric.tick()
            frontdesk.fabric.silence("oregon-retail-1")
            await frontdesk.send()
            first = page.get_by_role("list", name="Events").get_by_role("listitem").first
            await expect(first).to_contain_text("oregon-retail-1 has been silent for 3 s")
            text = "oregon: oregon-retail-1 has been silent for 3 s."
            await expect(heard).to_have_text(text)
            live = await page.evaluate(
                "[...document.querySelectorAll('[aria-live=polite], [role=status], [role=log]')]"
                ".map((each) => each.id)"
            )
            assert live == ["announcer"]


async def test_nothing_moves_for_who_wants_no_motion(browser: Browser) -> None:
    async with (
        opened_frontdesk() as frontdesk,
        board(browser, frontdesk, reduced_motion="reduce") as page,
    ):
        frontdesk.fabric.silence("oregon-retail-1")
        await frontdesk.send()
        await expect(page.locator(".fresh")).to_have_count(1)
        timing = "getComputedStyle(document.querySelector('.fresh')).animationTimingFunction"
        assert await page.evaluate(timing) == "steps(1)"


async def test_hostile_texts_are_only_texts(browser: Browser) -> None:
    async with opened_frontdesk() as frontdesk:
        frontdesk.document = _with_hostile_texts(frontdesk.fabric.board_document())
        async with board(browser, frontdesk) as page:
            await page.locator("#plots").scroll_into_view_if_needed()
            await page.get_by_text("The same as a list").click()
            await page.locator(".tile").first.click()
            await expect(page.get_by_role("dialog")).to_contain_text(HOSTILE)
            assert "run" not in await page.title()
            assert await page.locator("main img, main script, dialog img").count() == 0
            urls = await page.evaluate("[...document.links].map((link) => link.protocol)")
            assert set(urls) == {"http:"}


def _with_hostile_texts(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _with_hostile_texts(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [_with_hostile_texts(each, key) for each in value]
    if key == "frontdesk_url":
        return "javascript:document.title='run'"
    return value + HOSTILE if isinstance(value, str) and key != "state" else value


@pytest.mark.parametrize("document", [{}, [], {"regions": 5}, "x"], ids=repr)
async def test_what_is_no_document_is_reported_as_none(browser: Browser, document: Any) -> None:
    async with (
        opened_frontdesk(document=document) as frontdesk,
        board(browser, frontdesk, shown=False) as page,
    ):
        await expect(page.get_by_role("alert").first).to_contain_text("isn't a board's")


async def test_a_lost_frontdesk_is_named_with_its_age_and_other_boards(browser: Browser) -> None:
    async with opened_frontdesk() as frontdesk, board(browser, frontdesk) as page:
        # Always the longest of the possible waits.
        await page.evaluate("Math.random = () => 0.999")
        await frontdesk.close()
        lost = page.locator("#lost")
        await expect(lost).to_contain_text("oregon-frontdesk-1 is lost")
        await expect(lost).to_contain_text(re.compile(r"What you see is [\d.]+ s old"))
        await expect(page.locator("#link")).to_contain_text("Lost for")
        other = lost.get_by_role("link", name="dublin")
        await expect(other).to_have_attribute("href", "http://dublin.invalid:8080/board")
        # So long that the page doesn't reconnect by itself before the button is pressed.
        await expect(page.locator("#lost-retry")).to_contain_text(re.compile(r"in ([6-9]|1\d) s"))
        frontdesk.fabric.tick(5000)
        frontdesk.open()
        await page.get_by_role("button", name="Try now").click()
        await expect(page.locator("#link")).to_contain_text("Live")
        await expect(lost).to_be_hidden()


async def test_it_comes_back_by_itself(browser: Browser) -> None:
    async with opened_frontdesk() as frontdesk, board(browser, frontdesk) as page:
        await frontdesk.close()
        await expect(page.locator("#lost")).to_be_visible()
        frontdesk.open()
        await expect(page.locator("#link")).to_contain_text("Live")
        assert len(frontdesk.streams) == 1


async def test_a_frontdesk_that_says_nothing_counts_as_lost(browser: Browser) -> None:
    async with opened_frontdesk() as frontdesk, board(browser, frontdesk) as page:
        frontdesk.fall_silent()
        await expect(page.locator("#lost")).to_contain_text("it says nothing")


async def test_what_grows_old_is_pale_and_says_how_old_it_is(browser: Browser) -> None:
    async with opened_frontdesk() as frontdesk, board(browser, frontdesk) as page:
        await frontdesk.close()
        region = page.get_by_role("region", name="dublin", exact=True)
        await expect(region).to_contain_text(re.compile(r"as of \d+ s ago"))
        await expect(region).to_have_attribute("data-old", "true")


async def test_a_region_that_is_away_says_since_when_and_comes_back(browser: Browser) -> None:
    async with opened_frontdesk() as frontdesk, board(browser, frontdesk) as page:
        frontdesk.fabric.cut("dublin")
        await frontdesk.send()
        region = page.get_by_role("region", name="dublin", exact=True)
        text = re.compile(r"away since \d\d:\d\d:\d\d, last heard 6 s ago")
        await expect(region).to_contain_text(text)
        await expect(region).to_have_attribute("data-old", "true")
        await expect(page.get_by_role("heading", level=1)).to_have_text("dublin is away")
        await expect(page.locator("#total-boxes")).to_have_text("4 of 4")
        without = page.locator("#totals-without")
        await expect(without).to_have_text("without dublin: not heard for 6.0 s")
        assert await colours(page, ".map-node") == {"up": 5, "unheard": 5}
        await expect(region.locator(".ready")).to_have_text("4 of 4, 6 s ago")
        await expect(region.locator(".tile-state").first).to_have_text("unheard")
        await expect(region.locator(".tile-engine").first).to_have_text("not heard for 6.0 s")
        frontdesk.fabric.mend("dublin")
        await frontdesk.send()
        await expect(region).to_have_attribute("data-old", "false")
        await expect(page.get_by_role("heading", level=1)).to_have_text("All is well")
        await expect(page.locator("#total-boxes")).to_have_text("8 of 8")
        await expect(without).to_be_hidden()
        assert await colours(page, ".map-node") == {"up": 10}


async def colours(page: Page, what: str) -> dict[str, int]:
    """Count the elements that ``what`` finds by their state: each has a colour of its own."""
    states = "nodes => nodes.map(node => node.dataset.state)"
    return dict(collections.Counter(await page.locator(what).evaluate_all(states)))


async def test_a_fabric_without_regions_or_boxes_says_so(browser: Browser) -> None:
    async with (
        opened_frontdesk(MadeUpFabric(regions=("oregon",), boxes=0)) as frontdesk,
        board(browser, frontdesk) as page,
    ):
        await expect(page.get_by_role("heading", level=1)).to_have_text("No box serves readers")
        await expect(page.get_by_text("No box reports here")).to_be_visible()
        await expect(page.get_by_text("Nothing has happened")).to_be_visible()
        frontdesk.fabric.regions = ()
        await frontdesk.send()
        heading = page.get_by_role("heading", level=1)
        await expect(heading).to_have_text("No region is known yet")


async def test_every_number_names_its_metric(browser: Browser) -> None:
    async with opened_frontdesk() as frontdesk, board(browser, frontdesk) as page:
        await page.locator("#plots").scroll_into_view_if_needed()
        await expect(page.locator(".plot canvas")).to_have_count(8)
        await tile(page, "retail-1").click()
        links = await page.evaluate(
            "[...document.querySelectorAll('main dd a, .busy a, .plot a, dialog a[href]')]"
            ".map((link) => [link.getAttribute('href'), link.title])"
        )
        assert len(links) > 40
        for url, title in links:
            assert re.fullmatch(r"/board/metrics#newsfabric_[a-z_]+", url)
            assert title.startswith(url.partition("#")[2])
        titles = await page.evaluate(
            "[...document.querySelectorAll('.tile [class^=tile-][title]')].map((e) => e.title)"
        )
        assert set(titles) == {
            "newsfabric_gateway_readers",
            "newsfabric_gateway_deliveries",
            "newsfabric_gateway_delay_seconds",
        }


async def test_the_last_hour_is_drawn_and_reported_in_words(browser: Browser) -> None:
    async with opened_frontdesk() as frontdesk, board(browser, frontdesk) as page:
        await page.locator("#plots").scroll_into_view_if_needed()
        plots = page.locator(".plot").get_by_role("img")
        await expect(plots).to_have_count(8)
        text = re.compile(r"Readers, the last hour: dublin now [\d,]+, from [\d,]+ to [\d,]+; ore")
        await expect(plots.first).to_have_accessible_name(text)
        await page.get_by_role("radio", name="dublin").check()
        only = re.compile(r"Readers, the last hour: dublin now [^;]+$")
        await expect(plots.first).to_have_accessible_name(only)


async def test_an_operator_logs_in_and_the_token_is_kept_nowhere(browser: Browser) -> None:
    async with (
        opened_frontdesk(token="secret-of-an-operator") as frontdesk,
        board(browser, frontdesk, shown=False) as page,
    ):
        field = page.get_by_label("Token")
        await expect(field).to_be_focused()
        await field.fill("another")
        await field.press("Enter")
        await expect(page.get_by_role("alert")).to_contain_text("isn't an operator's")
        await field.fill(frontdesk.token)
        await page.get_by_role("button", name="Log in").click()
        await expect(page.locator("#board")).to_be_visible()
        await expect(page.get_by_role("heading", name="Log in")).to_be_hidden()
        kept = "JSON.stringify([location.href, {...localStorage}, {...sessionStorage},"
        assert frontdesk.token not in await page.evaluate(
            f"{kept} document.cookie, document.getElementById('token').value])"
        )
        assert all("secret" not in path for path in frontdesk.asked)


async def test_a_login_that_ends_asks_again(browser: Browser) -> None:
    async with opened_frontdesk() as frontdesk, board(browser, frontdesk) as page:
        frontdesk.token = "another"
        for stream in list(frontdesk.streams):
            stream.ended.set()
        await expect(page.get_by_label("Token")).to_be_visible()
