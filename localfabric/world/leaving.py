"""Drains boxes of a running world by hand, as a scaler does through its region's core. Blocks."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

from localfabric.world.growing import end
from localfabric.world.processes import ProcessId
from localfabric.world.state import read_running

_LOOK_AGAIN: Final = 0.1


def drain_boxes(state: Path, names: Collection[str], *, seconds: float) -> tuple[str, ...]:
    """Have the agents of ``names`` drain their boxes, then end the boxes; return the names found.

    After ``seconds`` a box is ended with its readers. WorldError without a world.
    """
    agents = _agents(state, names)
    for agent in agents:
        # An agent drains its box on SIGTERM, and exits when the readers are gone.
        with suppress(ProcessLookupError):
            os.kill(agent.pid, signal.SIGTERM)
    deadline = time.monotonic() + seconds
    while any(agent.alive for agent in agents) and time.monotonic() < deadline:
        time.sleep(_LOOK_AGAIN)
    return end(state, names)


def _agents(state: Path, names: Collection[str]) -> list[ProcessId]:
    _, notes = read_running(state)
    running = notes.running()
    return [found for name in names if (found := running.get(f"{name}-agent")) is not None]
