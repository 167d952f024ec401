"""An operator with nothing but the wheel: looks, checks, breaks a region, and has it whole again.

What needs several machines is played on the fleet (tests/fleet).
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from packed import UsersWorld
from worlds import World

pytestmark = [pytest.mark.world, pytest.mark.timeout(420)]


@pytest.fixture
def broken(world: World, used: UsersWorld) -> Iterator[UsersWorld]:
    """A world that is mended afterwards."""
    yield used
    world.mend()


def test_doctor_finds_nothing_that_stops_a_world(used: UsersWorld) -> None:
    looked = used.run("doctor", "--json")
    assert looked.returncode == 0, looked.stderr + looked.stdout
    assert json.loads(looked.stdout)["level"] in ("ok", "warning")


def test_the_topics_that_come_with_it_are_all_of_use(used: UsersWorld) -> None:
    file = used.site / "localfabric" / "topics.toml"
    # It takes no --state.
    checked = used.plain("topics", "check", "--topics", str(file))
    assert (checked.returncode, checked.stderr) == (0, "")
    assert checked.stdout.endswith(" entries are of use\n")


def test_the_last_box_of_a_region_is_not_drained_by_mistake(used: UsersWorld) -> None:
    refused = used.run("drain", "dublin-retail-1")
    assert refused.returncode == 1
    assert "dublin will have no box" in refused.stderr
    assert "say --last if that is meant" in refused.stderr


def test_a_region_that_is_killed_is_healed_and_publishers_go_by_the_other(
    broken: UsersWorld,
) -> None:
    killed = broken.run("chaos", "kill", "dublin")
    assert killed.returncode == 0, killed.stderr
    there = broken.run(
        "publish", "news.breaking", '{"headline": "Dublin is dark"}', "--region", "dublin"
    )
    assert there.returncode == 0, there.stderr
    assert "dublin's entrance is away" in there.stderr
    assert "published by oregon" in there.stderr
    healed = broken.run("chaos", "heal", "--wait")
    assert healed.returncode == 0, healed.stderr
    again = broken.run(
        "publish", "news.breaking", '{"headline": "Lights on"}', "--region", "dublin"
    )
    assert again.returncode == 0, again.stderr
    assert "is away" not in again.stderr
