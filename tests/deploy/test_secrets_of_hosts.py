"""The secrets that the playbooks give to a host, and their use there."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from newsfabric import kinds
from tests.deploy.prechecks import checks
from tests.deploy.terraform_output import ADMISSION
from tests.deploy.unit_templates import core_unit

ROOT: Final = Path(__file__).resolve().parents[2]
ANSIBLE: Final = ROOT / "deploy" / "ansible"
ROLES: Final = ANSIBLE / "roles"
CLIENT, CORE, STORE = "oregon-client-1", "oregon-core-1", "oregon-store-1"
BOX, PROXY = "oregon-retail-1", "singapore-proxy-1"
HOSTS: Final = (CLIENT, CORE, STORE, BOX, PROXY)
RELEASE_IS_NAMED: Final = "The bundle has a release's name"
STORES_ARE_KNOWN: Final = "Store nodes know each other"
FRONTDESKS_ASK: Final = "Frontdesks ask each other over https where there is TLS"
ONE_STORE: Final = "one-store"
PUBLISHERS: Final = {"cms": "a-publishers-password"}
PLAY: Final = [
    {
        "hosts": ":".join(HOSTS),
        "connection": "local",
        "gather_facts": False,
        "tasks": [
            {
                "ansible.builtin.include_vars": {"file": str(ROLES / role / "vars" / "main.yml")},
                "when": f"newsfabric_part == '{part}'",
            }
            for role, part in (("wholesale", "core"), ("cassandra", "store"))
        ]
        + [
            {
                "ansible.builtin.template": {
                    "src": str(ROLES / role / "templates" / f"{name}.j2"),
                    "dest": "{{ folder }}/{{ inventory_hostname }}." + name,
                    "mode": "0600",
                },
            }
            for role, name in (("base", "fabric.json"), ("rabbitmq", "rabbitmq-env.conf"))
        ]
        + [
            {
                "ansible.builtin.copy": {
                    "content": "{{ variables | to_json }}",
                    "dest": "{{ folder }}/{{ inventory_hostname }}.json",
                    "mode": "0600",
                },
                "vars": {
                    "variables": {
                        "brokers": "{{ newsfabric_broker_passwords }}",
                        "all": "{{ newsfabric_passwords_of }}",
                        "wholesale": "{{ wholesale_all | default([]) }}",
                        "logins": "{{ cassandra_logins | default({}) }}",
                    }
                },
            }
        ],
    }
]


def one_store(folder: Path) -> str:
    """Return an inventory of one store node, with production's settings."""
    settings = ANSIBLE / "inventories" / "production" / "group_vars"
    (folder / "group_vars").symlink_to(settings)
    hosts = {"store": {"hosts": {STORE: {}}}, "oregon": {"hosts": {STORE: {}}}}
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"children": hosts}}))
    return str(folder / "hosts.yml")


