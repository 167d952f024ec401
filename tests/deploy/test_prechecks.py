"""What role ``precheck`` sees on a host, and what it refuses, with nothing but this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import yaml

from tests.deploy.unit_templates import ROLES

PRECHECK: Final = ROLES / "precheck"
CORE, OTHER, STORE = "oregon-core-1", "oregon-core-2", "oregon-store-1"
RELEASE: Final = "0.1.0-0123456789ab"
IMAGE: Final = "1" * 64
SEEN: Final[dict[str, Any]] = {
    "free_mib": 100_000,
    "ahead_seconds": 0,
    "name": CORE,
    "place": f"production oregon core {CORE}",
    "secret_mark": "",
    "image": IMAGE,
    "tls": None,
    "release": RELEASE,
    "serves": True,
    "cassandra": False,
}
WHOSE: Final = (
    "The host is of no other fabric, and neither another part nor another host of this one"
)


def looked(machine: Path) -> dict[str, Any]:
    """What look.py says of the machine whose root is ``machine``."""
    (machine / "var" / "lib").mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(PRECHECK / "files" / "look.py"), "/opt/newsfabric", "5.0.4"]
    command += [str(int(time.time()) + 3600), str(machine)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found: dict[str, Any] = json.loads(said)
    assert found.pop("free_mib") > 0
    # An hour, less what it took to ask.
    assert -3600 <= found.pop("ahead_seconds") < -3000
    return found


def test_a_fresh_machine_has_nothing_of_ours(tmp_path: Path) -> None:
    assert looked(tmp_path) == {
        "name": "",
        "place": "",
        "secret_mark": "",
        "image": "",
        "tls": None,
        "release": "",
        "serves": False,
        "cassandra": False,
    }


def test_what_a_host_is_is_found_by_name_whatever_a_power_cut_has_emptied(tmp_path: Path) -> None:
    ours, home = tmp_path / "etc" / "newsfabric", tmp_path / "opt" / "newsfabric"
    for folder in (ours, home, tmp_path / "opt" / "cassandra" / "5.0.4"):
        folder.mkdir(parents=True)
    (tmp_path / "etc" / "hostname").write_text(f"{CORE}\n")
    (ours / "place").write_text("production oregon core oregon-core-1\n")
    (ours / "secret-mark").write_text("0123456789abcdef\n")
    (ours / "image").write_text(f"{IMAGE}\n")
    (ours / "fabric.json").write_text('{"amqp": "amqps://oregon-core-1"}')
    (home / "current").symlink_to(f"releases/{RELEASE}")
    (home / "running").write_text(f"{RELEASE}\n")
    (tmp_path / "opt" / "cassandra" / "5.0.4" / "complete").touch()
    whole = {
        "name": CORE,
        "place": f"production oregon core {CORE}",
        "secret_mark": "0123456789abcdef",
        "image": IMAGE,
        "tls": True,
        "release": RELEASE,
        "serves": True,
        "cassandra": True,
    }
    assert looked(tmp_path) == whole
    for name in ("place", "secret-mark", "fabric.json"):
        (ours / name).write_text("")
    assert looked(tmp_path) == {**whole, "place": "", "secret_mark": "", "tls": None}


def checked(
    playbook: str,
    folder: Path,
    name: str,
    *cases: dict[str, Any],
    host: str = CORE,
    hosts: dict[str, str] | None = None,
) -> list[str]:
    """What the check of that name says of ``host`` in each case: nothing where it passes.

    A case is what is set then; ``seen`` in it differs from what look.py would have seen. ``hosts``
    are other addresses than the inventory's.
    """
    [check] = [
        task
        for task in yaml.safe_load((PRECHECK / "tasks" / "main.yml").read_text())
        if task["name"] == name
    ]
    plays = [
        {
            "hosts": host,
            "connection": "local",
            "gather_facts": False,
            "vars_files": [str(PRECHECK / "vars" / "main.yml")],
            "vars": {
                "playbook_dir": str(ROLES.parent / "playbooks"),
                "precheck_found": {"stdout": json.dumps(SEEN | case.get("seen", {}))},
                **case,
            },
            "tasks": [{**check, "ignore_errors": True}],
        }
        for case in cases
    ]
    (folder / "play.yml").write_text(yaml.safe_dump(plays))
    inventories = ["-i", str(ROLES.parent / "inventories" / "production" / "hosts.yml")]
    if hosts is not None:
        more = {each: {"ansible_host": address} for each, address in hosts.items()}
        (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": more}}))
        inventories += ["-i", str(folder / "hosts.yml")]
    done = subprocess.run(
        [playbook, *inventories, str(folder / "play.yml")],
        cwd=ROLES.parent,
        env={**os.environ, "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    answers = json.loads(done.stdout[done.stdout.index("{") :])
    each_said = [play["tasks"][0]["hosts"][host] for play in answers["plays"]]
    assert len(each_said) == len(cases)
    return [answer["msg"] if answer.get("failed") else "" for answer in each_said]


def test_a_host_stays_what_it_is(playbook: str, tmp_path: Path) -> None:
    ours = [
        {},
        {"place": ""},
        # As versions wrote it that put no name there.
        {"place": "production oregon core"},
    ]
    others = [
        {"place": "production oregon core", "name": OTHER},
        {"place": f"production oregon core {OTHER}"},
        {"place": f"production oregon core {OTHER}", "name": OTHER},
        {"place": f"production oregon retail {CORE}"},
        {"place": f"staging oregon core {CORE}"},
    ]
    said = checked(playbook, tmp_path, WHOSE, *({"seen": seen} for seen in ours + others))
    assert said[: len(ours)] == [""] * len(ours)
    begin = [text.split(" (")[0] for text in said[len(ours) :]]
    assert begin == [f'{CORE} is already "{seen["place"]}"' for seen in others]


def test_two_names_with_one_address_are_refused(playbook: str, tmp_path: Path) -> None:
    name = "No other host has it"
    assert checked(playbook, tmp_path, name, {}) == [""]
    [said] = checked(playbook, tmp_path, name, {}, hosts={OTHER: "10.1.1.21"})
    assert said == f"of {CORE}, {OTHER} several have one address"


def test_a_host_that_serves_needs_a_tenth_of_the_room_of_a_new_one(
    playbook: str, tmp_path: Path
) -> None:
    found = [(51_200, False), (51_199, False), (5_120, True), (5_119, True)]
    cases = [{"seen": {"free_mib": free, "serves": serves}} for free, serves in found]
    assert checked(playbook, tmp_path, "The disk is large enough", *cases, host=STORE) == [
        "",
        f"{STORE} has 51199 MiB free below /var/lib, and a store host needs 51200",
        "",
        f"{STORE} has 5119 MiB free below /var/lib, and a store host that serves needs 5120",
    ]


def test_a_host_of_the_same_image_needs_no_packages(playbook: str, tmp_path: Path) -> None:
    images = {"same": IMAGE, "none": "", "other": "2" * 64}
    plays = [
        {
            "hosts": CORE,
            "connection": "local",
            "gather_facts": False,
            "vars": {
                "newsfabric_image": IMAGE,
                "precheck_found": {"stdout": json.dumps(SEEN | {"image": image})},
            },
            "tasks": [
                {
                    "ansible.builtin.copy": {
                        "content": "{{ newsfabric_installed }}",
                        "dest": str(tmp_path / name),
                    }
                }
            ],
        }
        for name, image in images.items()
    ]
    (tmp_path / "play.yml").write_text(yaml.safe_dump(plays))
    hosts = str(ROLES.parent / "inventories" / "production" / "hosts.yml")
    command = [playbook, "-i", hosts, str(tmp_path / "play.yml")]
    subprocess.run(command, cwd=ROLES.parent, capture_output=True, check=True)
    installed = {name: (tmp_path / name).read_text() for name in images}
    assert installed == {"same": "True", "none": "False", "other": "False"}


def test_each_publisher_has_a_password_and_nobody_else(playbook: str, tmp_path: Path) -> None:
    wrong: list[tuple[list[str], dict[str, Any], str]] = [
        ([], {}, ""),
        (["cms"], {"cms": "s3cret"}, ""),
        (["cms", "wire"], {"cms": "s3cret"}, "no password of wire, and one too many of nobody"),
        (["cms"], {"cms": ""}, "no password of cms, and one too many of nobody"),
        (["cms"], {"cms": 12345}, "no password of cms, and one too many of nobody"),
        ([], {"cms": "s3cret"}, "no password of nobody, and one too many of cms"),
    ]
    cases = [
        {
            "newsfabric_publisher_passwords": passwords,
            "newsfabric_topics_file": "topics.toml",
            "precheck_topics": {"stdout": json.dumps(listed)},
        }
        for listed, passwords, _ in wrong
    ]
    assert checked(playbook, tmp_path, "They are those that have a password", *cases) == [
        f"newsfabric_publisher_passwords has {said} (publishers are those of topics.toml)"
        if said
        else ""
        for _, _, said in wrong
    ]


def test_keys_of_tokens_that_are_missing_are_named(playbook: str, tmp_path: Path) -> None:
    (tmp_path / "keys.pem").touch()
    missing = tmp_path / "missing.pem"
    files = ["", str(tmp_path / "keys.pem"), str(missing)]
    cases = [{"newsfabric_token_keys_from": file} for file in files]
    assert checked(playbook, tmp_path, "The keys of tokens are there", *cases) == [
        "",
        "",
        f"newsfabric_token_keys_from: there is no file {missing} (it needs its whole path)",
    ]


def test_the_advice_for_a_certificate_names_the_folder(playbook: str, tmp_path: Path) -> None:
    case = {"newsfabric_certs": "/srv/certs"}
    [said] = checked(playbook, tmp_path, "There is a certificate for the host", case)
    assert f"`newsfabric certs issue {CORE} --folder /srv/certs --san 10.1.1.21`" in said
