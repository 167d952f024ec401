"""The world that a message is for, once it is ready for messages."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from newsfabric.errors import WorldError
from newsfabric.world.layout import WorldLayout
from newsfabric.world.state import read_notes, running_world, shown

# `newsfabric up --detach & newsfabric publish …` begin at the same moment.
_MAY_APPEAR: Final = 3.0
_LOOK_AGAIN: Final = 0.1
# How long a publisher that has waited for a world lets its readers go first.
_READERS_FIRST: Final = 2.0


def world_to_publish_to(state: Path, say: Callable[[str], None]) -> WorldLayout:
    """As :func:`world_to_read`, but readers who have waited for the same world go first.

    Else ``up --detach && tail … & publish …`` would publish what nobody reads yet.
    """
    notes = read_notes(state)
    layout = world_to_read(state, say)
    if notes is None or not notes.ready:
        time.sleep(_READERS_FIRST)
    return layout


def world_to_read(state: Path, say: Callable[[str], None]) -> WorldLayout:
    """The world in ``state``; waits while an ``up`` is starting it. WorldError if there is none."""
    _await_beginning(state, say)
    waiting = False
    while True:
        layout, notes = running_world(state)
        if notes.ready:
            return layout
        if notes.keeper is None or not notes.keeper.alive:
            raise WorldError(
                f"the world in {shown(state)} never got ready: `newsfabric down` first"
            )
        if not waiting:
            say(f"waiting for the world in {shown(state)} to be ready")
            waiting = True
        time.sleep(_LOOK_AGAIN)


def _await_beginning(state: Path, say: Callable[[str], None]) -> None:
    if read_notes(state) is not None:
        return
    say(f"no world in {shown(state)} yet; waiting {_MAY_APPEAR:.0f} s for one to start")
    deadline = time.monotonic() + _MAY_APPEAR
    while read_notes(state) is None and time.monotonic() < deadline:
        time.sleep(_LOOK_AGAIN)
