"""Two playbooks with changes don't run at once: the second one fails and names the first."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.deploy.unit_templates import ROLES

PLAYBOOKS: Final = ROLES.parent / "playbooks"
LOCK: Final = ROLES / "lock" / "files" / "lock.py"
#: Playbooks that change nothing, or nothing of a fabric's.
ONLY_LOOK: Final = {
    "begin.yml",
    "precheck.yml",
    "verify.yml",
    "build-image.yml",
    "recover-certificates.yml",
}
FIRST: Final[dict[str, Any]] = {
    "id": "1" * 12,
    "who": "ada@laptop",
    "playbook": "site.yml",
    "machine": "f" * 12,
    "pid": 17,
}
SECOND: Final = FIRST | {"id": "2" * 12, "who": "bob@desk", "playbook": "deploy.yml"}
HOSTS: Final = ("one", "two")


def holds(name: str) -> bool:
    """Return whether a playbook, or the first playbook that it imports, has role ``lock``."""
    plays = yaml.safe_load((PLAYBOOKS / name).read_text())
    imported = [play.get("ansible.builtin.import_playbook") for play in plays]
    first = next(filter(None, imported), None)
    return any(play.get("roles") == ["lock"] for play in plays) or (
        first is not None and holds(first)
    )


@pytest.mark.parametrize(
    "name", sorted({file.name for file in PLAYBOOKS.glob("*.yml")} - ONLY_LOOK)
)
def test_each_playbook_that_changes_something_holds_its_hosts(name: str) -> None:
    assert holds(name)


def test_a_playbook_that_only_looks_holds_nothing() -> None:
    assert [name for name in ("precheck.yml", "verify.yml") if holds(name)] == []


def asked(folder: Path, run: dict[str, Any], instead: str = "") -> dict[str, Any]:
    """Return lock.py's reply for a host with the lock in ``folder``."""
    words = [sys.executable, str(LOCK), str(folder), json.dumps(run), instead]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_host_is_the_firsts_until_it_is_given_back(tmp_path: Path) -> None:
    folder = tmp_path / "held"
    assert asked(folder, FIRST) == FIRST | {"seconds": 0}
    assert asked(folder, FIRST) == FIRST | {"seconds": 0}
    then = time.time() - 600
    os.utime(folder / "holder", (then, then))
    later = asked(folder, SECOND)
    assert 600 <= later.pop("seconds") < 620
    assert later == FIRST
    (folder / "holder").unlink()
    assert asked(folder, SECOND) == SECOND | {"seconds": 0}


def test_it_is_taken_from_the_run_that_is_meant_alone(tmp_path: Path) -> None:
    asked(tmp_path, FIRST)
    assert asked(tmp_path, SECOND, instead="3" * 12)["who"] == "ada@laptop"
    assert asked(tmp_path, SECOND, instead=FIRST["id"])["who"] == "bob@desk"
    assert asked(tmp_path, FIRST, instead=FIRST["id"])["who"] == "bob@desk"


def waits(process: subprocess.Popen[str]) -> bool:
    """Return whether the process waits for a lock of another one: proc(5), ``/proc/locks``."""
    lines = Path("/proc/locks").read_text().splitlines()
    # 5: -> FLOCK  ADVISORY  WRITE 4711 00:2f:1234 0 EOF
    return any(
        words[1:3] == ["->", "FLOCK"] and words[5] == str(process.pid)
        for words in map(str.split, lines)
    )


def test_of_two_that_ask_at_once_one_holds_the_host_and_the_other_learns_it(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        place = os.open(tmp_path, os.O_RDONLY)
        stack.callback(os.close, place)
        # Another process is reading the holder just now.
        fcntl.flock(place, fcntl.LOCK_EX)
        both = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, str(LOCK), str(tmp_path), json.dumps(run)],
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for run in (FIRST, SECOND)
        ]
        until = time.monotonic() + 60
        for process in both:
            while not waits(process):
                assert process.poll() is None, "it hasn't waited for who asked before it"
                assert time.monotonic() < until
        assert not (tmp_path / "holder").exists()
        fcntl.flock(place, fcntl.LOCK_UN)
        answers = [json.loads(process.communicate(timeout=60)[0]) for process in both]
    assert answers[0] == answers[1]
    assert answers[0] | {"seconds": 0} in (FIRST | {"seconds": 0}, SECOND | {"seconds": 0})


@pytest.mark.parametrize("text", ["", "{", "[1]"])
def test_a_file_that_names_nobody_holds_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "holder").write_text(text)
    assert asked(tmp_path, FIRST) == FIRST | {"seconds": 0}


