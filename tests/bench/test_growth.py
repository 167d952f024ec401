"""The growth of costs: the report on the figures, and a small real run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bench.growth import __main__ as command
from bench.growth.rate import saturation
from bench.growth.table import Figure, Growth, print_tables, write
from bench.growth.worlds import roles
from bench.meter import machine
from bench.programs import ROOT
from bench.rows import NotMeasured
from newsfabric.errors import SetupError

READERS = Growth(
    "Readers of one gateway",
    "readers",
    (Figure("a delivery", "µs"), Figure("× floor", ""), Figure("… of it control", "µs", 3)),
    ((1_000, (9.0, 1.05, 0.08)), (100_000, (9.9, 1.11, 0.0114))),
    "It holds.",
)


def test_a_row_has_the_size_and_each_value_in_its_digits() -> None:
    assert READERS.head == ["readers", "a delivery, µs", "× floor", "… of it control, µs"]
    assert READERS.rows == [
        ["1,000", "9.00", "1.05", "0.080"],
        ["100,000", "9.90", "1.11", "0.011"],
    ]


def test_a_plot_has_a_panel_for_each_unit_and_sizes_below() -> None:
    plot = READERS.plot()
    assert plot.count("<polyline") == 3
    for text in ("Readers of one gateway", ">µs<", ">ratio<", ">1,000<", ">100,000<"):
        assert text in plot


def test_a_report_has_tables_plots_and_what_was_not_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {"readers": READERS, "rate-cassandra": NotMeasured("no [Java]")}
    write(tmp_path, found, "python -m bench.growth", machine())
    text = (tmp_path / "report.md").read_text("utf-8")
    assert "| 100,000 | 9.90 | 1.11 | 0.011 |" in text
    assert "![Readers of one gateway](readers.svg)" in text
    assert "It holds." in text
    assert "## rate-cassandra\n\nNot measured: no [Java]" in text
    assert (tmp_path / "readers.svg").read_text("utf-8").startswith("<svg")
    document = json.loads((tmp_path / "report.json").read_text("utf-8"))
    assert document["parts"]["readers"]["command"] == "python -m bench.growth"
    assert document["parts"]["readers"]["rows"][0] == {
        "readers": 1_000,
        "a delivery, µs": 9.0,
        "× floor": 1.05,
        "… of it control, µs": 0.08,
    }
    assert document["parts"]["rate-cassandra"]["not_measured"] == "no [Java]"
    print_tables(found)
    assert "rate-cassandra: not measured: no [Java]" in capsys.readouterr().out


def test_parts_that_are_not_measured_anew_stay_in_a_report(tmp_path: Path) -> None:
    store = Growth("A store", "messages", (Figure("one written", "µs"),), ((10, (2.5,)),))
    write(tmp_path, {"readers": READERS, "store": store}, "python -m bench.growth", machine())
    anew = Growth("A store", "messages", (Figure("one written", "µs"),), ((10, (3.25,)),))
    write(tmp_path, {"store": anew}, "python -m bench.growth store", machine())
    parts = json.loads((tmp_path / "report.json").read_text("utf-8"))["parts"]
    assert list(parts) == ["readers", "store"]
    assert parts["readers"]["command"] == "python -m bench.growth"
    assert parts["store"]["rows"] == [{"messages": 10, "one written, µs": 3.25}]
    text = (tmp_path / "report.md").read_text("utf-8")
    assert "| 100,000 | 9.90 | 1.11 | 0.011 |" in text
    assert "| 10 | 3.25 |\n\n`python -m bench.growth store`, " in text
    assert "2.50" not in text


def test_one_size_alone_is_no_plot(tmp_path: Path) -> None:
    write(tmp_path, {"a": Growth("A", "a", (), ((1, ()),))}, "python", machine())
    assert not (tmp_path / "a.svg").exists()


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        (
            [(500, (500, 499, 0.1, 0.1, 0, 0.1)), (1_000, (1_000, 960, 0.2, 0.2, 0, 0.2))],
            "It kept up with all that was offered, 960 messages a second.",
        ),
        (
            [(500, (500, 500, 0.1, 0.1, 0, 0.1)), (9_000, (9_000, 5_100, 0.98, 0.5, 0, 0.4))],
            "It kept up with 500 messages a second. At 9,000 messages wait; busiest was the "
            "router, 0.98 of a core.",
        ),
        (
            [(9_000, (5_000, 5_000, 0.5, 0.5, 0, 0.97))],
            "It kept up with 0 messages a second. At 9,000 the publisher isn't that fast; busiest "
            "was the publisher, 0.97 of a core.",
        ),
    ],
)
def test_what_gives_first_is_named(steps: Sequence[tuple[int, Any]], says: str) -> None:
    assert saturation(steps) == says


def test_processes_of_a_region_are_distinguished_by_what_they_do() -> None:
    region = {
        "brokers": [
            {"role": "client", "pid": 1},
            {"role": "core", "pid": 2},
            {"role": "core", "pid": None},
            {"role": "retail", "pid": 3},
        ],
        "services": [
            {"name": "oregon-router-1", "pid": 4},
            {"name": "oregon-keeper", "pid": 5},
        ],
        "gateways": [{"pid": 6, "dataplane_pid": 7}, {"pid": 8, "dataplane_pid": None}],
    }
    assert roles(region) == {
        "client": [1],
        "core": [2],
        "retail": [3],
        "routers": [4],
        "services": [5],
        "gateways": [6, 7, 8],
    }


def test_a_part_that_cannot_run_says_why_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_arguments: Any) -> Growth:
        raise SetupError("cargo is missing")

    parts = {
        "readers": command.Part(fails, full=(), quick=()),
        "store": command.Part(lambda sizes: READERS, full=((1,),), quick=((2,),)),
    }
    monkeypatch.setattr(command, "PARTS", parts)
    done = CliRunner().invoke(command.main, ["--report", str(tmp_path)])
    assert done.exit_code == 0, done.output
    document = json.loads((tmp_path / "report.json").read_text("utf-8"))
    assert document["parts"]["readers"]["not_measured"] == "cargo is missing"
    assert document["parts"]["store"]["title"] == "Readers of one gateway"


def test_a_store_is_measured_as_it_fills(tmp_path: Path) -> None:
    done = CliRunner().invoke(command.main, ["store", "--quick", "--report", str(tmp_path)])
    assert done.exit_code == 0, done.output
    rows = json.loads((tmp_path / "report.json").read_text("utf-8"))["parts"]["store"]["rows"]
    assert [row["messages"] for row in rows] == [500, 1_000]
    assert all(value > 0 for row in rows for value in row.values())


@pytest.mark.long
@pytest.mark.cargo
@pytest.mark.broker
@pytest.mark.timeout(1200)
@pytest.mark.xdist_group("bench")
def test_a_gateway_and_a_router_are_measured_at_several_sizes(tmp_path: Path) -> None:
    arguments = ["readers", "topics", "rate", "--quick", "--report", str(tmp_path)]
    subprocess.run(
        [sys.executable, "-m", "bench.growth", *arguments], check=True, cwd=ROOT, timeout=900
    )
    parts = json.loads((tmp_path / "report.json").read_text("utf-8"))["parts"]
    sizes = {name: [next(iter(row.values())) for row in parts[name]["rows"]] for name in parts}
    assert sizes == {"readers": [200, 400], "topics": [1, 200], "rate": [100, 200]}
    assert [row["deliveries a message"] for row in parts["topics"]["rows"]] == [100, 1]
