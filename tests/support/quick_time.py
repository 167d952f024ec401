"""A loop whose time goes on at once where it would wait, for tests of what takes minutes.

Timers end in their order, and each at its time: a test of an hour takes as long as what is done in
it. Nothing on this loop may wait for a socket or a thread.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Coroutine
from typing import Any

import pytest


class _Selector(selectors.SelectSelector):
    """Waits for nothing: the time that it should wait for has passed."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if not found:
            assert timeout is not None, "nothing will ever happen"
            self.now += max(0.0, timeout)
        return found


class QuickLoop(asyncio.SelectorEventLoop):
    """Its time begins at 0."""

    def __init__(self) -> None:
        self._clock = _Selector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now

    def stand_still(self, seconds: float) -> None:
        """The process is frozen for so long: whatever was due meanwhile is late."""
        self._clock.now += seconds


def run(main: Coroutine[Any, Any, None], *, began: float) -> None:
    """Play ``main``; all clocks show the loop's time, those of the wall began at ``began``."""
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
    """The loop that runs now."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, QuickLoop)
    return loop
