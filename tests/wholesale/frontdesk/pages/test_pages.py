"""The reader's page as files: the demands of its Content-Security-Policy and its promises."""

import hashlib
import json
import os
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
PAGES = ROOT / "wholesale" / "frontdesk" / "pages" / "files"
SHARED = ROOT / "newsfabric" / "static"
OURS = ("reader.js", "reader-core.js")
# dist/sockjs.min.js of sockjs-client-1.6.1.tgz in the npm registry.
SOCKJS_SHA256 = "1e0f37d073666196b0848fd7d80d525268d5adf47ea1ec459632f05bbf8e1f54"
Element = tuple[str, dict[str, str | None]]


class Elements(HTMLParser):
    """A parser that collects start tags with their attributes, and text inside script and style."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.found: list[Element] = []
        self.inline = ""
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.found and self.found[-1][0] in {"script", "style"}:
            self.inline += data.strip()

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.found if name == tag]


@pytest.fixture(scope="module")
def page() -> Elements:
    return Elements((PAGES / "index.html").read_text(encoding="utf-8"))


def source(name: str) -> str:
    return (PAGES / name).read_text(encoding="utf-8")


def test_nothing_is_inline_so_that_a_strict_policy_can_hold(page: Elements) -> None:
    assert page.inline == ""
    assert page.named("style") == []
    attributes = {name for _, attrs in page.found for name in attrs}
    assert {name for name in attributes if name.startswith("on") or name == "style"} == set()


def test_every_script_and_style_sheet_is_a_file_of_our_own(page: Elements) -> None:
    scripts = [attrs["src"] for attrs in page.named("script")]
    sheets = [a["href"] for a in page.named("link") if a["rel"] == "stylesheet"]
    assert scripts == ["/static/reader.js"]
    assert sheets == ["/static/reader.css"]
    for url in filter(None, scripts + sheets):
        name = url.removeprefix("/static/")
        assert any((folder / name).is_file() for folder in (PAGES, SHARED))


def test_the_icon_is_an_inline_svg(page: Elements) -> None:
    (icon,) = [attrs["href"] for attrs in page.named("link") if attrs["rel"] == "icon"]
    assert (icon or "").startswith("data:image/svg+xml,")


def test_modules_import_only_what_the_frontdesk_serves() -> None:
    for name in OURS:
        for imported in re.findall(r'from "([^"]+)"', source(name)):
            assert imported.startswith("./")
            assert any((folder / imported).is_file() for folder in (PAGES, SHARED))


def test_the_style_sheet_loads_nothing() -> None:
    assert re.findall(r"url\(|@import", source("reader.css")) == []


@pytest.mark.parametrize("name", OURS)
def test_messages_never_become_markup_or_code(name: str) -> None:
    dangerous = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function"
    assert re.findall(dangerous, source(name)) == []


def test_the_default_topics_are_those_of_newsday(page: Elements) -> None:
    offered = [attrs["value"] for attrs in page.named("input") if attrs.get("name") == "topic"]
    lines = (ROOT / "examples" / "newsday.jsonl").read_text(encoding="utf-8").splitlines()
    assert sorted(filter(None, offered)) == sorted({json.loads(line)["topic"] for line in lines})


def test_the_page_marks_what_tests_look_for(page: Elements) -> None:
    marks = {attrs["data-testid"] for _, attrs in page.found if "data-testid" in attrs}
    assert marks == {"state", "region", "transport", "delay", "count", "stories", "story"}


def test_a_story_finds_its_own_direction(page: Elements) -> None:
    (article,) = page.named("article")
    assert article["dir"] == "auto"


def test_the_page_says_its_language_and_fits_a_phone(page: Elements) -> None:
    assert page.named("html") == [{"lang": "en"}]
    viewports = [a["content"] for a in page.named("meta") if a.get("name") == "viewport"]
    assert viewports == ["width=device-width, initial-scale=1"]


def test_changes_are_announced_politely_and_not_one_by_one(page: Elements) -> None:
    (announcer,) = [attrs for _, attrs in page.found if "aria-live" in attrs]
    assert (announcer["id"], announcer["aria-live"]) == ("announcer", "polite")


@pytest.mark.parametrize(
    "query", ["prefers-color-scheme: dark", "prefers-reduced-motion: reduce", ":focus-visible"]
)
def test_the_style_sheet_heeds_what_the_reader_prefers(query: str) -> None:
    assert query in source("reader.css")


def test_sockjs_client_is_the_released_1_6_1_with_its_licence() -> None:
    code = (SHARED / "sockjs.min.js").read_bytes()
    assert code.startswith(b"/* sockjs-client v1.6.1 ")
    assert hashlib.sha256(code).hexdigest() == SOCKJS_SHA256
    licence = (SHARED / "sockjs.LICENSE.txt").read_text(encoding="utf-8")
    assert licence.startswith("The MIT License (MIT)")


def test_the_rules_of_the_page_hold_under_node() -> None:
    node = shutil.which("node")
    if node is None:
        if os.environ.get("CI"):
            pytest.fail("CI must have node: `make setup` installs it")
        pytest.skip("node is not installed")
    suite = Path(__file__).with_name("reader_core.test.mjs")
    run = subprocess.run(
        [node, "--test", str(suite)], capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 0, run.stdout
