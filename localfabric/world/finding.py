"""Finds the world that a command is for: at once, or when it is ready for messages.

Commands of `newsfabric` call this module through the entry point ``newsfabric.worlds``; they get a
:class:`~operations.worlds.WorldPlaces`, not the layout.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from localfabric.world.broker import HOST
from localfabric.world.layout import WorldLayout
from localfabric.world.parts import parts
from localfabric.world.state import read_notes, read_running, shown
from newsfabric.errors import WorldError
from operations.worlds import PrintLine, ProcessAddress, WorldPlaces

# `newsfabric up --detach & newsfabric publish …` begin at the same moment.
_MAY_APPEAR: Final = 3.0
_LOOK_AGAIN: Final = 0.1
# Seconds for which a publisher that waited for a world lets readers connect first.
_READERS_FIRST: Final = 2.0


def running(state: Path) -> WorldPlaces:
    """Return the running world: see :func:`operations.worlds.running_world`."""
    return world_of(read_running(state)[0])


def to_read(state: Path, print_line: PrintLine) -> WorldPlaces:
    """Return a world to read from: see :func:`operations.worlds.world_to_read`."""
    return world_of(ready_layout(state, print_line))


def to_publish_to(state: Path, print_line: PrintLine) -> WorldPlaces:
    """Return a world to publish to: see :func:`operations.worlds.world_to_publish_to`."""
    notes = read_notes(state)
    layout = ready_layout(state, print_line)
    if notes is None or not notes.ready:
        time.sleep(_READERS_FIRST)
    return world_of(layout)


def ready_layout(state: Path, print_line: PrintLine) -> WorldLayout:
    """Return the world in ``state``; wait while an ``up`` starts it. WorldError without one."""
    _await_beginning(state, print_line)
    waiting = False
    while True:
        layout, notes = read_running(state)
        if notes.ready:
            return layout
        if notes.keeper is None or not notes.keeper.alive:
            raise WorldError(
                f"the world in {shown(state)} never got ready: `newsfabric down` first"
            )
        if not waiting:
            print_line(f"waiting for the world in {shown(state)} to be ready")
            waiting = True
        time.sleep(_LOOK_AGAIN)


def _await_beginning(state: Path, print_line: PrintLine) -> None:
    if read_notes(state) is not None:
        return
    print_line(f"no world in {shown(state)} yet; waiting {_MAY_APPEAR:.0f} s for one to start")
    deadline = time.monotonic() + _MAY_APPEAR
    while read_notes(state) is None and time.monotonic() < deadline:
        time.sleep(_LOOK_AGAIN)


def world_of(layout: WorldLayout) -> WorldPlaces:
    """Return the view of a world that the commands of `newsfabric` get."""
    return WorldPlaces(
        fabric=layout.fabric(),
        topics=layout.paths.topics,
        processes=tuple(_processes(layout)),
        stores={region.name: layout.store_url(region) for region in layout.regions},
        unwell=lambda: _unwell(layout),
    )


def _unwell(layout: WorldLayout) -> list[str]:
    # Imported late: few commands need it, and it needs most of this package.
    from localfabric.world.faults import Faults

    every = list(parts(layout).values())
    found = Faults(layout.paths.state).unwell(every)
    return [] if len(found) == len(every) else [part.name for part in found]


def _processes(layout: WorldLayout) -> Iterator[ProcessAddress]:
    for region in layout.regions:
        for router in region.of("router"):
            yield ProcessAddress("router", router.name, region.name, f"http://{HOST}:{router.port}")
        for box in region.boxes:
            yield ProcessAddress("gateway", box.gateway, region.name, box.admin_url)
