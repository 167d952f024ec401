"""A backup has the whole store or fails (backup.yml); and the commands that reach a host."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

ROOT: Final = Path(__file__).resolve().parents[2]
ANSIBLE: Final = ROOT / "deploy" / "ansible"
# The output of `nodetool status newsfabric`; dublin's nodes follow.
STATUS: Final = """Datacenter: oregon
==================
Status=Up/Down
|/ State=Normal/Leaving/Joining/Moving
--  Address    Load       Tokens  Owns (effective)  Host ID  Rack
UN  10.1.1.31  69.06 KiB  16      {0}%            11111111  a
UN  10.1.2.31  71.12 KiB  16      {1}%            22222222  b
DN  10.1.3.31  ?          16      {2}%            33333333  c

Datacenter: dublin
==================
--  Address    Load       Tokens  Owns (effective)  Host ID  Rack
DN  10.2.1.31  ?          16      100.0%            44444444  a
"""
ONE_REPLICA: Final = STATUS.format("31.2", "35.5", "33.3")
THREE_REPLICAS: Final = STATUS.format("100.0", "100.0", "100.0")
NODETOOL: Final = """#!/bin/sh
test "$1" != status || cat "$(dirname "$0")/status"
"""
# Runs the remote command here.
SSH: Final = """#!/bin/sh
while test "$1" != tar; do shift; done
test ! -e "$(dirname "$0")/cut" || { head --bytes=10 /dev/zero; exit 1; }
exec "$@"
"""


class BackedUpStore:
    """Production's store; the second play of backup.yml runs on this machine."""

    def __init__(self, playbook: str, folder: Path, status: str) -> None:
        self._playbook = playbook
        self._folder = folder
        self._bin = folder / "bin"
        self.backup = folder / "backup"
        snapshot = folder / "data" / "newsfabric" / "log-0123" / "snapshots" / "backup-backup"
        snapshot.mkdir(parents=True)
        (snapshot / "nb-1-big-Data.db").write_text("rows")
        self._bin.mkdir()
        (self._bin / "status").write_text(status)
        for name, text in (("nodetool", NODETOOL), ("ssh", SSH)):
            (self._bin / name).write_text(text)
            (self._bin / name).chmod(0o755)
        text = (ANSIBLE / "playbooks" / "backup.yml").read_text()
        text = text.replace("/var/lib/cassandra/data", str(folder / "data"))
        # On this machine each host needs a file of its own.
        text = text.replace(
            "/run/newsfabric-backup", f"{folder}/files-{{{{ inventory_hostname }}}}"
        )
        play = next(
            each for each in yaml.safe_load(text) if each.get("name") == "Back up the store"
        )
        play |= {"become": False, "gather_facts": False}
        play["environment"] = {"PATH": f"{self._bin}:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"}
        (folder / "play.yml").write_text(yaml.safe_dump([play]))

    def backed_up(self, limit: str, region: str = "oregon") -> int:
        given: dict[str, Any] = {
            "playbook_dir": str(ANSIBLE / "playbooks"),
            "newsfabric_secret": "s" * 64,
            "ansible_connection": "local",
            "backup": str(self.backup),
            "backup_region": region,
        }
        inventory = str(ANSIBLE / "inventories" / "production" / "hosts.yml")
        words = ["-i", inventory, str(self._folder / "play.yml"), "-e", json.dumps(given)]
        done = subprocess.run(
            [self._playbook, *words, "--limit", limit],
            cwd=ANSIBLE,
            capture_output=True,
            text=True,
        )
        self.output = " ".join((done.stdout + done.stderr).split())
        return done.returncode

    def is_cut_off(self, cut: bool) -> None:
        if cut:
            (self._bin / "cut").touch()
        else:
            (self._bin / "cut").unlink()

    def listed(self) -> list[str]:
        file = self.backup / "SHA256SUMS"
        return [line.split()[1] for line in file.read_text().splitlines()] if file.exists() else []

    def archives(self) -> list[str]:
        return sorted(path.name for path in self.backup.glob("*.tar.gz"))


WITHOUT_THE_DEAD: Final = "all:!oregon-store-3"


def test_a_part_of_the_store_is_no_backup(playbook: str, tmp_path: Path) -> None:
    store = BackedUpStore(playbook, tmp_path, ONE_REPLICA)
    assert store.backed_up(WITHOUT_THE_DEAD) != 0
    assert "there are 1 replicas in oregon" in store.output
    assert "store nodes 10.1.3.31." in store.output
    assert not store.backup.exists()


