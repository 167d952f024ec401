"""An operator with nothing but the wheel: looks, checks, breaks a region, and repairs it.

Cases that need several machines are played on the fleet (tests/fleet).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from packed import UsersWorld
from worlds import PORTS, World, gateways_in, ports_in_use, require_rabbitmq

OWN_BASE: Final = PORTS + 2100
pytestmark = [pytest.mark.slow, pytest.mark.world, pytest.mark.timeout(420)]


@pytest.fixture
def broken(world: World, used: UsersWorld) -> Iterator[UsersWorld]:
    """Yield a world that is mended afterwards."""
    yield used
    world.mend()


@pytest.fixture
def own(site: Path, tmp_path: Path) -> Iterator[UsersWorld]:
    """Yield a world of one region that the wheel starts and takes down."""
    require_rabbitmq()
    world = UsersWorld(tmp_path / "world", site)
    where = ("--port-base", str(OWN_BASE), "--timeout", "200")
    up = world.run("up", "--detach", "--regions", "oregon", *where)
    assert up.returncode == 0, up.stderr
    yield world
    down = world.run("down")
    assert down.returncode == 0, down.stderr
    assert world.pids() == set()
    assert ports_in_use(OWN_BASE, 200) == []
    assert not world.state.exists()


def test_doctor_finds_nothing_that_stops_a_world(used: UsersWorld) -> None:
    looked = used.run("doctor", "--json")
    assert looked.returncode == 0, looked.stderr + looked.stdout
    assert json.loads(looked.stdout)["level"] in ("ok", "warning")


def test_the_topics_that_come_with_it_are_all_of_use(used: UsersWorld) -> None:
    file = used.site / "localfabric" / "topics.toml"
    # This command takes no --state.
    checked = used.plain("topics", "check", "--topics", str(file))
    assert (checked.returncode, checked.stderr) == (0, "")
    assert checked.stdout.endswith(" entries are of use\n")


def test_the_last_box_of_a_region_is_not_drained_by_mistake(used: UsersWorld) -> None:
    refused = used.run("drain", "dublin-retail-1")
    assert refused.returncode == 1
    assert "dublin will have no box" in refused.stderr
    assert "use --last if that is meant" in refused.stderr


def test_a_world_of_the_wheel_drains_its_last_box_routes_on_and_has_one_again(
    own: UsersWorld,
) -> None:
    drained = own.run("drain", "oregon-retail-1", "--last", "--json")
    assert drained.returncode == 0, drained.stderr
    assert json.loads(drained.stdout) == {"ended": ["oregon-retail-1"]}
    region = own.region("oregon")
    assert (region["gateways"], gateways_in(region["endpoints_url"])) == ([], [])
    headline = '{"headline": "Nobody is connected"}'
    published = own.run("publish", "news.breaking", headline)
    assert published.returncode == 0, published.stderr
    scaled = own.run("scale", "oregon", "1")
    assert scaled.returncode == 0, scaled.stderr
    assert scaled.stdout == "oregon-retail-2: started\noregon has 1 box\n"
    newest = ("--rewind", "1", "--count", "1", "--timeout", "60", "--json")
    read = own.run("tail", "news.breaking", *newest)
    assert json.loads(read.stdout)["body"] == json.loads(headline), read.stderr


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
