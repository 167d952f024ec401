import os
import threading
from pathlib import Path

import pytest

from newsfabric.cli.find_world import world_to_read
from newsfabric.errors import WorldError
from newsfabric.world.layout import WorldOptions
from newsfabric.world.processes import ProcessId, process_id
from newsfabric.world.state import Notes, make_folder, write_notes

SELF = process_id(os.getpid())
DEAD = ProcessId(os.getpid(), 1)


def notes(*, ready: bool, keeper: ProcessId | None) -> Notes:
    return Notes(options=WorldOptions(), processes={"epmd": SELF}, keeper=keeper, ready=ready)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "world"


def test_a_world_that_is_ready_is_there_at_once(state: Path) -> None:
    make_folder(state, notes(ready=True, keeper=None))
    said: list[str] = []
    assert world_to_read(state, said.append).paths.state == state
    assert said == []


def test_a_world_that_is_being_started_is_waited_for_and_said_so_once(state: Path) -> None:
    make_folder(state, notes(ready=False, keeper=SELF))
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        # What `up` does when its canaries have arrived.
        threading.Timer(0.3, write_notes, (state, notes(ready=True, keeper=None))).start()

    assert world_to_read(state, say).paths.state == state
    assert said == [f"waiting for the world in {state} to be ready"]


def test_a_world_whose_start_was_killed_is_not_waited_for(state: Path) -> None:
    make_folder(state, notes(ready=False, keeper=DEAD))
    with pytest.raises(WorldError, match="never got ready: `newsfabric down` first"):
        world_to_read(state, lambda _text: None)
