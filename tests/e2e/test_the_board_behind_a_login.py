"""The operations board in a real browser where it asks for a login: a real frontdesk of a world.

It listens on all addresses, or on loopback behind a proxy, as in docs/board.md. Access by token
over HTTP is tested in tests/wholesale/frontdesk/board/test_board.py.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from chromium import launched
from playwright.sync_api import Browser, BrowserContext, Page, expect
from worlds import PORTS, World

from localfabric.world.layout import READERS_AUDIENCE, READERS_ISSUER
from localfabric.world.programs import region_programs
from localfabric.world.state import read_running

pytestmark = [pytest.mark.world, pytest.mark.browser, pytest.mark.timeout(420)]

PATIENCE: Final = 60.0
# Apart from the worlds' ports.
PORT: Final = PORTS + 1680
COOKIE: Final = "newsfabric_board"
KEY: Final = "a-key-that-nobody-publishes-with"


@dataclasses.dataclass(frozen=True)
class BoardAddress:
    """The address on which a frontdesk listens, and the headers that a proxy adds."""

    host: str
    added: Mapping[str, str]


WAYS: Final = {
    "on every address": BoardAddress("0.0.0.0", {}),
    "behind a proxy": BoardAddress("127.0.0.1", {"X-Forwarded-For": "203.0.113.9"}),
}


@dataclasses.dataclass(frozen=True)
class Guarded:
    """A frontdesk of ``world`` that asks for a login, and a browser with the proxy's headers."""

    world: World
    context: BrowserContext
    url: str

    def token(self, user: str, *options: str) -> str:
        """Return a token of the world's own issuer."""
        done = self.world.run("token", user, *options)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def opened(self) -> Page:
        page = self.context.new_page()
        page.goto(f"{self.url}/board")
        return page

    def status(self, path: str) -> int:
        """Return the status of the reply to this browser."""
        return self.context.request.get(f"{self.url}{path}").status

    def cookies(self) -> list[Any]:
        return [one for one in self.context.cookies() if one["name"] == COOKIE]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as browser:
        yield browser


@pytest.fixture(params=list(WAYS))
def guarded(
    request: pytest.FixtureRequest, world: World, browser: Browser, tmp_path: Path
) -> Iterator[Guarded]:
    way = WAYS[request.param]
    with _frontdesk(world, way.host, tmp_path) as url:
        context = browser.new_context(extra_http_headers=dict(way.added))
        yield Guarded(world, context, url)
        context.close()


@contextlib.contextmanager
def _frontdesk(world: World, host: str, folder: Path) -> Iterator[str]:
    """Run another frontdesk of oregon, with the world's keys; it drains at the end."""
    layout, _ = read_running(world.state)
    region = layout.regions[0]
    (beside,) = [
        p for p in region_programs(layout, region) if p.name == region.named("frontdesk").name
    ]
    keys = folder / "publishers"
    keys.write_text(f"{KEY}\n")
    options = {
        "name": f"{region.name}-frontdesk-2",
        "host": host,
        "port": PORT,
        "admin-port": 0,
        "api-key-file": keys,
        "token-keys": layout.paths.token_keys,
        "token-audience": READERS_AUDIENCE,
        "token-issuer": READERS_ISSUER,
    }
    # A repeated option replaces the earlier one.
    command = [*beside.command, *(f"--{name}={value}" for name, value in options.items())]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=world.state,
            env=os.environ | dict(beside.variables),
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            url = f"http://127.0.0.1:{PORT}"
            _await_answer(f"{url}/board", process, folder / "log")
            yield url
        finally:
            process.terminate()
            process.wait(PATIENCE)


def _await_answer(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            with urlopen(url, timeout=5):
                return
        except (URLError, ConnectionError):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)


def _log_in(page: Page, token: str) -> None:
    field = page.get_by_label("Token")
    expect(field).to_be_focused()
    field.fill(token)
    page.get_by_role("button", name="Log in").click()


def test_an_operator_logs_in_sees_the_fabric_and_logs_out(guarded: Guarded) -> None:
    page = guarded.opened()
    expect(page.get_by_label("Token")).to_be_visible()
    expect(page.locator("#board")).to_be_hidden()
    paths = ("/board.json", "/board/stream", "/board/plots.json")
    assert [guarded.status(path) for path in paths] == [401, 401, 401]

    token = guarded.token("ada", "--operator")
    _log_in(page, token)
    expect(page.locator("#link")).to_contain_text("Live")
    expect(page.locator("#frontdesk")).to_have_text("oregon-frontdesk-2")
    expect(page.locator("#operator")).to_contain_text("ada")
    box = page.get_by_role("region", name="oregon", exact=True).locator(".tile").first
    expect(box).to_contain_text("ready")
    (cookie,) = guarded.cookies()
    assert cookie["value"] == token
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Strict"
    assert page.evaluate("document.cookie") == ""
    assert guarded.status("/board.json") == 200

    page.reload()
    expect(page.locator("#link")).to_contain_text("Live")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    expect(page.locator("#board")).to_be_hidden()
    expect(page.locator("#operator")).to_be_hidden()
    assert guarded.cookies() == []
    assert guarded.status("/board.json") == 401


def test_a_reader_is_no_operator(guarded: Guarded) -> None:
    page = guarded.opened()
    _log_in(page, guarded.token("42"))
    expect(page.get_by_role("alert")).to_contain_text("isn't an operator's")
    expect(page.locator("#board")).to_be_hidden()
    assert guarded.cookies() == []


def test_a_login_that_runs_out_is_asked_for_again(guarded: Guarded) -> None:
    page = guarded.opened()
    _log_in(page, guarded.token("ada", "--operator", "--ttl", "3s"))
    expect(page.locator("#link")).to_contain_text("Live")
    expect(page.get_by_label("Token")).to_be_visible()
    expect(page.locator("#link")).to_have_text("Not logged in")
    assert guarded.status("/board.json") == 401
    _log_in(page, guarded.token("ada", "--operator"))
    expect(page.locator("#link")).to_contain_text("Live")
