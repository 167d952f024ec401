"""A fabric of twelve hosts on three machines: any of the three may be lost, and it grows by a host
that moves to a fourth.

The tests share the machines, in their order.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet.conftest import SUITE, fleet_in
from tests.fleet.fabrics import changes, until
from tests.fleet.three import CARRIED, MACHINES, Three, name_of

pytestmark = [pytest.mark.fleet, pytest.mark.xdist_group("fleet"), pytest.mark.timeout(5400)]


@pytest.fixture(scope="module")
def three(layers: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Three]:
    folder = tmp_path_factory.mktemp("three")
    with fleet_in(folder / "a fleet's folder", layers) as fleet:
        found = Three(fleet, folder / "inventory" / "hosts.yml")
        found.begin(SUITE, fleet.image(SUITE).layers())
        found.plays("machines.yml")
        found.plays("site.yml")
        yield found


def whole(three: Three) -> bool:
    """Return whether readers are sent to each box, and each store node sees three nodes up."""
    sees = [three.on(f"oregon-store-{n}", "nodetool status").count("\nUN ") for n in (1, 2, 3)]
    return sees == [3, 3, 3] and all(three.boxes(letter) == 3 for letter in CARRIED)


def test_a_second_run_changes_nothing(three: Three) -> None:
    assert set(changes(three.plays("machines.yml")).values()) == {0}
    assert set(changes(three.plays("site.yml")).values()) == {0}


def test_a_headline_comes_to_a_browser_over_https(three: Three) -> None:
    headline = f"It works at {time.time()}"
    assert [three.published(letter, headline) for letter in CARRIED] == [201, 201, 201]
    assert headline in three.headlines("a")
    assert "<title>The newest headlines" in three.fetch("a", "/")


@pytest.mark.parametrize("lost", CARRIED)
def test_any_machine_is_lost_and_every_reader_has_everything(three: Three, lost: str) -> None:
    with three.crowd(readers=90, per_second=5, first=lost) as crowd:
        three.fleet.pull_plug([name_of(lost)])
        others = [letter for letter in CARRIED if letter != lost]
        until(
            "readers are sent to the two boxes that are left",
            lambda: [three.boxes(letter) for letter in others] == [2, 2],
        )
        headline = f"without {lost} at {time.time()}"
        assert three.published(others[0], headline) == 201
        assert headline in three.headlines(others[1])
        three.fleet.boot([name_of(lost)], new=False)
        until("all is back", lambda: whole(three), 600)
    # The readers of its box, a third of all, and no others.
    assert crowd.report["left"] == 30, crowd.report
    assert crowd.missed_nothing, crowd.report
    three.plays("verify.yml")


@pytest.mark.parametrize("host", ["oregon-core-1", "oregon-store-1", "oregon-client-1"])
def test_a_host_moves_to_a_fourth_machine_and_no_reader_notices(three: Three, host: str) -> None:
    three.fleet.boot([name_of("d")], new=False, suite=SUITE)
    three.set_machines(MACHINES)
    three.move(host, "d")
    refused = three.played("machines.yml")
    assert f"a has {host}, for which the inventory names another machine" in refused.stdout
    with three.crowd(readers=90, per_second=5) as crowd:
        three.plays("move-host.yml", "--extra-vars", f"host={host}")
    assert crowd.noticed_nothing, crowd.report
    assert three.disks("a") & three.disks("d") == set()
    assert host in three.disks("d")
    assert set(changes(three.plays("machines.yml")).values()) == {0}
