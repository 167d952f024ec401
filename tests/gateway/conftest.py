"""A check after each test: a data plane that crashes fails the test that started it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from box_with_a_past import box
from crashes import crashed

from gateway.native import program
from gateway.native.program import Process, start

__all__ = ["box"]


@pytest.fixture(autouse=True)
def dataplanes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Process]]:
    """Record the data planes of this test. After a panic, the captured stderr has its place."""
    started: list[Process] = []

    def noted(*arguments: Any) -> Process:
        started.append(start(*arguments))
        return started[-1]

    monkeypatch.setenv("RUST_BACKTRACE", "1")
    monkeypatch.setattr(program, "start", noted)
    yield started
    assert crashed(started) == [], "a data plane has crashed"
    for process in started:
        # A test may leave data planes running on purpose.
        process.kill()
