"""Six machines boot, are connected, lose their power, and leave nothing behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from fleet import access, cgroups, kernel
from fleet.errors import FleetError
from fleet.fleet import Fleet
from fleet.folders import CHECKOUT
from fleet.plan import machines_of
from fleet.run import run
from tests.fleet.fabrics import newsfabric
from wholesale.scaler.drivers import DriverError
from wholesale.scaler.drivers.command import CommandDriver

pytestmark = [pytest.mark.fleet, pytest.mark.xdist_group("fleet"), pytest.mark.timeout(600)]

SIX = [machine.name for machine in machines_of(6)]


def on(fleet: Fleet, name: str, command: str) -> str:
    """Return the output of a shell command on a machine, without the last newline."""
    words = access.ssh(fleet.folders, name, command)
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.rstrip("\n")


def reaches(fleet: Fleet, name: str, other: str) -> bool:
    """Return whether ``name`` can connect to ``other``'s sshd."""
    output = on(fleet, name, f"timeout 2 bash -c '</dev/tcp/{other}/22' && echo yes || echo no")
    return output == "yes"


def own_addresses() -> list[str]:
    """Return the addresses of this machine that others could reach."""
    links = json.loads(run("ip", "-j", "-4", "addr", "show", "scope", "global"))
    return [address["local"] for link in links for address in link["addr_info"]]


def inits(fleet: Fleet) -> dict[str, int | None]:
    return {name: box.init for name, box in fleet.machines.running().items()}


def states(fleet: Fleet) -> dict[str, str]:
    return {one["name"]: one["state"] for one in fleet.status()["machines"]}


def left_by(fleet: Fleet) -> list[str]:
    """Return all traces of a fleet on this host."""
    found = [f"mount {path}" for path in kernel.mounts_below(fleet.folders.top)]
    found += [f"machine {name}" for name in fleet.machines.running()]
    found += [
        f"group {tree}" for tree in cgroups.hierarchies() if (tree / fleet.network.name).exists()
    ]
    found += [f"network {fleet.network.name}"] if fleet.network.exists else []
    files = {path.name for path in fleet.folders.top.iterdir()}
    return found + sorted(files - {"layers", "lock"})


def test_six_machines_boot_and_each_knows_itself_and_the_others(fleet: Fleet) -> None:
    assert states(fleet) == dict.fromkeys(SIX, "up")
    assert on(fleet, "oregon-core-1", "hostname") == "oregon-core-1"
    assert on(fleet, "oregon-core-1", "systemctl is-system-running") == "running"
    assert reaches(fleet, "oregon-core-1", "oregon-store-1")
    assert reaches(fleet, "oregon-core-1", "tokyo-proxy-1")
    identities = {on(fleet, name, "cat /etc/machine-id /etc/ssh/*_key.pub") for name in SIX}
    assert len(identities) == len(SIX)


def test_machines_do_not_reach_the_internet_nor_this_machine(fleet: Fleet) -> None:
    with socket.create_server(("0.0.0.0", 0)) as listener:
        port = listener.getsockname()[1]
        for address in ("10.77.1.1", *own_addresses()):
            probe = f"timeout 2 bash -c '</dev/tcp/{address}/{port}' && echo yes || echo no"
            assert on(fleet, "oregon-core-1", probe) == "no"
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_what_a_unit_does_on_one_machine_is_not_seen_on_another(fleet: Fleet) -> None:
    # Once all units were in one control group: a unit that stopped waited for all others.
    start = "systemd-run --quiet --unit=napping sleep 600"
    for name in ("oregon-core-1", "oregon-store-1"):
        on(fleet, name, start)
    on(fleet, "oregon-core-1", "timeout 20 systemctl stop napping")
    assert on(fleet, "oregon-core-1", "systemctl is-active napping || true") == "inactive"
    assert on(fleet, "oregon-store-1", "systemctl is-active napping") == "active"


def test_a_second_up_changes_nothing(fleet: Fleet) -> None:
    before = inits(fleet)
    fleet.up(6)
    assert inits(fleet) == before


