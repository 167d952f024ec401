"""The agent's command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
URLS = {
    "core": "amqp://127.0.0.1:1/%2F",
    "broker": "amqp://127.0.0.1:1/%2F",
    "management": "http://127.0.0.1:1",
    "gateway-admin": "http://127.0.0.1:1",
}


@pytest.mark.parametrize("option", URLS)
def test_a_url_with_a_login_is_refused_and_not_shown(option: str) -> None:
    urls = URLS | {option: URLS[option].replace("//", "//box:s3cret@")}
    words = [f"--{name}={url}" for name, url in urls.items()]
    command = [sys.executable, "-m", "retail", "--name=b", "--region=r", "--port=0", *words]
    done = subprocess.run(
        command, cwd=ROOT, env={}, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "a URL holds no user and password" in done.stderr
    assert "s3cret" not in done.stderr
    assert "Traceback" not in done.stderr
