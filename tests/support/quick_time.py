"""An event loop with simulated time: where it would wait, its clock jumps. For tests of minutes.

Timers end in their order, each at its time: a test of an hour takes only as long as its
computing. No code on this loop may wait for a socket or a thread.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Coroutine
from typing import Any

import pytest


class _Selector(selectors.SelectSelector):
    """A selector that asks no system: it moves the clock by the time-out instead."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "nothing will ever happen"
        self.now += max(0.0, timeout)
        return []


class QuickLoop(asyncio.SelectorEventLoop):
    """An event loop on such a selector, whose time begins at 0."""

    def __init__(self) -> None:
        self._clock = _Selector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now

    def stand_still(self, seconds: float) -> None:
        """Freeze the process for so long: all timers due in that time are late."""
        self._clock.now += seconds


def run(main: Coroutine[Any, Any, None], *, began: float) -> None:
    """Run ``main``; all clocks show the loop's time, and wall clocks began at ``began``."""
    with (
        asyncio.Runner(loop_factory=QuickLoop) as runner,
        pytest.MonkeyPatch.context() as patch,
    ):
        now = runner.get_loop().time
        patch.setattr(time, "monotonic", now)
        patch.setattr(time, "time", lambda: began + now())
        patch.setattr(time, "time_ns", lambda: int((began + now()) * 1e9))
        runner.run(main)


def quick_loop() -> QuickLoop:
    """Return the running loop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, QuickLoop)
    return loop
