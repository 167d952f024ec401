"""The findings about a surge, from samples that are made up here; and a small real surge."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from worlds import PORTS, ROOT, ports_in_use, require_rabbitmq

from loadtest.surge.figures import Figures, SurgeSample, figures
from loadtest.surge.report import boxes_over_time, write_report
from loadtest.surge.run import SurgeOptions
from loadtest.times import added

ONE, TWO = ("a-retail-1",), ("a-retail-1", "a-retail-2")
CENSUS = {
    "readers": 1000,
    "messages": 10,
    "owed": 9000,
    "lost": 0,
    "late": 0,
    "doubled": 0,
    "never_in": 0,
}


def sample(at: float, present: int, **other: Any) -> SurgeSample:
    nothing = dict.fromkeys(
        ("refused", "failed", "broken", "moved", "returned", "gaps", "messages", "doubled"), 0
    )
    fields: dict[str, Any] = {
        "phase": "surge",
        "arrived": present,
        "left": 0,
        "started": ONE,
        "standing": 1,
        "wanted": None,
        "repeats": 0,
        "arrivals": {2.0: 100},
    }
    return SurgeSample(at=at, present=present, **nothing | fields | other)


def a_run(**changes: Any) -> list[SurgeSample]:
    """Return ten seconds in which a thousand readers come, the second box at the third."""
    run = [sample(n, 100 * n, started=TWO, standing=1 + (n >= 3)) for n in range(1, 11)]
    run = [sample(0, 0, arrivals={}), *run]
    if changes:
        at = changes.pop("at")
        run[at] = dataclasses.replace(run[at], **changes)
    return [*run, sample(11, 100, arrivals={})]


def broken(census: dict[str, int] | None = None, **changes: Any) -> list[str]:
    return list(figures(a_run(**changes), CENSUS | (census or {})).broken_promises())


def test_a_run_in_which_all_is_well_breaks_no_promise() -> None:
    assert broken() == []


def test_who_is_refused_counts_from_when_the_first_new_box_stands() -> None:
    assert broken(at=3, refused=5) == []
    assert broken(at=4, refused=5) == ["5 readers were refused after the first new box stood"]
    assert figures(a_run(at=3, refused=5), CENSUS).refused == 5


def test_connects_that_take_longer_under_load_are_not_flat() -> None:
    assert broken(at=9, arrivals={3.0: 100}) == []
    (text,) = broken(at=9, arrivals={3.2: 100})
    assert text == "connects take up to 1.60 times as long (p50) as at first"


def test_a_band_of_few_connects_says_nothing() -> None:
    assert broken(at=9, arrivals={50.0: 49}) == []
    (text,) = broken(at=9, arrivals={50.0: 50})
    assert "25.00 times" in text


@pytest.mark.parametrize(
    ("census", "error"),
    [
        ({"lost": 1}, "1 deliveries were lost"),
        ({"doubled": 2}, "2 deliveries were doubled"),
        ({"never_in": 3}, "3 readers never got in"),
        ({"owed": 0}, "no delivery was owed to anybody, so no promise can be shown to be kept"),
    ],
)
def test_what_the_census_finds_is_reported(census: dict[str, int], error: str) -> None:
    assert broken(census) == [error]


def test_a_run_without_a_new_box_or_in_which_none_goes_shows_nothing() -> None:
    still = [dataclasses.replace(s, started=ONE, standing=1) for s in a_run()]
    assert list(figures(still, CENSUS).broken_promises()) == [
        "no box was started",
        "1 boxes are left of 1",
    ]


def test_bands_are_tenths_of_the_load() -> None:
    found = figures(a_run(), CENSUS)
    assert [(band.least, band.most) for band in found.bands] == [
        (n, n + 100) for n in range(0, 1000, 100)
    ]
    assert found.grown == 10


def test_boxes_over_time_has_a_row_for_each_change() -> None:
    rows = boxes_over_time(a_run())
    assert [(row["at"], len(row["boxes"]), row["standing"]) for row in rows] == [
        (0, 1, 1),
        (1, 2, 1),
        (3, 2, 2),
        (11, 1, 1),
    ]


def test_the_report_is_text_json_and_a_picture(tmp_path: Path) -> None:
    options = SurgeOptions(
        few=100,
        many=1000,
        first_rate=60,
        rate=60,
        leave_rate=60,
        holds=1,
        messages=2,
        shrinks_within=1,
    )
    run = a_run(at=5, refused=3, arrivals=added([{2.0: 60}, {2.0: 40, 9.0: 1}]))
    found = figures(run, CENSUS)
    write_report(tmp_path, run, found, options, capacity=500)
    document = json.loads((tmp_path / "report.json").read_text())
    assert document["figures"]["refused_after"] == 3
    assert not document["figures"]["kept"]
    assert len(document["samples"]) == len(run)
    assert document["samples"][5]["arrivals"] == {"count": 101, "p50_ms": 2.0, "p99_ms": 2.0}
    text = (tmp_path / "report.md").read_text()
    assert "**not kept: 3 readers were refused after the first new box stood**" in text
    assert ElementTree.fromstring((tmp_path / "plot.svg").read_text()).tag.endswith("svg")


def test_figures_are_what_a_program_reads() -> None:
    assert isinstance(figures(a_run(), CENSUS), Figures)


@pytest.mark.slow
@pytest.mark.world
@pytest.mark.cargo
@pytest.mark.timeout(1200)
# Each further box leaves only after half a minute in which fewer were enough.
@pytest.mark.parametrize("most", [2, pytest.param(4, marks=pytest.mark.long)])
def test_a_small_surge_is_carried_by_boxes_that_start_and_end_by_themselves(
    tmp_path: Path, most: int
) -> None:
    require_rabbitmq()
    if shutil.which("cargo") is None:
        pytest.skip("cargo is missing")
    options = {
        "--few": 30,
        "--many": 120,
        "--capacity": 100,
        "--first-rate": 10,
        # One more box every 50 s: on two busy cores a box boots in less.
        "--rate": 2,
        "--leave-rate": 20,
        "--holds": 5,
        "--most": most,
        "--shrinks-within": 600,
        "--state": tmp_path / "world",
        "--port-base": PORTS + 1700,
        "--report": tmp_path / "report",
    }
    words = [str(word) for pair in options.items() for word in pair]
    command = [sys.executable, "-m", "loadtest.surge", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1100, cwd=ROOT)
    written = tmp_path / "report" / "report.json"
    assert written.exists(), done.stderr
    found = json.loads(written.read_text())["figures"]
    # The duration of connects is not tested: other tests run beside this one.
    promises = [text for text in found["broken_promises"] if "connects" not in text]
    assert promises == [], done.stderr
    assert found["boxes_at_most"] > found["boxes_at_first"] == found["boxes_at_last"] == 1
    assert found["most_present"] == 120
    # Not "moved": where boxes boot slowly, all readers that stay are on the box that stays.
    assert ports_in_use(PORTS + 1700, 200) == []
    assert not (tmp_path / "world").exists()
