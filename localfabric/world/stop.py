"""Ends a world and leaves nothing behind, whatever state it is in. Idempotent; blocks.

Services get time to notify their readers, and so do data planes whose gateway is dead (a living
gateway ends its own, and would replace one that we ended). Brokers and store nodes are killed:
their data is removed with them, and six orderly shutdowns would take a minute to the same end.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from localfabric.world.broker import listening
from localfabric.world.dataplanes import dataplanes
from localfabric.world.layout import WorldLayout, lay_out
from localfabric.world.processes import ProcessId, command_of, end, kill, marked
from localfabric.world.running import EPMD
from localfabric.world.state import Notes, has_notes, read_notes, remove
from newsfabric.errors import WorldError

# A gateway's drain notifies its readers at a paced rate; here there are few of them.
_SERVICE_GRACE: Final = 8.0
# ``up`` ends its own world on SIGTERM, which takes it as long as it takes us.
_KEEPER_GRACE: Final = 30.0
_PORT_GRACE: Final = 10.0
_ROUNDS: Final = 5


def stop_world(state: Path, *, keep_logs: bool = False, print_line: Callable[[str], None]) -> bool:
    """End the world in ``state`` and remove its files; return False if there was none.

    WorldError when a process or a port is left nevertheless.
    """
    if not _is_there(state):
        return False
    if (notes := _notes_if_readable(state)) is not None and notes.keeper is not None:
        _end_keeper(notes.keeper, print_line)
    # If there was a keeper in good order, it has ended the world with itself.
    if _is_there(state):
        _stop(state, keep_logs=keep_logs, print_line=print_line)
    return True


def _is_there(state: Path) -> bool:
    return has_notes(state) or bool(marked(state))


def _stop(state: Path, *, keep_logs: bool, print_line: Callable[[str], None]) -> None:
    notes = _notes_if_readable(state)
    if notes is not None:
        print_line("stopping the services")
        end(_services(notes, lay_out(notes.options, state)), grace=_SERVICE_GRACE)
    end([found.process for found in dataplanes(state)], grace=_SERVICE_GRACE)
    print_line("stopping the brokers")
    _kill_all(state)
    if has_notes(state):
        remove(state, keep_logs=keep_logs)
    if notes is not None:
        _await_closed_ports(lay_out(notes.options, state))


def _notes_if_readable(state: Path) -> Notes | None:
    # Notes that are damaged are no reason to leave brokers running.
    with contextlib.suppress(WorldError):
        return read_notes(state)
    return None


def _end_keeper(keeper: ProcessId, print_line: Callable[[str], None]) -> None:
    """End the ``up`` that would otherwise start more processes, unless it is this process."""
    if keeper.alive and keeper.pid != os.getpid():
        print_line(f"ending `newsfabric up`, pid {keeper.pid}")
        end([keeper], grace=_KEEPER_GRACE)


def _services(notes: Notes, layout: WorldLayout) -> list[ProcessId]:
    servers = {EPMD, *(broker.name for broker in layout.brokers())}
    servers |= {node.name for node in layout.store_nodes()}
    return [process for name, process in notes.running().items() if name not in servers]


def _kill_all(state: Path) -> None:
    """Kill until no process with the mark is left: a dying process may just have had a child."""
    for _ in range(_ROUNDS):
        processes = marked(state)
        if not processes:
            return
        kill(processes)
    left = "; ".join(f"{p.pid} {command_of(p)[:80]}" for p in marked(state))
    if left:
        raise WorldError(f"these processes can't be killed: {left}")


def _await_closed_ports(layout: WorldLayout) -> None:
    # A zombie counts as dead, but its last threads may not have closed the sockets yet.
    deadline = time.monotonic() + _PORT_GRACE
    for port, purpose in layout.ports():
        while listening(port):
            if time.monotonic() > deadline:
                raise WorldError(f"somebody else now listens on port {port} ({purpose})")
            time.sleep(0.05)
