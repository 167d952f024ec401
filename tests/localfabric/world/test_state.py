import os
import stat
from pathlib import Path

import pytest

from localfabric.world.options import WorldOptions
from localfabric.world.processes import ProcessId, process_id
from localfabric.world.state import (
    Notes,
    check_free,
    dump_notes,
    locked,
    make_folder,
    parse_notes,
    read_notes,
    read_running,
    remove,
    write_notes,
)
from newsfabric.errors import WorldError

SELF = process_id(os.getpid())
DEAD = ProcessId(os.getpid(), 1)


def notes(**fields: object) -> Notes:
    return Notes(options=WorldOptions(), processes={"epmd": None}, **fields)  # type: ignore[arg-type]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "world"


def test_notes_are_read_as_they_were_written(state: Path) -> None:
    state.mkdir()
    written = Notes(
        options=WorldOptions(
            regions=("a",),
            retail=2,
            port_base=22000,
            rabbitmq="/r/3.10",
            rabbitmq_of=(("a", "/r/4.3"),),
        ),
        processes={"epmd": ProcessId(7, 70), "a-core-1": None},
        keeper=ProcessId(8, 80),
        ready=True,
        versions={"a-core-1": "4.3.6"},
        engine={"NEWSFABRIC_GATEWAY_ENGINE": "tornado"},
    )
    write_notes(state, written)
    assert read_notes(state) == written
    assert parse_notes(dump_notes(written)) == written


def test_notes_that_somebody_damaged_are_an_error_that_names_the_file(state: Path) -> None:
    state.mkdir()
    for text in ("", "[]", '{"options": {}}', '{"options": {"regions": ["A"]}}'):
        (state / "world.json").write_text(text)
        with pytest.raises(WorldError, match=r"world\.json isn't what newsfabric wrote"):
            read_notes(state)


def test_everything_in_the_folder_is_its_owners_alone(state: Path) -> None:
    make_folder(state, notes())
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert stat.S_IMODE((state / "world.json").stat().st_mode) == 0o600
    assert stat.S_IMODE((state / "logs").stat().st_mode) == 0o700


def test_a_pid_that_was_used_again_is_not_the_worlds_process() -> None:
    assert SELF is not None
    found = Notes(options=WorldOptions(), processes={"mine": SELF, "old": DEAD, "planned": None})
    assert found.running() == {"mine": SELF}


def test_what_a_dead_world_left_is_replaced(state: Path) -> None:
    make_folder(state, notes())
    (state / "store.sqlite").write_text("old")
    (state / "brokers" / "old").mkdir()
    check_free(state)
    make_folder(state, notes())
    assert sorted(entry.name for entry in state.iterdir()) == [
        "brokers",
        "definitions",
        "erlang",
        "fabric",
        "logs",
        "publishers",
        "sockets",
        "users",
        "world.json",
    ]
    assert list((state / "brokers").iterdir()) == []


def test_a_folder_with_something_else_in_it_is_refused_and_left_alone(state: Path) -> None:
    (state / "logs").mkdir(parents=True)
    (state / "logs" / "diary.txt").write_text("dear diary")
    with pytest.raises(WorldError, match="holds logs, which is no world's"):
        check_free(state)
    assert (state / "logs" / "diary.txt").read_text() == "dear diary"


def test_logs_that_were_kept_do_not_hinder_the_next_world(state: Path) -> None:
    make_folder(state, notes())
    (state / "logs" / "epmd.log").write_text("old")
    remove(state, keep_logs=True)
    assert (state / "logs" / "epmd.log").read_text() == "old"
    check_free(state)
    make_folder(state, notes())
    assert list((state / "logs").iterdir()) == []


def test_removing_leaves_what_is_not_the_worlds(state: Path) -> None:
    make_folder(state, notes())
    (state / "mine.txt").write_text("mine")
    remove(state)
    assert [entry.name for entry in state.iterdir()] == ["mine.txt"]
    (state / "mine.txt").unlink()
    remove(state)
    assert not state.exists()


def test_of_two_ups_at_once_the_second_is_refused(state: Path) -> None:
    with locked(state):
        with pytest.raises(WorldError, match="is running already"), locked(state):
            pass
        assert state.is_dir()
    assert not state.exists(), "nothing came of it, so nothing stays"


def test_no_world_and_a_dead_world_are_distinguished(state: Path) -> None:
    with pytest.raises(WorldError, match=r"no world in .*: start one with `newsfabric up`"):
        read_running(state)
    make_folder(state, notes(keeper=DEAD))
    with pytest.raises(WorldError, match="is dead: `newsfabric down` cleans up"):
        read_running(state)


def test_a_world_that_is_being_started_is_a_running_one(state: Path) -> None:
    make_folder(state, notes(keeper=SELF))
    layout, found = read_running(state)
    assert layout.paths.state == state
    assert not found.ready