@pytest.mark.slow
def test_a_node_may_be_missing_where_a_quorum_is_asked(playbook: str, tmp_path: Path) -> None:
    store = BackedUpStore(playbook, tmp_path, THREE_REPLICAS)
    assert store.backed_up("oregon-store-1") != 0
    assert "store nodes 10.1.2.31, 10.1.3.31." in store.output
    assert store.backed_up(WITHOUT_THE_DEAD) == 0, store.output
    assert store.listed() == ["oregon-store-1.tar.gz", "oregon-store-2.tar.gz"]


@pytest.mark.slow
def test_an_archive_that_was_cut_off_is_none(playbook: str, tmp_path: Path) -> None:
    store = BackedUpStore(playbook, tmp_path, THREE_REPLICAS)
    store.is_cut_off(True)
    assert store.backed_up(WITHOUT_THE_DEAD) != 0
    assert store.archives() == store.listed() == []
    store.is_cut_off(False)
    # From an earlier run, which copied another region.
    (store.backup / "dublin-store-1.tar.gz").write_text("old")
    assert store.backed_up("all") == 0, store.output
    assert store.listed() == [f"oregon-store-{n}.tar.gz" for n in (1, 2, 3)]


def test_what_is_restored_is_what_the_list_has_and_root_unpacks_nothing(
    playbook: str, tmp_path: Path
) -> None:
    backup = tmp_path / "backup"
    backup.mkdir()
    for host in ("oregon-store-1", "oregon-store-2"):
        subprocess.run(
            ["tar", "--create", "--gzip", f"--file={host}.tar.gz", "/dev/null"],
            cwd=backup,
            check=True,
            capture_output=True,
        )
    sums = "sha256sum oregon-store-[12].tar.gz >SHA256SUMS"
    subprocess.run(["sh", "-c", sums], cwd=backup, check=True)
    (backup / "dublin-store-1.tar.gz").write_text("cut off")
    ssh = tmp_path / "ssh"
    ssh.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/asked\nexec cat >/dev/null\n')
    ssh.chmod(0o755)
    plays = yaml.safe_load((ANSIBLE / "playbooks" / "restore.yml").read_text())
    tasks = [task for play in plays for task in play.get("tasks", ())]
    play = {
        "hosts": "oregon-store-1",
        "gather_facts": False,
        "environment": {"PATH": f"{tmp_path}:/usr/bin:/bin"},
        "tasks": [
            task
            for task in tasks
            if task["name"] in ("Read the backup's tables", "Copy the backup to the node")
        ],
    }
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    given = {"ansible_connection": "local", "backup": str(backup), "ansible_user": "root"}
    inventory = str(ANSIBLE / "inventories" / "production" / "hosts.yml")
    words = ["-i", inventory, str(tmp_path / "play.yml"), "-e", json.dumps(given)]
    done = subprocess.run([playbook, *words], cwd=ANSIBLE, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    unpacks = (
        "-l root 10.1.1.31 runuser -u cassandra -- tar --extract --file=-"
        " --directory=/var/lib/cassandra/restore --one-top-level="
    )
    assert (tmp_path / "asked").read_text().splitlines() == [
        f"{unpacks}oregon-store-{n}.tar.gz" for n in (1, 2)
    ]


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ([], "ssh 10.1.1.31 sudo"),
        (["-u", "admin", "--private-key", "/k"], "ssh -i /k -l admin 10.1.1.31 sudo"),
        (
            ["-e", "ansible_user=root", "-e", "ansible_port=2222", "-u", "admin"],
            "ssh -p 2222 -l root 10.1.1.31",
        ),
        (["-e", "{ansible_ssh_common_args: -o A=b}"], "ssh -o A=b 10.1.1.31 sudo"),
        (
            ["-e", "{ansible_user: root, ansible_ssh_common_args: '-J {{ ansible_user }}@a'}"],
            "ssh -J root@a -l root 10.1.1.31",
        ),
    ],
)
def test_a_host_is_reached_as_ansible_reaches_it(
    playbook: str, tmp_path: Path, words: list[str], command: str
) -> None:
    task = {
        "ansible.builtin.copy": {
            "content": "{{ newsfabric_on_host }}",
            "dest": str(tmp_path / "command"),
        },
        "delegate_to": "localhost",
    }
    play = tmp_path / "play.yml"
    play.write_text(
        yaml.safe_dump([{"hosts": "oregon-store-1", "gather_facts": False, "tasks": [task]}])
    )
    inventory = str(ANSIBLE / "inventories" / "production" / "hosts.yml")
    done = subprocess.run(
        [playbook, "-i", inventory, str(play), *words], cwd=ANSIBLE, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "command").read_text().split() == command.split()
