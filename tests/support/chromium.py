"""Debian's Chromium under Playwright: headless, and with no way to anything but this machine."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from typing import Final

import pytest
from playwright import async_api, sync_api
from playwright.sync_api import Browser, sync_playwright

FLAGS: Final = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
]

# Milliseconds. Playwright's five seconds are too few on a machine with other tests beside it.
_PATIENCE: Final = 60_000
for _expect in (async_api.expect, sync_api.expect):
    _expect.set_options(timeout=_PATIENCE)


def named(hosts: Sequence[str]) -> str:
    """A flag beside those: ``hosts`` (patterns) are this machine. The last one given counts."""
    here = "".join(f"MAP {host} 127.0.0.1, " for host in hosts)
    return f"--host-resolver-rules={here}MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"


def find_chromium() -> str:
    """Path of Chromium; skips without one on a laptop, fails in CI."""
    path = shutil.which("chromium")
    if path is None:
        if os.environ.get("CI"):
            pytest.fail("CI must have Chromium: `make setup` installs it")
        pytest.skip("chromium is not installed")
    return path


@contextlib.contextmanager
def launched() -> Iterator[Browser]:
    """A browser, closed at the end."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        yield browser
        browser.close()
