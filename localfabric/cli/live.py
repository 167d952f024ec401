"""The view of ``newsfabric up`` while it stays in the foreground."""

from __future__ import annotations

import asyncio
from typing import Final

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from localfabric.cli.show import live_table
from localfabric.world.layout import lay_out
from localfabric.world.running import Running
from localfabric.world.state import read_notes
from localfabric.world.status import observe, status_document
from newsfabric.console import console

_EVERY: Final = 2.0


async def watch_world(running: Running) -> None:
    """Show the state of the world, until cancelled. Without a terminal, print only deaths."""
    terminal = console(stderr=True)
    if not terminal.is_terminal:
        await _say_deaths(running)
        return
    with Live(console=terminal, auto_refresh=False, transient=True) as live:
        while True:
            live.update(await _view(running), refresh=True)
            await asyncio.sleep(_EVERY)


async def _say_deaths(running: Running) -> None:
    terminal = console(stderr=True)
    shown: set[str] = set()
    while True:
        for name, ending in running.died().items():
            if name not in shown:
                shown.add(name)
                terminal.print(f"{name} {ending}", soft_wrap=True)
        await asyncio.sleep(_EVERY)


async def _view(running: Running) -> RenderableType:
    # Read from the folder: parts may have been restarted, or boxes added.
    notes = read_notes(running.layout.paths.state) or running.notes
    layout = lay_out(notes.options, running.layout.paths.state)
    document = status_document(layout, notes, await observe(layout))
    dead = notes.processes.keys() & running.died().keys() - notes.running().keys()
    deaths = [
        Text(f"{name} {ending}", style="bold red")
        for name, ending in running.died().items()
        if name in dead
    ]
    return Group(live_table(document), *deaths, Text("Ctrl-C stops everything", style="dim"))
