"""The command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gateway.__main__ import choose_engine
from newsfabric.errors import SetupError

ROOT = Path(__file__).resolve().parents[2]
ARGUMENTS = [
    "--name=box-1",
    "--region=oregon",
    "--broker=amqp://127.0.0.1:1/%2F",
    f"--topics={ROOT / 'topics.toml'}",
    "--store=memory:",
    "--port=0",
    "--admin-port=0",
]


def test_auto_takes_the_tornado_engine() -> None:
    assert choose_engine("auto") == "tornado"
    assert choose_engine("tornado") == "tornado"


def test_native_refuses_to_fall_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEWSFABRIC_DATAPLANE", "/nowhere/newsfabric-dataplane")
    with pytest.raises(SetupError, match="native engine isn't built"):
        choose_engine("native")


def gateway(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gateway", *ARGUMENTS, *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=30, check=False
    )


def test_what_cant_be_done_is_one_line_and_exit_code_1() -> None:
    done = gateway(NEWSFABRIC_GATEWAY_ENGINE="native", NEWSFABRIC_DATAPLANE="/nowhere/at-all")
    assert done.returncode == 1
    assert "native engine isn't built" in done.stderr
    assert "Traceback" not in done.stderr


def test_wrong_topics_are_named() -> None:
    done = gateway("--topics=/nowhere/topics.toml")
    assert done.returncode == 1
    assert "/nowhere/topics.toml" in done.stderr
    assert "Traceback" not in done.stderr
