"""The playbooks' actions on brokers that run, and on those that don't."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from localfabric.world import bounded_declarations, hidden_logins
from localfabric.world.broker import ENTRANCE_SESSIONS, advanced
from operations.instance.description import INSTANCE_ID
from tests.deploy.unit_templates import ROLES

IMPORT: Final = ROLES / "rabbitmq" / "tasks" / "import.yml"
STRANGERS: Final = ROLES / "rabbitmq" / "files" / "strangers.py"
SECRET: Final = "s" * 64
# A broker whose users are the lines of a file, and a systemd that knows whether it runs.
RABBITMQCTL: Final = """#!/bin/sh
case $* in
    '--quiet --formatter json list_users')
        sed 's/.*/{"user": "&", "tags": []}/' users | paste -sd, | sed 's/.*/[&]/' ;;
    '--quiet delete_user '*) echo done; sed -i "/^$3\\$/d" users ;;
    *) exit 1 ;;
esac
"""
SYSTEMCTL: Final = """#!/bin/sh
case $* in
    'is-active --quiet rabbitmq-server') test -e runs ;;
    *) echo 'Tue 2026-11-24 08:00:00.000000 UTC' ;;
esac
"""


@pytest.fixture
def broker(tmp_path: Path) -> Path:
    """Return the folder of a running broker that has users it should have, and others."""
    for name, text in (("rabbitmqctl", RABBITMQCTL), ("systemctl", SYSTEMCTL)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "runs").touch()
    users = ["cms", "left", "box.oregon-retail-9", "operator", "box.i-0123456789abcdef0"]
    (tmp_path / "users").write_text("".join(f"{user}\n" for user in users))
    fields = {"users": [{"name": "operator"}, {"name": "cms"}, {"name": "box.oregon-retail-1"}]}
    (tmp_path / "definitions.json").write_text(json.dumps(fields))
    return tmp_path


def ran(broker: Path, *command: str) -> str:
    done = subprocess.run(
        command,
        cwd=broker,
        env={**os.environ, "PATH": f"{broker}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_who_is_in_no_definitions_loses_the_login_and_boxes_of_groups_keep_it(
    broker: Path,
) -> None:
    command = (sys.executable, str(STRANGERS), "definitions.json")
    assert ran(broker, *command) == "box.oregon-retail-9\nleft\n"
    assert (broker / "users").read_text() == "cms\noperator\nbox.i-0123456789abcdef0\n"
    assert ran(broker, *command) == ""
    assert INSTANCE_ID.pattern in STRANGERS.read_text()


def test_a_broker_that_does_not_run_is_sent_nothing(broker: Path) -> None:
    [asks] = [
        task["ansible.builtin.shell"]["cmd"]
        for task in yaml.safe_load(IMPORT.read_text())
        if task["name"] == "Compare the broker's start with its definitions"
    ]
    asks = asks.replace("/etc/rabbitmq/", f"{broker}/")
    before = (broker / "users").read_text()
    assert ran(broker, "sh", "-c", asks) == f"{broker}/definitions.json\n"
    (broker / "runs").unlink()
    assert ran(broker, "sh", "-c", asks) == ""
    assert ran(broker, sys.executable, str(STRANGERS), "definitions.json") == ""
    assert (broker / "users").read_text() == before


@pytest.mark.parametrize("name", ["deploy", "rotate-secrets"])
def test_hosts_out_of_service_are_refused_before_anything_is_changed(name: str) -> None:
    plays = yaml.safe_load((ROLES.parent / "playbooks" / f"{name}.yml").read_text())
    assert plays[0]["ansible.builtin.import_playbook"] == "begin.yml"
    [task] = plays[1]["tasks"]
    assert task["ansible.builtin.include_tasks"] == "tasks/all_in_service.yml"
    assert (plays[1]["hosts"], plays[1]["any_errors_fatal"]) == ("all:!image", True)


# Hosts of each kind, and the versions of RabbitMQ for which their settings are rendered.
RENDERED: Final = {
    "oregon-client-1": ("3.10", "3.12", "4.3"),
    "oregon-core-1": ("4.3",),
    "oregon-core-2": ("4.3",),
    "oregon-retail-1": ("4.3",),
}


@pytest.fixture(scope="module")
def rendered(playbook: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return files of these hosts by ``HOST/FILE``, for rabbitmq.conf ``HOST/FILE-VERSION``."""
    folder = tmp_path_factory.mktemp("rendered")

    def task(template: str, target: str, **more: Any) -> dict[str, Any]:
        given = {
            "src": str(ROLES / "rabbitmq" / "templates" / f"{template}.j2"),
            "dest": f"{folder}/{{{{ inventory_hostname }}}}/{target}",
        }
        return {"ansible.builtin.template": given, **more}

    versions = sorted({version for each in RENDERED.values() for version in each})
    play = {
        "hosts": ":".join(RENDERED),
        "connection": "local",
        "gather_facts": False,
        "tasks": [
            task("rabbitmq-env.conf", "rabbitmq-env.conf"),
            task("advanced.config", "advanced.config"),
            *(
                task(
                    "rabbitmq.conf",
                    f"rabbitmq.conf-{version}",
                    vars={"rabbitmq_version": version},
                    when=f"inventory_hostname in {[h for h in RENDERED if version in RENDERED[h]]}",
                )
                for version in versions
            ),
        ],
    }
    for host in RENDERED:
        (folder / host).mkdir()
    (folder / "play.yml").write_text(yaml.safe_dump([play]))
    given = {
        "newsfabric_secret": SECRET,
        "playbook_dir": str(ROLES.parent / "playbooks"),
    }
    inventory = str(ROLES.parent / "inventories" / "production" / "hosts.yml")
    done = subprocess.run(
        [playbook, "-i", inventory, str(folder / "play.yml"), "-e", json.dumps(given)],
        cwd=ROLES.parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {
        f"{host}/{file.name}": file.read_text()
        for host in RENDERED
        for file in (folder / host).iterdir()
    }


@pytest.mark.parametrize("host", ["oregon-core-2", "oregon-client-1", "oregon-retail-1"])
def test_a_broker_stands_alone_on_its_loopback(rendered: dict[str, str], host: str) -> None:
    assert rendered[f"{host}/rabbitmq-env.conf"].splitlines()[-2:] == [
        f"NODENAME={host}@localhost",
        'SERVER_ADDITIONAL_ERL_ARGS="-kernel inet_dist_use_interface {127,0,0,1}"',
    ]
    settings = rendered[f"{host}/rabbitmq.conf-4.3"]
    assert f"cluster_name = production-{host}\n" in settings
    words = ("cluster_formation", "cluster_partition_handling", "oregon-core-1", "oregon-core-3")
    assert [word for word in words if word in settings] == []


@pytest.mark.parametrize(
    ("host", "version", "stamps"),
    [
        ("oregon-client-1", "3.10", False),
        ("oregon-client-1", "3.12", True),
        ("oregon-client-1", "4.3", True),
        ("oregon-core-1", "4.3", False),
        ("oregon-retail-1", "4.3", False),
    ],
)
def test_entrances_alone_stamp_messages_where_they_know_how(
    rendered: dict[str, str], host: str, version: str, stamps: bool
) -> None:
    settings = rendered[f"{host}/rabbitmq.conf-{version}"]
    wanted = "message_interceptors.incoming.set_header_timestamp.overwrite = false"
    assert (wanted in settings.splitlines()) == stamps


@pytest.mark.parametrize(
    ("host", "sessions"),
    [("oregon-client-1", ENTRANCE_SESSIONS), ("oregon-core-1", 0), ("oregon-retail-1", 0)],
)
def test_brokers_of_hosts_refuse_what_those_of_worlds_do(
    rendered: dict[str, str], host: str, sessions: int
) -> None:
    text = rendered[f"{host}/advanced.config"]
    assert text.partition("[")[1:] == ("[", advanced(sessions).removeprefix("["))


def test_brokers_of_hosts_hide_logins_and_bound_declarations_as_those_of_worlds_do() -> None:
    tasks = yaml.safe_load((ROLES / "rabbitmq" / "tasks" / "evaluated.yml").read_text())
    copies = [task["ansible.builtin.copy"] for task in tasks]
    copied = []
    for evaluated in (hidden_logins, bounded_declarations):
        file = ROLES / "rabbitmq" / "files" / evaluated.FILE
        assert file.read_text() == evaluated.EXPRESSIONS
        copied += [copy["dest"] for copy in copies if copy.get("src") == file.name]
    unit = (ROLES / "rabbitmq" / "templates" / "unit.conf.j2").read_text().splitlines()
    quoted = hidden_logins.erl_flags(*copied).replace('"', '\\"')
    assert f'Environment="ERL_AFLAGS={quoted}"' in unit
    assert "Environment=ERL_CRASH_DUMP_BYTES=0" in unit


def test_boxes_that_come_by_themselves_have_what_their_brokers_evaluate() -> None:
    """The image has the unit, which names these files; only the role's install.yml makes them."""
    tasks = yaml.safe_load((ROLES / "instance" / "tasks" / "install.yml").read_text())
    roles = [task.get("ansible.builtin.include_role") for task in tasks]
    assert {"name": "rabbitmq", "tasks_from": "evaluated.yml"} in roles


def secret_made(folder: Path) -> Path:
    """Make the secret with the role's command, as the user of the tests; return the file."""
    tasks = yaml.safe_load((ROLES / "rabbitmq" / "tasks" / "secret.yml").read_text())
    [shell] = [task["ansible.builtin.shell"] for task in tasks if "ansible.builtin.shell" in task]
    words = shell["cmd"].replace("chown rabbitmq:rabbitmq", "true")
    folder.mkdir()
    subprocess.run(["sh", "-c", words], cwd=folder, check=True)
    return folder / ".erlang.cookie"


def test_each_broker_has_a_secret_of_its_own(tmp_path: Path) -> None:
    one, other = secret_made(tmp_path / "one"), secret_made(tmp_path / "other")
    assert (one.stat().st_mode & 0o777, len(one.read_text())) == (0o400, 64)
    assert one.read_text() != other.read_text()
    assert [file.name for file in one.parent.iterdir()] == [".erlang.cookie"]


def moved(broker: Path) -> list[str]:
    """Return the files of a broker's folder after upgrade-rabbitmq.yml has moved its data away."""
    file = ROLES.parent / "playbooks" / "tasks" / "replace-broker.yml"
    [words] = [
        task["ansible.builtin.shell"]["cmd"]
        for task in yaml.safe_load(file.read_text())
        if task["name"] == "Move its data away"
    ]
    subprocess.run(["sh", "-c", words], cwd=broker, check=True)
    return sorted(str(path.relative_to(broker)) for path in broker.rglob("*"))


def test_a_broker_that_is_upgraded_begins_without_data_also_if_the_run_is_given_again(
    tmp_path: Path,
) -> None:
    (tmp_path / "mnesia/oregon-core-1@localhost").mkdir(parents=True)
    (tmp_path / "mnesia/newsfabric-version").write_text("3.10\n")
    (tmp_path / "mnesia.former/an-older-one").mkdir(parents=True)
    (tmp_path / ".erlang.cookie").touch()
    # The volume's own files stay.
    (tmp_path / "newsfabric-place").touch()
    left = [
        "mnesia.former",
        "mnesia.former/newsfabric-version",
        "mnesia.former/oregon-core-1@localhost",
        "newsfabric-place",
    ]
    assert moved(tmp_path) == left
    assert moved(tmp_path) == left


def test_brokers_are_upgraded_one_after_the_other_and_boxes_are_drained_first() -> None:
    plays = yaml.safe_load((ROLES.parent / "playbooks" / "upgrade-rabbitmq.yml").read_text())
    prechecks, _, *brokers, verify = plays
    assert prechecks["ansible.builtin.import_playbook"] == "begin.yml"
    assert verify["ansible.builtin.import_playbook"] == "verify.yml"
    assert [play["serial"] for play in brokers] == [1, 1, 1]
    assert all(play["any_errors_fatal"] for play in brokers)
    files = {
        play["name"]: [
            step.get("ansible.builtin.include_tasks", "")
            for task in play["tasks"]
            for step in task.get("block", [task])
        ]
        for play in brokers
    }
    replaced = "tasks/replace-broker.yml"
    emptied = {
        "Upgrade proxy and client nodes": "tasks/publishers-leave.yml",
        "Upgrade core nodes": "tasks/empty.yml",
        "Upgrade boxes": "tasks/drain.yml",
    }
    assert files.keys() == emptied.keys()
    for name, how in emptied.items():
        assert files[name].index(how) < files[name].index(replaced)


def followed(playbook: str, folder: Path, order: list[int]) -> dict[str, Any]:
    """Return settings that follow from an inventory with a region's nodes in this order."""
    hosts: dict[str, Any] = {
        group: {"hosts": {f"oregon-{group}-{n}": {"ansible_host": f"10.1.1.{n}"} for n in order}}
        for group in ("core", "store")
    }
    hosts["oregon"] = {"children": {group: {} for group in hosts}}
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"children": hosts}}, sort_keys=False))
    (folder / "group_vars").symlink_to(ROLES.parent / "group_vars")
    play = {
        "hosts": "oregon-core-2",
        "connection": "local",
        "gather_facts": False,
        "vars_files": [str(ROLES / "cassandra" / "vars" / "main.yml")],
        "vars": {
            "settings": {
                "cluster": "{{ newsfabric_cluster }}",
                "seeds": "{{ cassandra_seeds }}",
            },
        },
        "tasks": [
            {
                "ansible.builtin.copy": {
                    "content": "{{ settings | to_json }}",
                    "dest": str(folder / "settings.json"),
                }
            }
        ],
    }
    (folder / "play.yml").write_text(yaml.safe_dump([play]))
    given = json.dumps({"newsfabric_regions": ["oregon"], "newsfabric_secret": SECRET})
    done = subprocess.run(
        [playbook, "-i", str(folder / "hosts.yml"), str(folder / "play.yml"), "-e", given],
        cwd=ROLES.parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    document: dict[str, Any] = json.loads((folder / "settings.json").read_text())
    return document


def test_brokers_and_seeds_do_not_hang_on_the_inventorys_order(
    playbook: str, tmp_path: Path
) -> None:
    order = followed(playbook, tmp_path, [3, 1, 2])
    assert order["cluster"] == ["oregon-core-1", "oregon-core-2", "oregon-core-3"]
    assert order["seeds"] == "10.1.1.1:7000,10.1.1.2:7000"


@pytest.mark.parametrize(
    ("regions", "expected"),
    [(["oregon", "dublin"], "dublin-store-2"), (["oregon"], "oregon-store-1")],
)
def test_tables_are_made_by_the_last_node_of_the_regions_that_stay(
    playbook: str, tmp_path: Path, regions: list[str], expected: str
) -> None:
    stores = {"oregon-store-1": {}, "dublin-store-1": {}, "dublin-store-2": {}}
    inventory = {
        "store": {"hosts": stores},
        "oregon": {"hosts": {"oregon-store-1": {}}},
        "dublin": {"hosts": {"dublin-store-1": {}, "dublin-store-2": {}}},
    }
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"children": inventory}}))
    (tmp_path / "group_vars").symlink_to(ROLES.parent / "group_vars")
    file = tmp_path / "commands"
    play = {
        "hosts": "oregon",
        "connection": "local",
        "gather_facts": False,
        "vars_files": [str(ROLES / "cassandra" / "vars" / "main.yml")],
        "tasks": [{"ansible.builtin.copy": {"content": "{{ cassandra_last }}", "dest": str(file)}}],
    }
    (tmp_path / "play.json").write_text(json.dumps([play]))
    given = json.dumps({"newsfabric_regions": regions})
    done = subprocess.run(
        [playbook, "-i", tmp_path / "hosts.json", tmp_path / "play.json", "-e", given],
        cwd=ROLES.parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert file.read_text() == expected
