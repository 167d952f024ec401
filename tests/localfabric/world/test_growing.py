"""Boxes that are added and removed: the rules, without a process. Real ones are in tests/e2e."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import PORTS

from localfabric.world import growing
from localfabric.world.growing import boxes, end, fresh_number, want
from localfabric.world.layout import lay_out
from localfabric.world.options import MAX_BOXES, WorldOptions
from localfabric.world.parts import parts
from localfabric.world.processes import ProcessId, process_id, ticks_since_boot
from localfabric.world.programs import region_programs
from localfabric.world.running import planned
from localfabric.world.state import Notes, dump_notes, make_folder, parse_notes, read_notes
from newsfabric.errors import ConfigError, WorldError

SELF = process_id(os.getpid())
TICKS = os.sysconf("SC_CLK_TCK")
TOPICS = Path(__file__).parents[3] / "topics.toml"
# Ports at which no world of a developer's should be up.
OPTIONS = WorldOptions(regions=("oregon", "dublin"), retail=2, port_base=PORTS + 2500)

numbers = st.sets(st.integers(1, MAX_BOXES), max_size=MAX_BOXES)


def a_world(state: Path, *, ready: bool = True, **processes: ProcessId | None) -> Path:
    named = {name.replace("_", "-"): process for name, process in processes.items()}
    notes = Notes(
        options=OPTIONS,
        processes={**planned(lay_out(OPTIONS, state)), "epmd": SELF, **named},
        ready=ready,
    )
    make_folder(state, notes)
    return state


@given(numbers)
def test_a_region_has_the_boxes_of_its_numbers_and_no_other_region_changes(
    given: set[int],
) -> None:
    layout = lay_out(OPTIONS.with_boxes("dublin", given), Path("/tmp/w"))
    assert [box.name for box in layout.region("dublin").boxes] == [
        f"dublin-retail-{n}" for n in sorted(given)
    ]
    assert layout.region("oregon") == lay_out(OPTIONS, Path("/tmp/w")).region("oregon")
    ports = [port for port, _ in layout.ports()]
    assert len(ports) == len(set(ports))


@given(numbers)
def test_a_box_keeps_its_ports_whoever_comes_and_goes(given: set[int]) -> None:
    alone = lay_out(OPTIONS.with_boxes("oregon", {3}), Path("/tmp/w")).region("oregon").boxes[0]
    among = lay_out(OPTIONS.with_boxes("oregon", given | {3}), Path("/tmp/w")).region("oregon")
    assert alone in among.boxes


def test_notes_remember_which_boxes_there_are_and_which_was_the_newest() -> None:
    options = dataclasses.replace(
        OPTIONS.with_boxes("oregon", {2, 5}), box_capacity=4000, scale=(1, 6)
    )
    notes = Notes(options=options, processes={}, newest={"oregon": 5})
    assert parse_notes(dump_notes(notes)) == notes


@pytest.mark.parametrize(
    "wrong",
    [
        {"boxes": ((1,),)},
        {"boxes": ((1, 10), (1,))},
        {"boxes": ((0,), (1,))},
        {"boxes": ((2, 1), (1,))},
        {"box_capacity": 0},
        {"scale": (0, 3)},
        {"scale": (4, 3)},
        {"scale": (1, 10)},
    ],
)
def test_boxes_that_there_cannot_be_are_a_config_error(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        dataclasses.replace(OPTIONS, **wrong)  # type: ignore[arg-type]


@given(numbers.filter(lambda found: len(found) < MAX_BOXES), st.integers(0, MAX_BOXES))
def test_a_new_box_has_a_number_that_is_free_and_follows_the_newest(
    there: set[int], newest: int
) -> None:
    number = fresh_number(there, newest)
    assert 1 <= number <= MAX_BOXES
    between = [(newest + step) % MAX_BOXES + 1 for step in range(MAX_BOXES)]
    assert set(between[: between.index(number)]) <= there
    assert number not in there


def test_a_number_is_not_given_again_before_the_others_were() -> None:
    newest, had = 1, []
    for _ in range(MAX_BOXES - 1):
        newest = fresh_number({1}, newest)
        had.append(newest)
    assert had == [2, 3, 4, 5, 6, 7, 8, 9]


@pytest.mark.sockets
@pytest.mark.parametrize("ended", [["oregon-retail-2"], ["oregon-retail-1", "oregon-retail-2"]])
def test_the_number_of_a_box_that_was_ended_is_not_the_next_one_either(
    tmp_path: Path, ended: list[str]
) -> None:
    state = a_world(tmp_path / "world")
    (state / "topics.toml").write_bytes(TOPICS.read_bytes())
    assert end(state, ended) == tuple(ended)
    notes = read_notes(state)
    assert notes is not None
    assert notes.newest == {"oregon": 2}


def test_more_boxes_than_there_is_room_for_are_an_error() -> None:
    with pytest.raises(WorldError, match="no room"):
        fresh_number(set(range(1, MAX_BOXES + 1)), 3)


def test_with_scalers_there_are_two_a_region_which_are_parts_of_the_world() -> None:
    layout = lay_out(dataclasses.replace(OPTIONS, scale=(1, 6), box_capacity=50), Path("/tmp/w"))
    scalers = [name for name, part in parts(layout).items() if part.kind == "scaler"]
    assert scalers == [f"{r}-scaler-{n}" for r in ("oregon", "dublin") for n in (1, 2)]
    (program,) = (
        p for p in region_programs(layout, layout.regions[0]) if p.name == "oregon-scaler-2"
    )
    options = dict(zip(program.command[4::2], program.command[5::2], strict=True))
    assert (options["--least"], options["--most"], options["--per-box"]) == ("1", "6", "50")
    assert (options["--driver"], options["--world"]) == ("world", "/tmp/w")
    gateways = [
        p for p in region_programs(layout, layout.regions[0]) if p.name.endswith("-gateway")
    ]
    assert all("--capacity 50" in " ".join(p.command) for p in gateways)


def test_a_box_is_as_old_as_the_oldest_of_its_processes(tmp_path: Path) -> None:
    now = int(ticks_since_boot())
    state = a_world(
        tmp_path / "world",
        oregon_retail_2=ProcessId(1, now - 90 * TICKS),
        oregon_retail_2_agent=ProcessId(1, now - 10 * TICKS),
        dublin_retail_1_gateway=SELF,
    )
    found = {box.name: box for box in boxes(state)}
    assert [*found] == [f"{r}-retail-{n}" for r in ("oregon", "dublin") for n in (1, 2)]
    assert found["oregon-retail-2"].age_seconds == pytest.approx(90, abs=5)
    assert not found["oregon-retail-2"].alive
    assert found["dublin-retail-1"].alive
    assert found["oregon-retail-1"].age_seconds == 0
    assert [box.name for box in boxes(state, "dublin")] == ["dublin-retail-1", "dublin-retail-2"]


def test_nothing_is_started_or_ended_without_a_world_or_before_it_is_ready(tmp_path: Path) -> None:
    for act in (lambda s: want(s, "oregon", 3), lambda s: end(s, ["oregon-retail-1"])):
        with pytest.raises(WorldError, match="no world"):
            act(tmp_path / "none")
    state = a_world(tmp_path / "world", ready=False)
    for act in (lambda s: want(s, "oregon", 3), lambda s: end(s, ["oregon-retail-1"])):
        with pytest.raises(WorldError, match="still being started"):
            act(state)


def test_what_is_there_already_is_not_started_again(tmp_path: Path) -> None:
    state = a_world(tmp_path / "world")
    before = read_notes(state)
    assert want(state, "oregon", 2) == ()
    assert want(state, "oregon", 0) == ()
    assert end(state, ["oregon-retail-7", "nobody"]) == ()
    assert read_notes(state) == before


def test_a_region_that_is_not_there_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no region 'lima'"):
        want(a_world(tmp_path / "world"), "lima", 3)


@pytest.mark.sockets
def test_a_core_that_does_not_answer_lets_nothing_be_started(tmp_path: Path) -> None:
    state = a_world(tmp_path / "world")
    (state / "topics.toml").write_bytes(TOPICS.read_bytes())
    before = read_notes(state)
    with pytest.raises(WorldError, match="the core of oregon doesn't take a new box"):
        want(state, "oregon", 3)
    assert read_notes(state) == before


@pytest.mark.sockets
def test_no_more_boxes_boot_at_a_time_than_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = a_world(tmp_path / "world", oregon_retail_2=SELF)
    # The box is alive, young, and doesn't answer at its port.
    monkeypatch.setattr(growing, "_BOOTS_WITHIN", 1e9)
    assert want(state, "oregon", 5) == ()


def test_more_than_there_is_room_for_is_reported(tmp_path: Path) -> None:
    state = a_world(tmp_path / "world")
    with pytest.raises(WorldError, match="room for 9 boxes, 12 are wanted"):
        want(state, "oregon", 12, at_once=0)
