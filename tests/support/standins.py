"""Replacements for a service of a running world: the service is killed, and another one runs.

It has the same name, ports and login, so that no other process notices. But its options differ, or
its limits (tests/support/limited.py). Afterwards the world's own service is dead until the
world is mended (:meth:`worlds.World.mend`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from worlds import ROOT, World

from localfabric.world.layout import WorldLayout, lay_out
from localfabric.world.processes import MARKER
from localfabric.world.programs import ServiceProgram, region_programs
from localfabric.world.state import read_running

LIMITED = Path(__file__).parent / "limited.py"
PATIENCE = 60.0


def layout_of(world: World, *, scale: tuple[int, int] | None = None) -> WorldLayout:
    """Return the world's layout; with ``scale`` as if it had scalers."""
    layout, notes = read_running(world.state)
    if scale is None:
        return layout
    return lay_out(dataclasses.replace(notes.options, scale=scale), world.state)


def program_of(layout: WorldLayout, name: str) -> ServiceProgram:
    """Return the program of the service called ``name``."""
    programs = (p for region in layout.regions for p in region_programs(layout, region))
    return next(program for program in programs if program.name == name)


@contextlib.contextmanager
def instead(
    world: World,
    *names: str,
    limits: Mapping[str, Any] | None = None,
    variables: Mapping[str, str] | None = None,
    ready: bool = True,
    **options: object,
) -> Iterator[None]:
    """Kill these parts of the world; run the first again with other limits and options.

    ``variables`` are added to its environment. The block begins when the service is ready, or
    without ``ready`` at once.
    """
    killed = world.run("chaos", "kill", *names)
    assert killed.returncode == 0, killed.stderr
    program = program_of(layout_of(world), names[0])
    environment = (*program.variables, *(variables or {}).items())
    program = dataclasses.replace(program, variables=environment)
    with running(world, program, limits=limits, **options):
        if ready:
            _await_ready(program)
        yield


@contextlib.contextmanager
def running(
    world: World,
    program: ServiceProgram,
    *,
    limits: Mapping[str, Any] | None = None,
    **options: object,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``program`` until the block ends; of options given twice the last one counts."""
    _, dash_m, *words = program.command
    assert dash_m == "-m"
    more = [word for name, value in options.items() for word in (_option(name), str(value))]
    command = [sys.executable, str(LIMITED), json.dumps(dict(limits or {})), *words, *more]
    environment = os.environ | dict(program.variables) | {MARKER: str(world.state)}
    with (world.state / "logs" / f"{program.name}-instead.log").open("ab") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _await_ready(program: ServiceProgram) -> None:
    words = program.command
    url = f"http://127.0.0.1:{words[words.index('--port') + 1]}/healthz/ready"
    deadline = time.monotonic() + PATIENCE
    while not _answers(url):
        assert time.monotonic() < deadline, f"{program.name} isn't ready"
        time.sleep(0.1)


def _answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=5):
            return True
    except OSError:
        return False


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