def played(
    playbook: str,
    folder: Path,
    play: list[dict[str, Any]],
    given: dict[str, Any],
    environment: str = "production",
) -> subprocess.CompletedProcess[str]:
    """Run a play with an inventory and the variables ``given``."""
    file = folder / "play.yml"
    file.write_text(yaml.safe_dump(play))
    more = json.dumps({"playbook_dir": str(ANSIBLE / "playbooks"), **given})
    inventory = str(ANSIBLE / "inventories" / environment / "hosts.yml")
    if environment == ONE_STORE:
        inventory = one_store(folder)
    return subprocess.run(
        [playbook, "-i", inventory, str(file), "--extra-vars", more],
        cwd=ANSIBLE,
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def folder(playbook: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the secrets that production's hosts would get, a file for each host."""
    made = tmp_path_factory.mktemp("variables")
    given = {
        "folder": str(made),
        "newsfabric_secret": "s" * 64,
        "newsfabric_publisher_passwords": PUBLISHERS,
        **ADMISSION,
    }
    done = played(playbook, made, PLAY, given)
    assert done.returncode == 0, done.stdout + done.stderr
    return made


def facts_of(folder: Path, host: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"{host}.json").read_text())
    return found


def services(*names: str) -> set[str]:
    return {f"{name}.{region}" for name in names for region in ("oregon", "dublin")}


def test_a_host_hears_of_the_passwords_of_its_own_brokers_users_alone(folder: Path) -> None:
    heard = {host: set(facts_of(folder, host)["brokers"]) for host in HOSTS}
    everywhere = services("keeper", "shovel") | {"operator"}
    assert heard == {
        CLIENT: everywhere | {"frontdesk.oregon", "cms"},
        CORE: everywhere
        | {f"{kind}.oregon" for kind in kinds.CORE}
        | {f"box.oregon-retail-{n}" for n in range(1, 7)},
        PROXY: everywhere | {"cms"},
        BOX: {f"box.{BOX}", "operator"},
        STORE: {"operator"},
    }


def test_an_operators_password_at_a_box_opens_no_other_broker(folder: Path) -> None:
    passwords = {host: facts_of(folder, host)["brokers"]["operator"] for host in HOSTS}
    assert passwords[BOX] != passwords[CORE] == passwords[CLIENT]
    assert passwords[BOX] not in facts_of(folder, CORE)["all"].values()


@pytest.mark.parametrize(
    ("host", "where", "more"),
    [
        (CLIENT, "oregon/client", []),
        (CORE, "oregon/core", ["--box=oregon-retail-1", "--box=oregon-retail-6"]),
        (PROXY, "singapore/proxy", []),
        (BOX, f"{BOX}/box", []),
    ],
)
def test_these_are_enough_for_its_broker(
    folder: Path, host: str, where: str, more: list[str]
) -> None:
    topics = folder / "topics.toml"
    topics.write_text((ROOT / "topics.toml").read_text())
    command = [str(ROOT / ".venv" / "bin" / "newsfabric"), "topology", "export", where, *more]
    command += [f"--fabric={folder / host}.fabric.json", f"--topics={topics}"]
    command += ["--operator=operator", "--passwords=-"]
    done = subprocess.run(
        command, input=json.dumps(facts_of(folder, host)["brokers"]), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_the_stores_administrator_is_known_on_store_nodes_alone(folder: Path) -> None:
    logins = {s["unit"]: s.get("store", "") for s in facts_of(folder, CORE)["wholesale"]}
    rights = {"writer": "newsfabric", "reader": "newsfabric_reader", "": ""}
    wanted = {core_unit(kind): rights[kinds.KINDS[kind].store] for kind in kinds.CORE}
    assert logins == wanted | {"newsfabric-admit": ""}
    retail = yaml.safe_load((ROLES / "retail" / "vars" / "main.yml").read_text())
    assert [service["store"] for service in retail["retail_services"]] == [
        "{{ newsfabric_cassandra_reader }}",
        "",
    ]
    found = facts_of(folder, STORE)["logins"]
    assert found["administrator"]["name"] == "newsfabric_administrator"
    assert {one["name"]: one["rights"] for one in found["services"]} == {
        "newsfabric": ["SELECT", "MODIFY"],
        "newsfabric_reader": ["SELECT"],
    }
    passwords = [found["administrator"], *found["services"]]
    assert len({one["password"] for one in passwords}) == 3


def test_frontdesks_alone_have_the_key_by_which_they_know_each_other(folder: Path) -> None:
    core = facts_of(folder, CORE)
    files = {s["unit"]: s["files"] for s in core["wholesale"] if "files" in s}
    assert list(files) == ["newsfabric-frontdesk"]
    frontdesks = files["newsfabric-frontdesk"]
    assert set(frontdesks) == {"api-keys", "board-keys"}
    # The keys of publishers don't open the board.
    assert frontdesks["board-keys"] not in [frontdesks["api-keys"], *core["all"].values()]


@pytest.mark.parametrize("host", [BOX, CORE])
def test_no_other_machine_finds_a_broker(folder: Path, host: str) -> None:
    settings = (folder / f"{host}.rabbitmq-env.conf").read_text()
    assert f"NODENAME={host}@localhost\n" in settings
    assert "inet_dist_use_interface {127,0,0,1}" in settings


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"newsfabric_secret": "s" * 64 + "\n"}, "newsfabric_secret is missing or short"),
        ({"newsfabric_address": "10.1.1.11\n10.1.1.1 deb.debian.org"}, "is no address"),
        ({"newsfabric_address": "-oProxyCommand=x"}, "is no address"),
        ({"newsfabric_release": "."}, "isn't called newsfabric-VERSION-BUILD.tar"),
        ({"newsfabric_release": "0.1.0 x-0123456789ab"}, "isn't called newsfabric-"),
    ],
)
def test_what_would_become_another_line_or_folder_is_refused(
    playbook: str, tmp_path: Path, wrong: dict[str, str], error: str
) -> None:
    bundle = tmp_path / "newsfabric-0.1.0-0123456789ab.tar"
    bundle.touch()
    given = {"newsfabric_secret": "s" * 64, "newsfabric_bundle": str(bundle)} | wrong
    # The checks of written values, without those of machines.
    asked = checks("The secret is there", "The address is one", RELEASE_IS_NAMED)
    play = [{"hosts": CORE, "connection": "local", "gather_facts": False, "tasks": asked}]
    done = played(playbook, tmp_path, play, given)
    assert done.returncode == 2
    assert error in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("environment", "given", "refused"),
    [
        ("production", {}, False),
        ("production", {"newsfabric_tls": False}, True),
        ("production", {"newsfabric_tls": "false"}, True),
        (
            "production",
            {"newsfabric_tls": False, "newsfabric_store_network_trusted": True},
            False,
        ),
        (ONE_STORE, {"newsfabric_tls": False}, False),
    ],
    ids=["tls", "none", "none-as-text", "trusted", "one-node"],
)
def test_store_nodes_that_ask_for_no_login_are_refused_unless_their_network_is_trusted(
    playbook: str, tmp_path: Path, environment: str, given: dict[str, Any], refused: bool
) -> None:
    asked = checks(STORES_ARE_KNOWN)
    play = [{"hosts": STORE, "connection": "local", "gather_facts": False, "tasks": asked}]
    done = played(playbook, tmp_path, play, given, environment)
    output = " ".join(done.stdout.split())
    has_reason = "newsfabric_store_network_trusted if nobody else is on their network" in output
    assert (done.returncode, has_reason) == ((2, True) if refused else (0, False))


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ({}, False),
        ({"newsfabric_frontdesk_urls": {}}, False),
        ({"newsfabric_frontdesk_urls": {"dublin": "http://dublin.example"}}, True),
        (
            {"newsfabric_frontdesk_urls": {"oregon": "http://a"}, "newsfabric_regions": ["oregon"]},
            False,
        ),
        (
            {"newsfabric_frontdesk_urls": {"dublin": "http://dublin"}, "newsfabric_tls": "false"},
            False,
        ),
    ],
    ids=["https", "core-nodes", "http", "one-region", "no-tls"],
)
def test_frontdesks_that_would_show_their_key_over_plain_http_are_refused_before_they_are_made(
    playbook: str, tmp_path: Path, given: dict[str, Any], refused: bool
) -> None:
    asked = checks(FRONTDESKS_ASK)
    play = [{"hosts": CORE, "connection": "local", "gather_facts": False, "tasks": asked}]
    done = played(playbook, tmp_path, play, given)
    has_reason = "frontdesks ask each other there, so write https" in " ".join(done.stdout.split())
    assert (done.returncode, has_reason) == ((2, True) if refused else (0, False))


