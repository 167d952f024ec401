"""Parts that need no machine: facts about the host, forwards, inventory, ssh's command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography import x509

from fleet import access, boxes, cgroups, forwards, image, kernel, playbooks, run
from fleet.__main__ import cli
from fleet.errors import FleetError
from fleet.fleet import Fleet
from fleet.folders import Folders
from fleet.network import Network
from fleet.plan import machine, machines_of
from operations.certificates.making import describe


def test_the_mirror_is_the_one_that_this_machines_apt_has(tmp_path: Path) -> None:
    (tmp_path / "sources.list").write_text(
        "# deb http://commented.example/debian bookworm main\n"
        "deb [signed-by=/x.gpg] https://other.example/nodesource nodistro main\n"
        "deb [arch=amd64] https://mirror.example/debian-security/ bookworm-security main\n"
    )
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d/debian.sources").write_text(
        "Types: deb\nURIs: https://mirror.example/debian\nSuites: bookworm\n"
    )
    assert image.mirror("debian", "the default", tmp_path) == "https://mirror.example/debian"
    found = image.mirror("debian-security", "the default", tmp_path)
    assert found == "https://mirror.example/debian-security"
    assert image.mirror("debian-ports", "the default", tmp_path) == "the default"


def test_each_suite_is_an_image_of_its_own_and_none_is_deleted_for_another(tmp_path: Path) -> None:
    fleet = Fleet(Folders.at(tmp_path), print)
    layers = {suite: set(fleet.image(suite).layers()) for suite in image.SUITES}
    assert len(set.union(*layers.values())) == sum(len(of_one) for of_one in layers.values())
    stale = fleet.folders.layers / "image-000000000000"
    for layer in (*layers["bookworm"], *layers["trixie"], stale):
        layer.mkdir(parents=True)
    image.forget_others(fleet.folders, [])
    assert set(fleet.folders.layers.iterdir()) == layers["bookworm"] | layers["trixie"]
    assert fleet.status()["images"] == ["bookworm", "trixie"]
    with pytest.raises(FleetError, match="no image of buster; there are bookworm, trixie, sid"):
        fleet.image("buster")


def test_a_fleet_remembers_its_suite_and_one_of_before_has_the_default(tmp_path: Path) -> None:
    fleet = Fleet(Folders.at(tmp_path), print)
    assert fleet.suite == image.DEFAULT_SUITE == "trixie"
    fleet.folders.notes.write_text('{"machines": ["oregon-core-1"], "port_base": 18080}')
    assert fleet.suite == "trixie"
    fleet.folders.notes.write_text('{"machines": [], "port_base": 18080, "suite": "bookworm"}')
    assert fleet.suite == "bookworm"


@pytest.mark.parametrize(
    ("suite", "archives"),
    [
        ("bookworm", ["bookworm", "bookworm-updates", "bookworm-security"]),
        ("trixie", ["trixie", "trixie-updates", "trixie-security"]),
        # This suite has no security suite beside it.
        ("sid", ["sid"]),
    ],
)
def test_a_machines_apt_has_the_archives_of_its_suite(
    tmp_path: Path, suite: str, archives: list[str]
) -> None:
    lines = Fleet(Folders.at(tmp_path), print).image(suite).sources().splitlines()
    assert [line.split()[2] for line in lines] == archives


def test_two_folders_are_two_fleets_with_networks_of_their_own(tmp_path: Path) -> None:
    one, other = Folders.at(tmp_path / "one"), Folders.at(tmp_path / "other")
    assert one.namespace != other.namespace
    assert len(one.namespace) <= 15
    assert Folders.at(tmp_path / "other/../one") == one


def test_of_two_commands_at_once_the_second_waits_and_is_then_refused(tmp_path: Path) -> None:
    folders = Folders.at(tmp_path)
    refused = pytest.raises(FleetError, match="another fleet command")
    with folders.locked(), refused, folders.locked(seconds=0):
        pass
    with folders.locked():
        pass


def test_there_is_a_door_to_each_region_with_core_machines() -> None:
    assert forwards.forwards_of(machines_of(15), 18080) == {
        "oregon": (18080, ["10.77.1.21:8080", "10.77.1.22:8080", "10.77.1.23:8080"]),
        "dublin": (18081, ["10.77.2.21:8080", "10.77.2.22:8080", "10.77.2.23:8080"]),
    }
    assert forwards.forwards_of(machines_of(6), 18080) == {"oregon": (18080, ["10.77.1.21:8080"])}


def test_the_inventory_has_a_group_for_each_role_and_region(tmp_path: Path) -> None:
    found = access.inventory(Folders.at(tmp_path), machines_of(6))
    assert found["retail"] == {"hosts": ["oregon-retail-1", "oregon-retail-2"]}
    assert found["tokyo"] == found["proxy"] == {"hosts": ["tokyo-proxy-1"]}
    assert found["dublin"] == {"hosts": []}
    variables = found["_meta"]["hostvars"]["oregon-retail-2"]
    assert (variables["newsfabric_address"], variables["zone"]) == ("10.77.1.102", "oregon-b")


def test_two_fleets_never_share_a_connection_that_ansible_keeps(tmp_path: Path) -> None:
    kept = [
        access.inventory(Folders.at(tmp_path / name), machines_of(6))["_meta"]["hostvars"][host]
        for name, host in (("a", "oregon-core-1"), ("b", "oregon-core-1"))
    ]
    first, second = (one["ansible_control_path"] for one in kept)
    assert first != second
    # ssh fills in the host, Ansible its folder.
    assert all(path % {"directory": "/d"} for path in (first, second))
    assert (first % {"directory": "/d"}).endswith("-%h")


def test_of_two_secrets_both_keys_are_known_until_the_former_is_forgotten(tmp_path: Path) -> None:
    folders = Folders.at(tmp_path)
    with pytest.raises(FleetError, match="no fleet is up"):
        access.renew_secret(folders)
    access.make_secret(folders)
    first = access.api_key(folders)
    access.renew_secret(folders)
    assert access.api_key(folders) != first
    assert access.api_key(folders, former=True) == first
    assert folders.former_secret.stat().st_mode & 0o777 == 0o600
    with pytest.raises(FleetError, match="a former secret is still good"):
        access.renew_secret(folders)
    access.forget_secret(folders)
    with pytest.raises(FleetError, match="there is no former secret"):
        access.api_key(folders, former=True)


def test_each_machine_has_a_certificate_for_its_name_and_address(tmp_path: Path) -> None:
    folders = Folders.at(tmp_path)
    machines = machines_of(6)
    access.issue_certificates(folders, machines)
    held = {one.name: folders.certs / f"issued/{one.name}/cert.pem" for one in machines}
    first = {name: path.read_bytes() for name, path in held.items()}
    described = {name: describe(x509.load_pem_x509_certificate(it)) for name, it in first.items()}
    assert described["oregon-core-1"].names == ("oregon-core-1", "10.77.1.21", "127.0.0.1")
    assert described["oregon-store-1"].names == ("oregon-store-1", "10.77.1.31")
    assert described["oregon-store-1"].roles == ("server", "client")
    access.issue_certificates(folders, machines)
    assert {name: path.read_bytes() for name, path in held.items()} == first


@pytest.mark.sockets
def test_ssh_knows_every_machine_and_trusts_only_known_keys(tmp_path: Path) -> None:
    folders = Folders.at(tmp_path)
    access.write_ssh_config(folders, Network("nf-none"), {"oregon-core-1": "ssh-ed25519 AAAA x\n"})
    asked = run.run("ssh", "-G", "-F", folders.ssh_config, "dublin-core-3").splitlines()
    assert "hostname 10.77.2.23" in asked
    assert "hostkeyalias dublin-core-3" in asked
    assert "stricthostkeychecking true" in asked
    assert folders.known_hosts.read_text() == "oregon-core-1 ssh-ed25519 AAAA\n"


def test_a_box_that_ends_while_boxes_are_listed_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet(Folders.at(tmp_path), print)
    fleet.folders.notes.write_text('{"machines": ["oregon-retail-1", "oregon-retail-2"]}')
    with subprocess.Popen(["true"]) as ended:
        pass
    running = {
        "oregon-retail-1": kernel.MachineProcesses(init=ended.pid),
        "oregon-retail-2": kernel.MachineProcesses(init=os.getpid()),
    }
    monkeypatch.setattr(fleet.machines, "running", lambda: running)
    listed = [json.loads(line)["name"] for line in boxes.listed(fleet, "oregon")]
    assert listed == ["oregon-retail-2"]


@pytest.mark.parametrize("command", ["ssh", "run"])
def test_options_after_the_first_word_are_the_other_programs(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(os, "execvp", lambda _program, words: ran.append(words))
    monkeypatch.setattr(os, "execvpe", lambda _program, words, _environment: ran.append(words))
    monkeypatch.setattr(Network, "exists", True)
    (tmp_path / "ssh_config").touch()
    words = ["--folder", str(tmp_path), command, "oregon-core-1", "df", "-h", "--help"]
    cli(words, standalone_mode=False)
    assert list(ran[0][-3:]) == ["df", "-h", "--help"]


def test_what_the_scalers_driver_boots_is_reported_once_and_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet(Folders.at(tmp_path), print)
    there = {"oregon-retail-1": kernel.MachineProcesses(init=os.getpid())}
    monkeypatch.setattr(fleet.machines, "running", lambda: there)
    monkeypatch.setattr(Fleet, "members", lambda _: [machine(name) for name in there])
    booted: list[str] = []
    seen: list[list[str]] = []
    monkeypatch.setattr(Fleet, "boot", lambda _, names, new: booted.extend(names))
    boxes.want(fleet, "oregon", 3, seen.append)
    assert seen == [booted] == [["oregon-retail-2", "oregon-retail-3"]]
    boxes.want(fleet, "oregon", 1, seen.append)
    assert len(seen) == 1, "nothing was booted"


@pytest.mark.sockets
def test_machines_become_boxes_in_the_background_by_their_playbook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = Folders.at(tmp_path)
    playbook = tmp_path / "ansible-playbook"
    playbook.write_text('#!/bin/sh\nprintf "%s\\n" "$NEWSFABRIC_FLEET_FOLDER" "$@" >"$0.out"\n')
    playbook.chmod(0o755)
    monkeypatch.setattr(playbooks, "ansible_playbook", lambda: str(playbook))
    two = ["oregon-retail-2", "oregon-retail-3"]
    with playbooks.scale_out(folders, two, ["--extra-vars", "a=1"]) as running:
        assert running.wait(30) == 0
    text = (tmp_path / "ansible-playbook.out").read_text().splitlines()
    assert text[0] == str(folders.top)
    assert Path(text[3]).name == "scale-out-retail.yml"
    assert text[4:] == [
        "--extra-vars",
        "boxes=oregon-retail-2,oregon-retail-3",
        "--extra-vars",
        "a=1",
    ]


@pytest.mark.sockets
def test_a_failing_program_is_reported_with_the_end_of_its_output() -> None:
    with pytest.raises(FleetError, match=r"exit code 3: sh -c(.|\n)*the last words"):
        run.run("sh", "-c", "echo the last words >&2; exit 3")
    with pytest.raises(FleetError, match="no-such-program: No such file"):
        run.run("no-such-program")
    with pytest.raises(FleetError, match=r"not done within 0\.1 s: sleep 60"):
        run.run("sleep", "60", seconds=0.1)


def test_a_process_that_ends_is_seen_to_end_and_one_that_does_not_is_not() -> None:
    with subprocess.Popen(["sleep", "600"]) as sleeper:
        assert not kernel.wait_gone([sleeper.pid], 0.05)
        kernel.kill(sleeper.pid, signal.SIGTERM)
        assert kernel.wait_gone([sleeper.pid], 30)
    kernel.kill(sleeper.pid)  # it is dead already: no error
    assert kernel.wait_gone([sleeper.pid], 0)


def test_a_command_line_enters_its_groups_and_then_becomes_the_command(tmp_path: Path) -> None:
    groups = [tmp_path / "one group", tmp_path / "other"]
    for group in groups:
        group.mkdir()
    words = [*cgroups.entering(groups), sys.executable, "-c", "import os; print(os.getpid())"]
    pid = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert [(group / "cgroup.procs").read_text() for group in groups] == [pid, pid]


def test_only_mounts_at_or_below_a_folder_are_below_it() -> None:
    assert Path("/proc") in kernel.mounts_below(Path("/proc"))
    assert kernel.mounts_below(Path("/pro")) == []
    assert kernel.is_mount(Path("/proc"))
    assert not kernel.is_mount(Path("/proc/self"))


def test_a_path_is_read_as_the_kernel_writes_it() -> None:
    assert kernel.unescaped(r"/a\040fleet\134x") == "/a fleet\\x"


def test_the_program_says_what_it_can_do() -> None:
    environment = os.environ | {"PYTHONPATH": "deploy"}
    done = subprocess.run(
        [sys.executable, "-m", "fleet", "--help"],
        capture_output=True,
        text=True,
        env=environment,
        cwd=Path(image.CHECKOUT),
        check=True,
    )
    assert "python -m fleet up --size 6" in done.stdout


def test_a_machines_init_is_its_own_and_not_that_of_a_host_that_it_carries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upper = tmp_path / "machines" / "oregon-machine-1" / "upper"
    for pid, numbers in ((70, "70 1"), (90, "90 24 1")):
        process = tmp_path / "proc" / str(pid)
        process.mkdir(parents=True)
        (process / "cmdline").write_bytes(b"/usr/lib/systemd/systemd\0")
        (process / "status").write_text(f"Name:\tsystemd\nNSpid:\t{numbers.replace(' ', chr(9))}\n")
        (process / "mountinfo").write_text(
            f"1 0 0:1 / / rw shared:1 - overlay fleet rw,upperdir={upper}\n"
        )
    monkeypatch.setattr(kernel, "PROC", tmp_path / "proc")
    assert kernel.machine_processes(upper.parents[1]) == {
        "oregon-machine-1": kernel.MachineProcesses(init=70)
    }
