"""A figure with its target and its floor, or the reason for which there is none."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench import __main__ as command
from bench.delivery import in_turn
from bench.meter import processor_seconds, resident_bytes
from bench.rows import BenchRow, NotMeasured, as_json, measured, print_table
from newsfabric.errors import SetupError


@pytest.mark.parametrize(
    ("row", "reached", "asked"),
    [
        (BenchRow("f", 1.0, "ms", at_most=1), True, "≤ 1 ms"),
        (BenchRow("f", 1.1, "ms", at_most=1), False, "≤ 1 ms"),
        (BenchRow("f", 12_000, "/s", at_least=12_000), True, "≥ 12,000 /s"),
        (BenchRow("f", 11_999, "/s", at_least=12_000), False, "≥ 12,000 /s"),
        (BenchRow("f", 1.0, "ms"), None, ""),
    ],
)
def test_a_limit_is_kept_or_missed(row: BenchRow, reached: bool | None, asked: str) -> None:
    assert (row.reached, row.asked) == (reached, asked)


def test_a_value_is_shown_beside_its_floor() -> None:
    row = BenchRow("f", 9.0, "µs", digits=2, floor=8.0)
    assert (row.measured, row.ratio) == ("9.00 µs", "1.12")
    assert BenchRow("f", 9.0, "µs").ratio == ""


async def test_floor_and_gateway_take_turns_and_their_medians_are_compared() -> None:
    order = []

    async def floor() -> float:
        order.append("floor")
        return [5.0, 1.0, 2.0][order.count("floor") - 1]

    async def gateway() -> float:
        order.append("gateway")
        return [3.0, 9.0, 4.0][order.count("gateway") - 1]

    assert await in_turn(3, floor, gateway) == (2.0, 4.0)
    assert order == ["floor", "gateway", "gateway", "floor", "floor", "gateway"]


def test_a_process_is_measured_by_its_number() -> None:
    before = processor_seconds(os.getpid())
    sum(range(3_000_000))
    assert processor_seconds(os.getpid()) > before
    assert resident_bytes(os.getpid()) > 1_000_000


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (SetupError("Cassandra needs Java 17"), "Cassandra needs Java 17"),
        (TimeoutError("no reader came"), "TimeoutError: no reader came"),
    ],
)
def test_a_part_that_cannot_run_says_why(error: Exception, why: str) -> None:
    def part() -> list[BenchRow]:
        raise error

    assert measured(part) == NotMeasured(why)


def test_the_table_shows_parts_that_ran_and_why_others_did_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    row = BenchRow("f", 1.0, "s", at_most=2)
    sections = [("store", NotMeasured("no [Java]")), ("resume", [row])]
    print_table(sections)
    lines = [line.split("│")[1:-1] for line in capsys.readouterr().out.splitlines()]
    shown = [[cell.strip() for cell in line] for line in lines if len(line) == 5]
    assert ["not measured: no [Java]", "", "", "", ""] in shown
    assert ["f", "1.0 s", "≤ 2 s", "", "yes"] in shown
    assert as_json(sections) == {
        "store": {"not_measured": "no [Java]"},
        "resume": [row.as_json()],
    }


def test_an_interrupted_run_leaves_what_it_has_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted() -> list[BenchRow]:
        raise KeyboardInterrupt

    row = BenchRow("f", 1.0, "ms")
    monkeypatch.setitem(command.PARTS, "store", lambda: [row])  # type: ignore[misc]
    monkeypatch.setitem(command.PARTS, "idle", interrupted)  # type: ignore[misc]
    arguments = ["store", "idle", "--json", str(tmp_path / "found.json")]
    done = CliRunner().invoke(command.main, arguments)
    assert done.exit_code == 1
    assert "1.0 ms" in done.output
    assert list(json.loads((tmp_path / "found.json").read_text("utf-8"))) == ["store"]