def tasks() -> list[tuple[str, dict[str, Any]]]:
    """Return each task of each role and playbook, with its file's name."""
    found: list[tuple[str, dict[str, Any]]] = []

    def add(where: str, listed: list[dict[str, Any]]) -> None:
        for entry in listed:
            inner = [entry.get(key) for key in ("block", "tasks", "pre_tasks", "post_tasks")]
            for block in filter(None, inner):
                add(where, block)
            if not any(inner):
                found.append((where, entry))

    files = [*ROLES.glob("*/tasks/*.yml"), *(ANSIBLE / "playbooks").rglob("*.yml")]
    for file in files:
        add(str(file.relative_to(ANSIBLE)), yaml.safe_load(file.read_text()))
    return found


def test_no_task_gives_a_secret_as_a_variable_of_the_environment() -> None:
    # Such variables would be in ssh's and sh's command lines, and in sudo's log.
    named = re.compile(r"\b[A-Z0-9_]*(?:PASSWORD|SECRET|TOKEN)[A-Z0-9_]*")
    given = {
        f"{where}: {name}"
        for where, task in tasks()
        for name in named.findall(json.dumps(task.get("environment")))
        if not name.endswith("_FILE")
    }
    assert given == set()


def test_a_task_that_is_given_a_secret_says_nothing_of_it() -> None:
    secret = re.compile(
        r"newsfabric_passwords_of\[|newsfabric_secret ~|rabbitmq_passwords|cassandra_logins"
        r"|rabbitmq_definitions.stdout|service_files \|"
    )
    telling = {
        f"{where}: {task.get('name')}"
        for where, task in tasks()
        if secret.search(json.dumps(task)) and not task.get("no_log")
    }
    assert telling == set()


@pytest.mark.parametrize(
    "unit",
    [
        "service/templates/unit.j2",
        "rabbitmq/templates/unit.conf.j2",
        "cassandra/templates/cassandra.service.j2",
    ],
)
def test_no_unit_leaves_its_memory_on_the_disk(unit: str) -> None:
    assert "\nLimitCORE=0\n" in (ROLES / unit).read_text()


@pytest.mark.parametrize(
    "unit", ["rabbitmq/templates/unit.conf.j2", "cassandra/templates/cassandra.service.j2"]
)
def test_brokers_and_stores_reach_their_certificates(unit: str) -> None:
    install = yaml.safe_load((ROLES / "base" / "tasks" / "install.yml").read_text())
    folders = {one["path"]: one for task in install for one in task.get("loop", [])}
    assert folders["/etc/newsfabric"] == {
        "path": "/etc/newsfabric",
        "group": "newsfabric",
        "mode": "0750",
    }
    assert "\nSupplementaryGroups=newsfabric\n" in (ROLES / unit).read_text()
    copied = yaml.safe_load((ROLES / "base" / "tasks" / "tls.yml").read_text())
    files = [task["ansible.builtin.copy"] for task in copied]
    keys = [file for file in files if file["dest"].endswith(("/key.pem", "/both.pem"))]
    assert [(file["group"], file["mode"]) for file in keys] == [("newsfabric", "0640")] * 2


def test_a_service_reads_its_key_where_it_is_renewed() -> None:
    unit = (ROLES / "service" / "templates" / "unit.j2").read_text()
    assert "Environment=NEWSFABRIC_TLS_KEY_FILE={{ newsfabric_tls_folder }}/key.pem\n" in unit
