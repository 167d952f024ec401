import os
import threading
from pathlib import Path

import pytest

from localfabric.world.finding import ready_layout, world_of
from localfabric.world.layout import lay_out
from localfabric.world.options import WorldOptions
from localfabric.world.processes import ProcessId, process_id
from localfabric.world.state import Notes, make_folder, write_notes
from newsfabric.errors import WorldError

SELF = process_id(os.getpid())
DEAD = ProcessId(os.getpid(), 1)


OREGON = lay_out(WorldOptions(regions=("oregon",)), Path("/w"))


def notes(*, ready: bool, keeper: ProcessId | None) -> Notes:
    return Notes(options=WorldOptions(), processes={"epmd": SELF}, keeper=keeper, ready=ready)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "world"


def test_a_world_that_is_ready_is_there_at_once(state: Path) -> None:
    make_folder(state, notes(ready=True, keeper=None))
    seen: list[str] = []
    assert ready_layout(state, seen.append).paths.state == state
    assert seen == []


def test_a_world_that_is_being_started_is_waited_for_and_reported_once(state: Path) -> None:
    make_folder(state, notes(ready=False, keeper=SELF))
    seen: list[str] = []

    def print_line(text: str) -> None:
        seen.append(text)
        # `up` writes this once its canaries have arrived.
        threading.Timer(0.3, write_notes, (state, notes(ready=True, keeper=None))).start()

    assert ready_layout(state, print_line).paths.state == state
    assert seen == [f"waiting for the world in {state} to be ready"]


def test_a_world_whose_start_was_killed_is_not_waited_for(state: Path) -> None:
    make_folder(state, notes(ready=False, keeper=DEAD))
    with pytest.raises(WorldError, match="never got ready: `newsfabric down` first"):
        ready_layout(state, lambda _text: None)


def test_commands_are_given_the_addresses_of_routers_gateways_and_stores() -> None:
    world = world_of(OREGON)
    assert [region.name for region in world.fabric.regions] == ["oregon"]
    assert (world.topics, world.stores) == (
        Path("/w/topics.toml"),
        {"oregon": "sqlite:/w/store.sqlite"},
    )
    assert world.processes == (
        ("router", "oregon-router-1", "oregon", "http://127.0.0.1:18101"),
        ("router", "oregon-router-2", "oregon", "http://127.0.0.1:18102"),
        ("gateway", "oregon-retail-1-gateway", "oregon", "http://127.0.0.1:18144"),
    )
