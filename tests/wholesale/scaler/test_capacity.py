"""``newsfabric capacity`` and the options that it shares with the scaler."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from newsfabric.errors import ConfigError, NewsfabricError
from wholesale.commands import main
from wholesale.scaler.capacity import capacity, capacity_for
from wholesale.scaler.options import ScalerOptions, only_plan_options
from wholesale.scaler.plan import ScalingPlan
from wholesale.scaler.requirement import Demand, requirement

NOTHING = ScalerOptions(
    plan=ScalingPlan(),
    driver="none",
    command=None,
    group=None,
    aws_region=None,
    cloudwatch=None,
    world=None,
)


def asked(*words: str) -> Result:
    return CliRunner().invoke(capacity, words)


def test_a_million_within_ten_minutes() -> None:
    done = asked("--readers", "1000000", "--within", "10m")
    assert done.exit_code == 0
    lines = done.output.splitlines()
    assert lines[0] == "1,000,000 more readers within 600 s: 1,666.7 a second."
    assert "6 boxes before the first comes:" in lines
    assert "15 boxes when all are there:" in lines
    assert any("350,000  readers" in line and "until a new box stands" in line for line in lines)


def test_the_same_as_json() -> None:
    done = asked("--readers=500000", "--within=300", "--per-box=50000", "--boot=60s", "--json")
    document = json.loads(done.output)
    plan = ScalingPlan(per_box=50_000, boot=60.0)
    assert (
        document["after"]["boxes"]
        == requirement(Demand(readers=500_000, per_box=50_000), plan).boxes
        == 15
    )
    assert document["arrivals_per_second"] == pytest.approx(500_000 / 300)
    assert [step["readers"] for step in document["steps"]][::5] == [0, 250_000, 500_000]


def test_what_stands_before_has_room_for_all_who_come_until_more_stand() -> None:
    plan = ScalingPlan()
    found = capacity_for(1_000_000, 100_000, 600.0, plan)
    assert found.before.boxes * plan.per_box >= 100_000 + found.rate * plan.lead


def test_a_short_crowd_needs_no_more_before_than_after() -> None:
    found = capacity_for(1_000_000, 0, 1.0, ScalingPlan())
    assert found.before.lines[4].value == found.after.lines[4].value == 1_000_000


def test_more_than_there_may_be_is_reported() -> None:
    done = asked("--readers", "5000000", "--most", "50")
    assert "More than --most 50 allows: 75 would be needed." in done.output


@pytest.mark.parametrize(
    "words",
    [
        ("--readers", "0"),
        ("--readers", "10", "--already", "10"),
        ("--readers", "10", "--within", "0"),
        ("--readers", "10", "--within", "five minutes"),
        ("--readers", "10", "--within", "-5m"),
    ],
)
def test_what_makes_no_sense_is_refused(words: tuple[str, ...]) -> None:
    done = asked(*words)
    assert done.exit_code == 2
    assert "Error: " in done.output


def test_a_plan_that_cant_be_is_one_line() -> None:
    done = asked("--readers", "10", "--headroom", "1.5")
    assert isinstance(done.exception, ConfigError)
    assert str(done.exception) == "headroom must be from 0 to 0.9, not 1.5"


def test_durations_have_units(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[ScalingPlan] = []

    @click.command()
    @only_plan_options
    def command(plan: ScalingPlan) -> None:
        seen.append(plan)

    monkeypatch.setenv("NEWSFABRIC_SCALER_CALM", "1.5h")
    CliRunner().invoke(command, ["--boot", "3m", "--drain", "45"], catch_exceptions=False)
    assert (seen[0].boot, seen[0].drain, seen[0].calm) == (180.0, 45.0, 5400.0)


@pytest.mark.parametrize(
    ("driver", "text"),
    [
        ("command", "--driver command needs --command"),
        ("aws", "--driver aws needs --group"),
        ("world", "--driver world needs --world"),
    ],
)
async def test_a_driver_without_a_setting_that_it_needs_is_one_line(driver: str, text: str) -> None:
    options = dataclasses.replace(NOTHING, driver=driver)
    with pytest.raises(ConfigError, match=text):
        async with options.opened("oregon"):
            pass


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("boxes --folder 'a fleet's'", r"^--command can't be read as a shell does: No closing"),
        (" ", "^--command: no program$"),
    ],
)
async def test_a_command_that_is_no_command_is_one_line(command: str, text: str) -> None:
    options = dataclasses.replace(NOTHING, driver="command", command=command)
    with pytest.raises(ConfigError, match=text):
        async with options.opened("oregon"):
            pass


async def test_without_a_driver_it_only_says(tmp_path: Path) -> None:
    async with NOTHING.opened("oregon") as (driver, watching):
        assert await driver.boxes() is None
        await driver.want(5)
        await driver.end(["b1"])
        assert watching is None


async def test_a_world_that_isnt_there_is_the_drivers_trouble(tmp_path: Path) -> None:
    options = dataclasses.replace(NOTHING, driver="world", world=tmp_path)
    async with options.opened("oregon") as (driver, _):
        with pytest.raises(NewsfabricError, match="boxes: "):
            await driver.boxes()


def test_the_command_is_among_the_wholesale_services() -> None:
    done = CliRunner().invoke(main, ["scaler", "--help"])
    assert done.exit_code == 0
    assert "--cloudwatch NAMESPACE" in done.output