class Operator:
    """An operator who runs playbooks on two hosts, each of which is a folder of this machine."""

    def __init__(self, playbook: str, folder: Path) -> None:
        self._playbook = playbook
        self.folder = folder
        hosts = {name: {"lock_folder": str(folder / name)} for name in HOSTS}
        (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts}}))

    def command(self, *then: dict[str, Any], options: tuple[str, ...] = ()) -> list[str]:
        """Return the command line of a playbook that does ``then`` while it holds the hosts."""
        play = {
            "hosts": "all",
            "gather_facts": False,
            "any_errors_fatal": True,
            "connection": "local",
            "vars": {"ansible_connection": "local", "ansible_python_interpreter": sys.executable},
            "roles": ["lock"],
            "tasks": list(then),
        }
        name = self.folder / "mend.yml"
        name.write_text(yaml.safe_dump([play]))
        return [self._playbook, "-i", str(self.folder / "hosts.yml"), str(name), *options]

    def environment(self) -> dict[str, str]:
        return os.environ | {"ANSIBLE_CONFIG": str(ROLES.parent / "ansible.cfg")}

    def run(
        self, *then: dict[str, Any], options: tuple[str, ...] = ()
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.command(*then, options=options),
            env=self.environment(),
            capture_output=True,
            text=True,
        )
        done.stdout = " ".join(done.stdout.replace("''", "'").split())
        return done

    def holders(self) -> dict[str, str]:
        """Return the holder of each host."""
        files = {name: self.folder / name / "holder" for name in HOSTS}
        return {
            name: json.loads(file.read_text())["who"]
            for name, file in files.items()
            if file.exists()
        }


@pytest.fixture
def operator(playbook: str, tmp_path: Path) -> Operator:
    return Operator(playbook, tmp_path)


@pytest.fixture
def first(operator: Operator) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a run that holds both hosts, and goes on until it is ended."""
    there = operator.folder / "there"
    os.mkfifo(there)
    wait = {"ansible.builtin.command": {"argv": ["sh", "-c", f"echo >{there}; sleep 300"]}}
    with subprocess.Popen(
        operator.command(wait),
        env=operator.environment(),
        stdout=subprocess.DEVNULL,
        process_group=0,
    ) as process:
        there.read_text()
        yield process
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.slow
def test_all_is_given_back_at_the_end_also_where_it_fails(operator: Operator) -> None:
    ok = operator.run({"ansible.builtin.command": "ls {{ lock_folder }}/holder"})
    assert ok.returncode == 0, ok.stdout
    assert operator.holders() == {}
    failed = operator.run({"ansible.builtin.command": "false"})
    assert failed.returncode != 0
    assert operator.holders() == {}


@pytest.mark.slow
def test_the_second_learns_who_is_first_and_what_to_do(
    operator: Operator, first: subprocess.Popen[bytes]
) -> None:
    holders = operator.holders()
    assert [*holders] == ["one", "two"]
    refused = operator.run()
    assert refused.returncode != 0
    found = re.search(
        r"(\S+@\S+) has held one for \d+ seconds, with mend.yml: wait until that has ended. "
        r"If it was killed, or its machine is gone, and nobody goes on with it: "
        r"-e unlock=([0-9a-f]{12})",
        refused.stdout,
    )
    assert found is not None, refused.stdout
    assert found[1] == holders["one"]
    assert operator.holders() == holders
    assert operator.run(options=("-e", "unlock=" + "0" * 12)).returncode != 0
    broken = operator.run(options=("-e", f"unlock={found[2]}"))
    assert broken.returncode == 0, broken.stdout
    assert operator.holders() == {}


@pytest.mark.slow
def test_ctrl_c_gives_back_what_was_held(
    operator: Operator, first: subprocess.Popen[bytes]
) -> None:
    os.killpg(first.pid, signal.SIGINT)
    first.wait(60)
    assert operator.holders() == {}


@pytest.mark.slow
def test_a_run_that_was_killed_is_followed_by_the_next_one_of_its_machine_alone(
    operator: Operator, first: subprocess.Popen[bytes]
) -> None:
    first.kill()
    first.wait(60)
    holder = operator.folder / "two" / "holder"
    elsewhere = json.loads(holder.read_text()) | {"machine": "0" * 12}
    assert [*operator.holders()] == ["one", "two"]
    assert operator.run().returncode == 0
    assert operator.holders() == {}
    holder.write_text(json.dumps(elsewhere))
    refused = operator.run()
    assert re.search("has held two for [0-9]+ seconds, with mend.yml: wait", refused.stdout)
    # The run has released the host that it held itself.
    assert [*operator.holders()] == ["two"]


def test_a_run_that_only_looks_holds_nothing(
    operator: Operator, first: subprocess.Popen[bytes]
) -> None:
    assert operator.run(options=("--check",)).returncode == 0


@pytest.mark.slow
def test_what_a_host_answers_is_neither_a_command_nor_a_variable_here(operator: Operator) -> None:
    """An attacker on a host must not get the machine that deploys."""
    mark = operator.folder / "run-here"
    answer = {
        "rc": 0,
        "ansible_stats": {"data": {"newsfabric_give_back": f"touch {mark}"}},
        "ansible_facts": {"newsfabric_command": f"touch {mark}", "lock_folder": "/nowhere"},
    }
    python = operator.folder / "python"
    python.write_text(f"#!/bin/sh\necho '{json.dumps(answer)}'\n")
    python.chmod(0o755)
    asked = {
        "ansible.builtin.command": "true",
        "vars": {"ansible_python_interpreter": str(python)},
    }
    still = [
        f"lock_folder == '{operator.folder}/' ~ inventory_hostname",
        "newsfabric_command is not defined",
    ]
    done = operator.run(asked, {"ansible.builtin.assert": {"that": still}})
    assert done.returncode == 0, done.stdout
    assert not mark.exists()
    assert operator.holders() == {}
