"""The facts that role ``precheck`` collects on a host, and its refusals; on this machine alone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import yaml

from tests.deploy.prechecks import PRECHECK, checks
from tests.deploy.unit_templates import ROLES

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
    "localhost": "127.0.0.1",
    "rabbitmq": "4.0.5",
    "rabbitmq_lacks": [],
    "rabbitmq_name": f"{CORE}@localhost",
    "rabbitmq_data": "4.0",
}
ROOM: Final = ": make room, or lower newsfabric_least_disk_mib"
WHOSE: Final = (
    "The host is of no other fabric, and neither another part nor another host of this one"
)


def looked(machine: Path) -> dict[str, Any]:
    """Return the facts that look.py finds on the machine whose root is ``machine``."""
    (machine / "var" / "lib").mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(PRECHECK / "files" / "look.py"), "/opt/newsfabric", "5.0.4"]
    command += [str(int(time.time()) + 3600), str(machine)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found: dict[str, Any] = json.loads(output)
    assert found.pop("free_mib") > 0
    # An hour, less the duration of the call.
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
        "localhost": "127.0.0.1",
        "rabbitmq": "",
        "rabbitmq_lacks": [],
        "rabbitmq_name": "",
        "rabbitmq_data": "",
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
        "localhost": "127.0.0.1",
        "rabbitmq": "",
        "rabbitmq_lacks": [],
        "rabbitmq_name": "",
        "rabbitmq_data": "",
    }
    assert looked(tmp_path) == whole
    for name in ("place", "secret-mark", "fabric.json"):
        (ours / name).write_text("")
    assert looked(tmp_path) == {**whole, "place": "", "secret_mark": "", "tls": None}


def test_of_a_broker_its_version_its_plugins_its_name_and_its_datas_version_are_seen(
    tmp_path: Path,
) -> None:
    home = tmp_path / "usr/lib/rabbitmq/lib/rabbitmq_server-4.0.5"
    # As a folder, and as an archive.
    (home / "plugins/rabbitmq_shovel-4.0.5").mkdir(parents=True)
    (home / "plugins/rabbitmq_management-4.0.5.ez").touch()
    (tmp_path / "usr/lib/rabbitmq/lib/rabbitmq_server-3.10.8").mkdir()
    (tmp_path / "etc/rabbitmq").mkdir(parents=True)
    settings = "# of a role\nNODENAME=oregon-core-1@oregon-core-1\nSERVER_ADDITIONAL_ERL_ARGS=x\n"
    (tmp_path / "etc/rabbitmq/rabbitmq-env.conf").write_text(settings)
    (tmp_path / "var/lib/rabbitmq/mnesia").mkdir(parents=True)
    (tmp_path / "var/lib/rabbitmq/mnesia/newsfabric-version").write_text("3.10\n")
    found = looked(tmp_path)
    assert {name: found[name] for name in found if name.startswith("rabbitmq")} == {
        "rabbitmq": "4.0.5",
        "rabbitmq_lacks": [
            "rabbitmq_prometheus",
            "rabbitmq_shovel_management",
            "rabbitmq_auth_mechanism_ssl",
        ],
        "rabbitmq_name": "oregon-core-1@oregon-core-1",
        "rabbitmq_data": "3.10",
    }


def test_each_plugin_that_brokers_are_to_load_is_looked_for() -> None:
    text = (ROLES / "rabbitmq" / "templates" / "enabled_plugins.j2").read_text()
    looks = (PRECHECK / "files" / "look.py").read_text()
    named = set(re.findall(r"rabbitmq_[a-z_]+", text))
    assert named == set(re.findall(r'^    "(rabbitmq_[a-z_]+)",$', looks, re.MULTILINE))


def checked(
    playbook: str,
    folder: Path,
    name: str,
    *cases: dict[str, Any],
    host: str = CORE,
    hosts: dict[str, str] | None = None,
) -> list[str]:
    """Return the error of the check of that name on ``host`` in each case; empty if it passes.

    A case has the variables that are set; ``seen`` in it replaces look.py's facts. ``hosts`` are
    addresses other than the inventory's.
    """
    plays = [
        {
            "hosts": host,
            "connection": "local",
            "gather_facts": False,
            "vars": {
                "playbook_dir": str(ROLES.parent / "playbooks"),
                "precheck_found": {"stdout": json.dumps(SEEN | case.get("seen", {}))},
                **case,
            },
            "tasks": [{**task, "ignore_errors": True} for task in checks(name)],
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
    answers_of_hosts = [play["tasks"][-1]["hosts"][host] for play in answers["plays"]]
    assert len(answers_of_hosts) == len(cases)
    return [answer["msg"] if answer.get("failed") else "" for answer in answers_of_hosts]


def test_a_host_stays_what_it_is(playbook: str, tmp_path: Path) -> None:
    ours = [
        {},
        {"place": ""},
        # As written by versions that put no name there.
        {"place": "production oregon core"},
    ]
    others = [
        {"place": "production oregon core", "name": OTHER},
        {"place": f"production oregon core {OTHER}"},
        {"place": f"production oregon core {OTHER}", "name": OTHER},
        {"place": f"production oregon retail {CORE}"},
        {"place": f"staging oregon core {CORE}"},
    ]
    errors = checked(playbook, tmp_path, WHOSE, *({"seen": seen} for seen in ours + others))
    assert errors[: len(ours)] == [""] * len(ours)
    begin = [text.split(" (")[0] for text in errors[len(ours) :]]
    assert begin == [f'{CORE} is already "{seen["place"]}"' for seen in others]


def test_two_names_with_one_address_are_refused(playbook: str, tmp_path: Path) -> None:
    name = "No other host has it"
    assert checked(playbook, tmp_path, name, {}) == [""]
    [error] = checked(playbook, tmp_path, name, {}, hosts={OTHER: "10.1.1.21"})
    assert error.startswith(f"of {CORE}, {OTHER} several have one address: give each")


def test_a_host_that_serves_needs_a_tenth_of_the_room_of_a_new_one(
    playbook: str, tmp_path: Path
) -> None:
    found = [(51_200, False), (51_199, False), (5_120, True), (5_119, True)]
    cases = [{"seen": {"free_mib": free, "serves": serves}} for free, serves in found]
    assert checked(playbook, tmp_path, "The disk is large enough", *cases, host=STORE) == [
        "",
        f"{STORE} has 51199 MiB free below /var/lib, and a store host needs 51200" + ROOM,
        "",
        f"{STORE} has 5119 MiB free below /var/lib, and a store host that serves needs 5120" + ROOM,
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
            "precheck_topics": {"rc": 0, "stdout": json.dumps(listed)},
        }
        for listed, passwords, _ in wrong
    ]
    assert checked(playbook, tmp_path, "Publishers are those that have a password", *cases) == [
        f"newsfabric_publisher_passwords has {line} (publishers are those of topics.toml)"
        if line
        else ""
        for _, _, line in wrong
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
    [error] = checked(playbook, tmp_path, "There is a certificate for the host", case)
    assert f"`newsfabric certs issue {CORE} --folder /srv/certs --san 10.1.1.21`" in error


def test_a_distribution_that_nobody_tried_is_refused(playbook: str, tmp_path: Path) -> None:
    cases = [
        {"ansible_facts": {"distribution": "Debian", "distribution_release": release}}
        for release in ("trixie", "bookworm", "bullseye")
    ]
    assert checked(playbook, tmp_path, "The distribution is supported", *cases) == [
        "",
        "",
        f"{CORE} runs Debian bullseye, on which nothing here was tried; "
        "supported: trixie, bookworm",
    ]


def test_a_rabbitmq_that_is_too_old_is_refused(playbook: str, tmp_path: Path) -> None:
    versions = ["", "3.10.8", "4.3.6", "3.9.27"]
    cases = [{"seen": {"rabbitmq": version}} for version in versions]
    assert checked(playbook, tmp_path, "RabbitMQ is young enough", *cases) == [
        "",
        "",
        "",
        f"{CORE} has RabbitMQ 3.9.27, and nothing older than 3.10 was tried: "
        "install a later one, or take a machine of a later Debian",
    ]


def test_plugins_that_are_missing_are_named_before_the_broker_does_not_boot(
    playbook: str, tmp_path: Path
) -> None:
    by_certificate = {"rabbitmq_lacks": ["rabbitmq_auth_mechanism_ssl"]}
    cases: list[dict[str, Any]] = [
        {},
        {"seen": by_certificate},
        {"seen": by_certificate, "newsfabric_amqp_client_certificates": True},
        {"seen": {"rabbitmq_lacks": ["rabbitmq_prometheus", "rabbitmq_shovel"]}},
    ]
    name = "RabbitMQ has the plugins that it is to load"
    errors = [text.split(", without")[0] for text in checked(playbook, tmp_path, name, *cases)]
    assert errors == [
        "",
        "",
        f"RabbitMQ 4.0.5 of {CORE} lacks rabbitmq_auth_mechanism_ssl",
        f"RabbitMQ 4.0.5 of {CORE} lacks rabbitmq_prometheus, rabbitmq_shovel",
    ]


def test_a_host_that_does_not_know_localhost_is_reported_with_the_line_to_write(
    playbook: str, tmp_path: Path
) -> None:
    cases = [{"seen": {"localhost": address}} for address in ("127.0.0.1", "", "10.1.1.21")]
    errors = checked(playbook, tmp_path, "The host knows itself as localhost", *cases)
    assert errors[0] == ""
    assert errors[1].startswith(f"on {CORE} localhost is no name that resolves, and its broker")
    assert errors[2].startswith(
        f"on {CORE} localhost is 10.1.1.21, and its broker is called {CORE}@"
    )
    assert all(text.endswith('put "127.0.0.1 localhost" into /etc/hosts') for text in errors[1:])


def test_a_node_of_a_cluster_is_refused_but_by_the_playbook_that_frees_it(
    playbook: str, tmp_path: Path
) -> None:
    node = {"rabbitmq_name": f"{CORE}@{CORE}"}
    cases: list[dict[str, Any]] = [
        {},
        {"seen": {"rabbitmq_name": ""}},
        {"seen": node, "precheck_replaces_broker": True},
        {"seen": node},
    ]
    errors = checked(playbook, tmp_path, "The broker stands alone", *cases)
    assert errors[:3] == ["", "", ""]
    assert errors[3].startswith(
        f"RabbitMQ of {CORE} is called {CORE}@{CORE}, as an earlier version"
    )
    assert errors[3].endswith(f"upgrade-rabbitmq.yml with -e node={CORE} makes it one of them")


def test_data_of_another_version_are_refused_but_by_the_playbook_that_moves_them(
    playbook: str, tmp_path: Path
) -> None:
    older = {"rabbitmq": "4.3.6", "rabbitmq_data": "3.10"}
    cases: list[dict[str, Any]] = [
        {},
        {"seen": {"rabbitmq": "4.0.9"}},
        {"seen": {"rabbitmq_data": ""}},
        {"seen": {"rabbitmq": ""}},
        {"seen": older, "precheck_replaces_broker": True},
        {"seen": older},
        {"seen": {"rabbitmq": "3.10.8", "rabbitmq_data": "4.0"}},
    ]
    name = "The broker's data are of the version that is installed"
    errors = [text.split(", which")[0] for text in checked(playbook, tmp_path, name, *cases)]
    assert errors == [
        *[""] * 5,
        f"{CORE} has RabbitMQ 4.3.6 and data of 3.10",
        f"{CORE} has RabbitMQ 3.10.8 and data of 4.0",
    ]


def test_one_run_names_all_faults_of_all_hosts_and_fails_once(
    playbook: str, tmp_path: Path
) -> None:
    variables = {
        # This machine stands for all hosts.
        "ansible_connection": "local",
        "ansible_become": False,
        "ansible_python_interpreter": sys.executable,
        "newsfabric_command": str(Path(sys.executable).with_name("newsfabric")),
        "newsfabric_distributions": ["trixie", "bookworm", "buster"],
        "newsfabric_clock_tolerance_seconds": 3600,
        "newsfabric_publisher_passwords": {},
        "newsfabric_tls": True,
        "newsfabric_certs": str(tmp_path / "certs"),
        "newsfabric_least_disk_mib": {"core": 10**9, "store": 10**9},
        "newsfabric_cassandra_jars": str(tmp_path / "jars"),
        # Two errors of the inventory.
        "newsfabric_secret": "guessable",
        "newsfabric_bundle": str(tmp_path / "newsfabric-1.tar"),
    }
    (tmp_path / "newsfabric-1.tar").touch()
    words = ["-i", str(ROLES.parent / "inventories" / "production" / "hosts.yml")]
    words += ["--limit", f"{CORE},{STORE}", "-e", json.dumps(variables)]
    done = subprocess.run(
        [playbook, *words, str(ROLES.parent / "playbooks" / "precheck.yml")],
        cwd=ROLES.parent,
        env={**os.environ, "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json"},
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    answers = json.loads(done.stdout[done.stdout.index("{") :])
    assert answers["stats"][CORE]["failures"] + answers["stats"][STORE]["failures"] == 1
    (last,) = answers["plays"][0]["tasks"][-1]["hosts"].values()
    begin = [
        f"{tmp_path}/newsfabric-1.tar doesn't match the .sha256 beside it",
        "newsfabric_secret is missing or short",
        f"{tmp_path}/newsfabric-1.tar isn't called newsfabric-VERSION-BUILD.tar",
        f"{CORE} has ",
        f"no certificate of {CORE} in {tmp_path}/certs: `newsfabric certs issue {CORE} ",
        f"{tmp_path}/jars has no Cassandra 5.0.4",
        f"{STORE} has ",
        f"no certificate of {STORE} in {tmp_path}/certs: `newsfabric certs issue {STORE} ",
    ]
    assert [
        text[: len(start)] for text, start in zip(last["msg"].splitlines(), begin, strict=True)
    ] == begin
