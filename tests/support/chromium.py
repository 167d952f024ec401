"""Debian's Chromium under Playwright: headless, and unable to reach any other machine."""

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

# Milliseconds. Playwright's five seconds are too few on a machine that runs other tests too.
_PATIENCE: Final = 60_000
for _expect in (async_api.expect, sync_api.expect):
    _expect.set_options(timeout=_PATIENCE)


def named(hosts: Sequence[str]) -> str:
    """Return a flag that maps ``hosts`` (patterns) to this machine, instead of that in FLAGS."""
    here = "".join(f"MAP {host} 127.0.0.1, " for host in hosts)
    return f"--host-resolver-rules={here}MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"


def find_chromium() -> str:
    """Return Chromium's path; without Chromium, skip on a laptop and fail in CI."""
    path = shutil.which("chromium")
    if path is None:
        if os.environ.get("CI"):
            pytest.fail("CI must have Chromium: `make setup` installs it")
        pytest.skip("chromium is not installed")
    return path


@contextlib.contextmanager
def launched() -> Iterator[Browser]:
    """Start a browser, and close it at the end."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        yield browser
        browser.close()
