"""What frontdesks, scalers and boxes are started with, where balancers are before them."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from newsfabric.networks import Places
from wholesale.commands import main

ROOT: Final = Path(__file__).resolve().parents[2]
ANSIBLE: Final = ROOT / "deploy" / "ansible"
CORE: Final = "oregon-core-1"
BOX: Final = "oregon-retail-1"
# As `terraform output -json settings` has them.
TOLD: Final[dict[str, Any]] = {
    "newsfabric_networks": ["10.10.0.0/16", "10.11.0.0/16"],
    "newsfabric_gateways_at": ["readers.oregon.news.example.com"],
    "newsfabric_proxy_from": ["10.1.0.0/20", "10.1.16.0/20"],
    "newsfabric_scaler_options": {
        "oregon": ["--driver", "aws", "--group", "newsfabric-oregon-retail", "--per-box", "50000"],
        "dublin": ["--driver", "aws", "--group", "newsfabric-dublin-retail", "--per-box", "50000"],
    },
}


@pytest.fixture(scope="module")
def commands(playbook: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Unit to the words that it is started with, on a core node and on a box of oregon."""
    folder = tmp_path_factory.mktemp("told")
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
                        "content": f"{{{{ {role}_services | to_json }}}}",
                        "dest": str(folder / f"{role}.json"),
                        "mode": "0600",
                    }
                },
            ],
        }
        for host, role in ((CORE, "wholesale"), (BOX, "retail"))
    ]
    (folder / "play.yml").write_text(yaml.safe_dump(play))
    given = {"playbook_dir": str(ANSIBLE / "playbooks"), "newsfabric_secret": "s" * 64}
    inventory = folder / "production"
    shutil.copytree(ANSIBLE / "inventories" / "production", inventory)
    (inventory / "group_vars" / "all" / "25-terraform.json").write_text(json.dumps(TOLD))
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
    return {each["unit"]: [str(word) for word in each["command"]] for each in found}


def given(words: list[str], option: str) -> list[str]:
    return [word.removeprefix(option) for word in words if word.startswith(option)]


def test_a_frontdesk_believes_the_balancer_before_it(commands: dict[str, list[str]]) -> None:
    told = given(commands["newsfabric-frontdesk"], "--proxy-from=")
    assert told == TOLD["newsfabric_proxy_from"]


def test_a_frontdesk_takes_boxes_behind_a_balancer_and_those_of_its_networks(
    commands: dict[str, list[str]],
) -> None:
    places = Places(given(commands["newsfabric-frontdesk"], "--gateways-at="))
    assert places.allow("wss://readers.oregon.news.example.com/websocket")
    assert places.allow("http://10.10.1.41:8080/websocket")
    # The example beside it says otherwise.
    assert not places.allow("http://10.1.1.41:8080/websocket")
    assert not places.allow("wss://readers.oregon.news.example.org/websocket")


def test_a_box_has_the_name_by_which_browsers_reach_it(commands: dict[str, list[str]]) -> None:
    words = commands["newsfabric-gateway"]
    url = words[words.index("--public-url") + 1]
    assert url == "https://readers.oregon.news.example.com"
    assert Places(given(commands["newsfabric-frontdesk"], "--gateways-at=")).allow(url)


def test_a_scaler_drives_the_group_of_its_own_region(commands: dict[str, list[str]]) -> None:
    [service, name, *words] = commands["newsfabric-scaler"]
    assert service == "wholesale"
    told = main.commands[name].make_context(name, words).params
    found = (told["driver"], told["group"], told["per_box"])
    assert found == ("aws", "newsfabric-oregon-retail", 50_000)