def test_up_goes_on_where_a_killed_one_stopped(empty_fleet: Fleet, port_base: int) -> None:
    folder = str(empty_fleet.folders.top)
    words = [sys.executable, "-m", "fleet", "--folder", folder, "up", "--size", "6"]
    words += ["--port-base", str(port_base)]
    environment = os.environ | {"PYTHONPATH": "deploy", "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        words, stderr=subprocess.PIPE, text=True, env=environment, cwd=CHECKOUT
    ) as up:
        assert up.stderr is not None
        # The first machines are up, and some are booting.
        next(line for line in up.stderr if "is running" in line)
        up.kill()
    before = inits(empty_fleet)
    empty_fleet.up(6)
    assert states(empty_fleet) == dict.fromkeys(SIX, "up")
    assert before.items() <= inits(empty_fleet).items()


def test_a_machine_that_cannot_boot_is_reported_with_its_last_words(fleet: Fleet) -> None:
    fleet.pull_plug(["oregon-core-1"])
    init = fleet.folders.of("oregon-core-1") / "upper/usr/lib/systemd/systemd"
    init.parent.mkdir(parents=True, exist_ok=True)
    init.write_text("#!/bin/sh\necho my last words; exit 1\n")
    init.chmod(0o755)
    reason = r"oregon-core-1 ended while it booted(.|\n)*my last words"
    with pytest.raises(FleetError, match=reason):
        fleet.boot(["oregon-core-1"], new=False)


def test_nothing_passes_a_cut_until_it_is_healed(fleet: Fleet) -> None:
    fleet.network.cut("oregon", "tokyo")
    fleet.network.cut("tokyo", "oregon")  # it is cut already
    assert fleet.status()["cuts"] == [["oregon", "tokyo"]]
    assert not reaches(fleet, "oregon-core-1", "tokyo-proxy-1")
    assert not reaches(fleet, "tokyo-proxy-1", "oregon-core-1")
    assert reaches(fleet, "oregon-core-1", "oregon-store-1")
    fleet.network.heal("oregon", "tokyo")
    assert fleet.status()["cuts"] == []
    assert reaches(fleet, "oregon-core-1", "tokyo-proxy-1")
    fleet.network.heal("oregon", "tokyo")  # nothing to do


def test_a_machine_whose_plug_was_pulled_comes_back_with_its_disk(fleet: Fleet) -> None:
    on(fleet, "oregon-retail-2", "echo kept >/root/note; sync")
    fleet.pull_plug(["oregon-retail-2"])
    assert states(fleet)["oregon-retail-2"] == "off"
    assert not reaches(fleet, "oregon-retail-1", "oregon-retail-2")
    fleet.boot(["oregon-retail-2"], new=False)
    assert on(fleet, "oregon-retail-2", "cat /root/note") == "kept"


def test_a_machine_is_replaced_by_a_new_one_of_its_name(fleet: Fleet) -> None:
    on(fleet, "oregon-core-1", "echo lost >/root/note; sync")
    with pytest.raises(FleetError, match="oregon-core-1 runs"):
        fleet.boot(["oregon-core-1"], new=True)
    fleet.pull_plug(["oregon-core-1"])
    fleet.boot(["oregon-core-1"], new=True)
    assert on(fleet, "oregon-core-1", "ls /root") == ""


def test_a_box_more_joins_the_inventory_and_leaves_it_again(fleet: Fleet) -> None:
    fleet.boot(["oregon-retail-3"], new=False)
    assert states(fleet)["oregon-retail-3"] == "up"
    assert reaches(fleet, "oregon-core-1", "oregon-retail-3")
    fleet.power_off(["oregon-retail-3"], forget=True)
    assert states(fleet) == dict.fromkeys(SIX, "up")
    assert not fleet.folders.of("oregon-retail-3").exists()


async def test_the_scalers_driver_boots_boxes_and_ends_them(fleet: Fleet) -> None:
    words = f"env PYTHONPATH={CHECKOUT}/deploy {sys.executable} -m fleet --folder"
    program = [*words.split(), str(fleet.folders.top)]
    driver = CommandDriver([*program, "boxes", "oregon"])
    await driver.want(3)
    found = {box.name: box for box in await driver.boxes()}
    assert set(found) == {"oregon-retail-1", "oregon-retail-2", "oregon-retail-3"}
    assert found["oregon-retail-3"].zone == "oregon-c"
    assert found["oregon-retail-3"].age_seconds < found["oregon-retail-1"].age_seconds
    await driver.want(1)
    assert len(await driver.boxes()) == 3, "fewer are made by `end` alone"
    await driver.end(["oregon-retail-1", "oregon-retail-9"])
    assert {box.name for box in await driver.boxes()} == set(found) - {"oregon-retail-1"}
    with pytest.raises(DriverError, match="no region paris"):
        await CommandDriver([*program, "boxes", "paris"]).boxes()


