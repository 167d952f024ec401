"""The arguments of services: the balancers in front of them, the boxes, each other."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from newsfabric.http.networks import Places
from operations.instance.__main__ import main as instance
from tests.deploy.terraform_output import SETTINGS
from wholesale.commands import main

ROOT: Final = Path(__file__).resolve().parents[2]
ANSIBLE: Final = ROOT / "deploy" / "ansible"
CORE: Final = "oregon-core-1"
BOX: Final = "oregon-retail-1"
SECRET: Final = "s" * 64


def services(playbook: str, folder: Path, **more: Any) -> dict[str, dict[str, Any]]:
    """Return the description of each unit, on a core node and on a box of oregon."""
    play = [
        {
            "hosts": host,
            "connection": "local",
            "gather_facts": False,
            "vars_files": [str(ANSIBLE / "roles" / role / "vars" / "main.yml")],
            "vars": {"role_path": str(ANSIBLE / "roles" / role)},
            "tasks": [
                {
                    "ansible.builtin.copy": {
                        "content": f"{{{{ {listed} | to_json }}}}",
                        "dest": str(folder / f"{role}.json"),
                        "mode": "0600",
                    }
                },
            ],
        }
        for host, role, listed in (
            (CORE, "wholesale", "wholesale_all"),
            (BOX, "retail", "retail_services"),
        )
    ]
    (folder / "play.yml").write_text(yaml.safe_dump(play))
    given = {"playbook_dir": str(ANSIBLE / "playbooks"), "newsfabric_secret": SECRET} | more
    inventory = folder / "production"
    shutil.copytree(ANSIBLE / "inventories" / "production", inventory)
    (inventory / "group_vars" / "all" / "25-terraform.json").write_text(json.dumps(SETTINGS))
    done = subprocess.run(
        [
            playbook,
            "-i",
            str(inventory / "hosts.yml"),
            str(folder / "play.yml"),
            "-e",
            json.dumps(given),
        ],
        cwd=ANSIBLE,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = [
        service
        for role in ("wholesale", "retail")
        for service in json.loads((folder / f"{role}.json").read_text())
    ]
    return {each["unit"]: each for each in found}


def words_of(service: dict[str, Any]) -> list[str]:
    return [str(word) for word in service["command"]]


@pytest.fixture(scope="module")
def commands(playbook: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Return the command line of each unit, on a core node and on a box of oregon."""
    found = services(playbook, tmp_path_factory.mktemp("told"))
    return {unit: words_of(service) for unit, service in found.items()}


def given(words: list[str], option: str) -> list[str]:
    return [word.removeprefix(option) for word in words if word.startswith(option)]


def test_a_frontdesk_believes_the_balancer_before_it(commands: dict[str, list[str]]) -> None:
    proxies = given(commands["newsfabric-frontdesk"], "--proxy-from=")
    assert proxies == SETTINGS["newsfabric_proxy_from"]


def test_a_frontdesk_takes_boxes_behind_a_balancer_and_those_of_its_networks(
    commands: dict[str, list[str]],
) -> None:
    places = Places(given(commands["newsfabric-frontdesk"], "--gateways-at="))
    assert places.allow("wss://readers.oregon.news.example.com/websocket")
    assert places.allow("http://10.10.1.41:8080/websocket")
    # The example beside it has this address.
    assert not places.allow("http://10.1.1.41:8080/websocket")
    assert not places.allow("wss://readers.oregon.news.example.org/websocket")


@pytest.mark.parametrize(
    ("more", "secrets", "over_http"),
    [
        ({}, [SECRET], False),
        ({"newsfabric_tls": False, "newsfabric_former_secret": "f" * 64}, [SECRET, "f" * 64], True),
    ],
    ids=["tls", "none-and-a-former-secret"],
)
def test_frontdesks_know_each_other_by_the_secret_and_the_former_one(
    playbook: str, tmp_path: Path, more: dict[str, Any], secrets: list[str], over_http: bool
) -> None:
    frontdesk = services(playbook, tmp_path, **more)["newsfabric-frontdesk"]
    keys = frontdesk["files"]["board-keys"].splitlines()
    assert keys == [hashlib.sha256(f"{one}:board".encode()).hexdigest() for one in secrets]
    [_, name, *words] = words_of(frontdesk)
    options = main.commands[name].make_context(name, words).params
    assert options["board_key_file"] == Path("%d/board-keys")
    assert options["token_over_http"] is over_http


def test_a_box_has_the_name_by_which_browsers_reach_it(commands: dict[str, list[str]]) -> None:
    words = commands["newsfabric-gateway"]
    url = words[words.index("--public-url") + 1]
    assert url == "https://readers.oregon.news.example.com"
    assert Places(given(commands["newsfabric-frontdesk"], "--gateways-at=")).allow(url)


def test_a_scaler_drives_the_group_of_its_own_region(commands: dict[str, list[str]]) -> None:
    [service, name, *words] = commands["newsfabric-scaler"]
    assert service == "wholesale"
    options = main.commands[name].make_context(name, words).params
    found = (options["driver"], options["group"], options["per_box"])
    assert found == ("aws", "newsfabric-oregon-retail", 50_000)


def test_scalers_are_watched_by_the_names_that_they_are_started_with(
    commands: dict[str, list[str]],
) -> None:
    # One scaler on each host of group `core`.
    watched = re.search(
        r'^  scalers = \[for name in sort\(keys\(local\.hosts\.core\)\) : "\$\{name\}([a-z-]+)"\]$',
        (ROOT / "deploy" / "terraform" / "modules" / "region" / "main.tf").read_text(),
        re.MULTILINE,
    )
    assert watched is not None
    words = commands["newsfabric-scaler"]
    assert words[words.index("--name") + 1] == CORE + watched[1]


def test_who_admits_boxes_knows_the_group_the_key_and_the_core(
    commands: dict[str, list[str]],
) -> None:
    [service, name, *words] = commands["newsfabric-admit"]
    assert service == "operations.instance"
    options = instance.commands[name].make_context(name, words).params
    assert {
        option: options[option] for option in options if option not in ("log_level", "log_format")
    } == {
        "region": "oregon",
        "group": "newsfabric-oregon-retail",
        "prefix": "newsfabric-oregon/box/",
        "aws_region": "us-west-2",
        "account": "123456789012",
        "partition": "aws",
        "key": "arn:aws:kms:us-west-2:123456789012:key/oregon",
        "management": "https://oregon-core-1:15671",
    }
