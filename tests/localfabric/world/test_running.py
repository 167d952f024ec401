"""The environment of a process, whichever command starts it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from localfabric.world.layout import lay_out
from localfabric.world.options import WorldOptions
from localfabric.world.processes import kill, marked
from localfabric.world.programs import ServiceProgram
from localfabric.world.running import Running
from localfabric.world.state import Notes, engine_variables, make_folder

OPTIONS = WorldOptions(regions=("oregon",))
TELLS = "import json, os; print(json.dumps(dict(os.environ)), flush=True)"


def environment_of(state: Path, notes: Notes) -> dict[str, str]:
    """Return the environment of a service that is started in the world of ``notes``."""
    layout = lay_out(OPTIONS, state)
    running = Running(layout, notes, {})
    running.start_program(ServiceProgram(name="tells", command=(sys.executable, "-c", TELLS)))
    try:
        running._children["tells"].wait(timeout=60)
    finally:
        kill(marked(state))
    found: dict[str, str] = json.loads(layout.paths.log("tells").read_text())
    return found


@pytest.mark.sockets
def test_what_is_healed_keeps_the_engine_that_the_world_was_started_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started_with = {"NEWSFABRIC_GATEWAY_ENGINE": "tornado", "NEWSFABRIC_LOG_FORMAT": "json"}
    notes = Notes(options=OPTIONS, processes={}, ready=True, engine=engine_variables(started_with))
    make_folder(tmp_path / "world", notes)
    # The environment of the process that heals it.
    monkeypatch.setenv("NEWSFABRIC_GATEWAY_ENGINE", "native")
    monkeypatch.setenv("NEWSFABRIC_DATAPLANE", "/elsewhere")
    monkeypatch.setenv("NEWSFABRIC_LOG_FORMAT", "text")
    found = environment_of(tmp_path / "world", notes)
    assert engine_variables(found) == {
        "NEWSFABRIC_GATEWAY_ENGINE": "tornado",
        "NEWSFABRIC_DATAPLANE": "/elsewhere",
    }
    assert found["NEWSFABRIC_LOG_FORMAT"] == "text"