def test_what_is_not_in_the_fleet_is_named(fleet: Fleet) -> None:
    with pytest.raises(FleetError, match="dublin-core-1 is not in this fleet"):
        fleet.pull_plug(["oregon-core-1", "dublin-core-1"])
    assert states(fleet)["oregon-core-1"] == "up"
    with pytest.raises(FleetError, match="no region paris"):
        fleet.network.cut("oregon", "paris")


def test_a_board_is_reached_from_this_machine_through_any_core_node(fleet: Fleet) -> None:
    board = fleet.boards()["oregon"]
    fleet.boot(["oregon-core-2"], new=False)
    on(fleet, "oregon-core-2", "mkdir /srv/b; echo news >/srv/b/board")
    on(fleet, "oregon-core-2", "systemd-run -q python3 -m http.server -d /srv/b 8080")
    on(fleet, "oregon-core-2", "until bash -c '</dev/tcp/localhost/8080' 2>&-; do :; done")
    with urllib.request.urlopen(board, timeout=20) as answer:
        assert answer.read() == b"news\n"
    fleet.pull_plug(["oregon-core-1"])
    with urllib.request.urlopen(board, timeout=20) as answer:
        assert answer.read() == b"news\n"


def test_a_port_that_is_taken_is_named(empty_fleet: Fleet) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(FleetError, match=f"port {port} of 127.0.0.1: Address already in use"):
            empty_fleet.up(6, port_base=port)
    empty_fleet.up(6)
    assert empty_fleet.boards() == {"oregon": f"http://127.0.0.1:{port}/board"}


def test_newsfabrics_own_commands_see_and_break_units_and_machines(fleet: Fleet) -> None:
    def services() -> dict[str, bool]:
        (oregon,) = json.loads(newsfabric(fleet, "status", "--json"))["regions"]
        return {service["name"]: service["running"] for service in oregon["services"]}

    start = "systemd-run --quiet --property=RemainAfterExit=no --unit=newsfabric-router@1 sleep 600"
    on(fleet, "oregon-core-1", start)
    pid = on(fleet, "oregon-core-1", "systemctl show --value -p MainPID newsfabric-router@1")
    assert services() == {"oregon-core-1/router@1": True}
    assert f"(pid {pid})" in newsfabric(fleet, "chaos", "stop", "oregon-core-1/router@1")
    assert on(fleet, "oregon-core-1", f"cut -d' ' -f3 /proc/{pid}/stat") == "T"
    assert "goes on" in newsfabric(fleet, "chaos", "cont", "oregon-core-1/router@1")
    assert on(fleet, "oregon-core-1", f"cut -d' ' -f3 /proc/{pid}/stat") == "S"

    newsfabric(fleet, "chaos", "kill", "oregon-retail-1")
    newsfabric(fleet, "chaos", "cut", "oregon-tokyo-link")
    assert services()["oregon-retail-1"] is False
    assert not reaches(fleet, "oregon-core-1", "tokyo-proxy-1")
    newsfabric(fleet, "chaos", "heal")
    assert services() == {"oregon-core-1/router@1": True}
    assert reaches(fleet, "oregon-core-1", "tokyo-proxy-1")


def test_down_leaves_nothing(fleet: Fleet) -> None:
    fleet.network.cut("oregon", "tokyo")
    assert left_by(fleet) != []
    fleet.down(image_too=False)
    assert left_by(fleet) == []
    fleet.down(image_too=False)


def test_down_leaves_nothing_of_a_fleet_whose_supervisors_were_killed(fleet: Fleet) -> None:
    boxes = fleet.machines.running()
    for box in boxes.values():
        assert box.supervisor is not None
        os.kill(box.supervisor, signal.SIGKILL)
    assert kernel.wait_gone([box.supervisor for box in boxes.values() if box.supervisor], 20)
    assert inits(fleet) == {name: box.init for name, box in boxes.items()}
    fleet.down(image_too=False)
    assert left_by(fleet) == []


def test_the_small_fleet_does_not_fit_where_a_larger_one_is(empty_fleet: Fleet) -> None:
    notes = Path(empty_fleet.folders.notes)
    notes.write_text('{"machines": ["dublin-core-1"], "port_base": 1}')
    with pytest.raises(FleetError, match="a larger fleet is here \\(dublin-core-1 is in it\\)"):
        empty_fleet.up(6)
