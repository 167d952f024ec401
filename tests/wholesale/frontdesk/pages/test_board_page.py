"""The operations board as files: the demands of its Content-Security-Policy and its promises."""

import hashlib
import os
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from wholesale.frontdesk.pages.metrics_page import metrics_file
from wholesale.frontdesk.pages.metrics_page import page as metrics_page

ROOT = Path(__file__).parents[4]
PAGES = ROOT / "wholesale" / "frontdesk" / "pages" / "files"
MODULES = sorted(path.name for path in PAGES.glob("board*.js"))
TSC = ROOT / "clients" / "js" / "node_modules" / ".bin" / "tsc"
# dist/uPlot.iife.min.js and dist/uPlot.min.css of uplot-1.6.32.tgz in the npm registry.
UPLOT_SHA256 = "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f"
UPLOT_CSS_SHA256 = "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04"
CHECKED = {
    "target": "es2023",
    "module": "esnext",
    "moduleResolution": "bundler",
    "lib": "es2023,dom,dom.iterable",
    "strict": "true",
    "noUncheckedIndexedAccess": "true",
    "allowJs": "true",
    "checkJs": "true",
    "noEmit": "true",
}


class Elements(HTMLParser):
    """A parser that collects start tags with their attributes, and text inside script and style."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
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
    return Elements(source("board.html"))


def source(name: str) -> str:
    return (PAGES / name).read_text(encoding="utf-8")


def node() -> str:
    found = shutil.which("node")
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("CI must have node: `make setup` installs it")
        pytest.skip("node is not installed")
    return found


def test_nothing_is_inline_so_that_the_strictest_policy_can_hold(page: Elements) -> None:
    assert page.inline == ""
    assert page.named("style") == []
    attributes = {name for _, attrs in page.found for name in attrs}
    assert {name for name in attributes if name.startswith("on") or name == "style"} == set()
    urls = [attrs.get("src") or attrs.get("href") or "" for _, attrs in page.found]
    assert [url for url in urls if ":" in url] == []


def test_everything_it_loads_is_a_file_of_our_own(page: Elements) -> None:
    scripts = [attrs["src"] for attrs in page.named("script")]
    links = [attrs["href"] for attrs in page.named("link")]
    for url in (*scripts, *links):
        assert (PAGES / (url or "").removeprefix("/static/")).is_file()


def test_every_module_is_asked_for_at_once(page: Elements) -> None:
    preloaded = {a["href"] for a in page.named("link") if a["rel"] == "modulepreload"}
    asked = {attrs["src"] for attrs in page.named("script")}
    assert preloaded | asked == {f"/static/{name}" for name in (*MODULES, "uplot.min.js")}


@pytest.mark.parametrize("name", MODULES)
def test_what_others_wrote_never_becomes_markup_or_code(name: str) -> None:
    dangerous = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function"
        r"|setHTML|createContextualFragment|DOMParser"
    )
    assert re.findall(dangerous, source(name)) == []


def test_a_token_is_kept_nowhere() -> None:
    keeping = [name for name in MODULES if re.search(r"Storage|\.cookie|indexedDB", source(name))]
    assert keeping == ["board-theme.js"]


def test_the_style_sheets_load_nothing() -> None:
    for name in ("board.css", "uplot.min.css"):
        assert re.findall(r"url\(|@import", source(name)) == []


@pytest.mark.parametrize(
    "query", ["prefers-reduced-motion: reduce", "light-dark(", ":focus-visible", "forced-colors"]
)
def test_the_style_sheet_heeds_what_the_operator_prefers(query: str) -> None:
    assert query in source("board.css")


def test_only_new_events_are_announced_and_politely(page: Elements) -> None:
    live = [a.get("id") for _, a in page.found if a.get("aria-live") == "polite"]
    assert live == ["announcer"]


def test_every_number_of_the_page_names_its_metric(page: Elements) -> None:
    links = [a for a in page.named("a") if (a.get("href") or "").startswith("/board/metrics#")]
    assert len(links) == 10
    for attrs in links:
        metric = (attrs["href"] or "").partition("#")[2]
        assert re.fullmatch(r"newsfabric_[a-z_]+", metric)
        assert (attrs["title"] or "").startswith(metric)


def test_every_metric_that_the_board_names_is_in_the_catalogue() -> None:
    named = set(re.findall(r"newsfabric_[a-z_]+[a-z]", source("board-words.js")))
    named |= set(re.findall(r"#(newsfabric_[a-z_]+)", source("board.html")))
    named -= {"newsfabric_board_theme"}
    catalogue = {
        attrs.get("id") for _, attrs in Elements(metrics_page(metrics_file().read_text())).found
    }
    assert len(named) >= 10
    assert named - catalogue == set()


def test_uplot_is_the_released_1_6_32_with_its_licence() -> None:
    code = (PAGES / "uplot.min.js").read_bytes()
    assert code.startswith(b"/*! https://github.com/leeoniya/uPlot (v1.6.32) */")
    assert hashlib.sha256(code).hexdigest() == UPLOT_SHA256
    sheet = (PAGES / "uplot.min.css").read_bytes()
    assert hashlib.sha256(sheet).hexdigest() == UPLOT_CSS_SHA256
    assert source("uplot.LICENSE.txt").startswith("The MIT License (MIT)")


def test_the_rules_of_the_board_hold_under_node() -> None:
    suite = Path(__file__).with_name("board.test.mjs")
    run = subprocess.run(
        [node(), "--test", str(suite)], capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 0, run.stdout


def test_the_types_of_the_board_hold() -> None:
    if not TSC.exists():
        if os.environ.get("CI"):
            pytest.fail("CI must have TypeScript: `make setup` installs it")
        pytest.skip("TypeScript is not installed")
    options = [word for name, value in CHECKED.items() for word in (f"--{name}", value)]
    # The theme's file is a classic script, too short for types.
    files = [str(PAGES / name) for name in MODULES if name != "board-theme.js"]
    run = subprocess.run(
        [node(), str(TSC), *options, *files],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stdout
