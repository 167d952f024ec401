"""The data planes of a world: a gateway's second process, which outlives the first on purpose.

No program of the world starts one: its gateway does, and it stays when the gateway is killed. So it
is found like all processes here, by the mark in its environment. The control socket in its command
line identifies it.
"""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Final

from localfabric.world.processes import ProcessId, arguments_of, marked

_OPTION: Final = "--control"


@dataclasses.dataclass(frozen=True, slots=True)
class LivingDataplane:
    """A living data plane, and the socket on which it listens for its control plane."""

    process: ProcessId
    socket: Path


def dataplanes(state: Path) -> list[LivingDataplane]:
    """Return every living data plane of the world in ``state``."""
    found = ((process, control_socket(arguments_of(process))) for process in marked(state))
    return [LivingDataplane(process, socket) for process, socket in found if socket is not None]


def control_socket(arguments: list[str]) -> Path | None:
    """Return the control socket in a data plane's ``arguments``; None if it is no data plane."""
    for option, value in itertools.pairwise(arguments):
        if option == _OPTION:
            return Path(value)
    return None
