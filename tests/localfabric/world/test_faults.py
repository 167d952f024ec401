import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from localfabric.world.faults import Faults
from localfabric.world.finding import world_of
from localfabric.world.layout import lay_out
from localfabric.world.options import WorldOptions
from localfabric.world.parts import find_parts
from localfabric.world.processes import MARKER, ProcessId, kill, marked, process_id, spawn
from localfabric.world.running import planned
from localfabric.world.state import Notes, make_folder, write_notes
from newsfabric.errors import WorldError

pytestmark = pytest.mark.sockets

OPTIONS = WorldOptions(regions=("oregon",))
PAUSES = [sys.executable, "-c", "import signal; signal.pause()"]


class Pretended:
    """The notes of a world in which one router is a process that does nothing."""

    def __init__(self, state: Path) -> None:
        self.state = state
        layout = lay_out(OPTIONS, state)
        notes = Notes(options=OPTIONS, processes=dict(planned(layout)), ready=True)
        make_folder(state, notes)
        variables = {**os.environ, MARKER: str(state)}
        self._child = spawn(PAUSES, environment=variables, folder=state, log=state / "logs" / "x")
        found = process_id(self._child.pid)
        assert found is not None
        self.process: ProcessId = found
        write_notes(
            state,
            Notes(
                options=OPTIONS,
                processes=notes.processes | {"oregon-router-1": found},
                keeper=process_id(os.getpid()),
                ready=True,
            ),
        )
        self.faults = Faults(state)
        self.router, self.other = find_parts(layout, ["oregon-router-1", "oregon-router-2"])

    def reap(self) -> int:
        return self._child.wait()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Pretended]:
    pretended = Pretended(tmp_path)
    yield pretended
    kill(marked(tmp_path))
    pretended.reap()


def _outcomes(world: Pretended, verb: str) -> list[str]:
    return [done.done for done in world.faults.apply(verb, [world.router])]  # type: ignore[arg-type]


def test_what_is_killed_is_dead_and_killing_it_again_is_no_error(world: Pretended) -> None:
    assert _outcomes(world, "kill") == ["killed"]
    assert not world.process.alive
    assert _outcomes(world, "kill") == ["was dead"]


def test_what_is_stopped_lives_and_goes_on(world: Pretended) -> None:
    assert _outcomes(world, "stop") == ["stopped"]
    assert world.process.alive
    assert world.process.stopped
    assert world.faults.unwell([world.router]) == [world.router]
    assert _outcomes(world, "cont") == ["goes on"]
    assert not world.process.stopped
    assert world.faults.unwell([world.router]) == []


def test_healing_lets_go_on_what_is_stopped_and_leaves_alone_what_is_well(world: Pretended) -> None:
    world.faults.apply("stop", [world.router])
    assert [done.done for done in world.faults.heal([world.router])] == ["goes on"]
    assert [done.done for done in world.faults.heal([world.router])] == ["was well"]


def test_a_dead_part_cant_be_stopped_and_then_nothing_is(world: Pretended) -> None:
    with pytest.raises(WorldError, match="oregon-router-2 is dead"):
        world.faults.apply("stop", [world.router, world.other])
    assert not world.process.stopped


def test_commands_learn_which_parts_are_unwell_while_others_work(world: Pretended) -> None:
    layout = lay_out(OPTIONS, world.state)
    unwell = world_of(layout).unwell()
    assert "oregon-router-1" not in unwell
    assert {"oregon-router-2", "oregon-client-1"} <= set(unwell)
    world.faults.apply("kill", [world.router])
    world.reap()
    # No part works: there is no world to heal.
    assert world_of(layout).unwell() == []
