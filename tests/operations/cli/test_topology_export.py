"""``newsfabric topology``: the definitions of a cluster's brokers, and users with passwords."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from newsfabric.kinds import CORE
from newsfabric.settings import Fabric, Node, Region, dump_fabric
from newsfabric.topology.rights import hash_password
from operations.cli import cli

TOPICS = Path(__file__).parents[3] / "topics.toml"
CMS = '\n[[publisher]]\napp_id = "cms"\ntopics = ["news.#"]\n'
CORE_USERS = {f"{kind}.oregon" for kind in (*CORE, "shovel")} | {"operator", "box.oregon-retail-1"}
PASSWORDS = dict.fromkeys([*CORE_USERS, "cms"], "s3cret")


def node(name: str) -> Node:
    return Node(name, f"amqp://{name}/%2F", f"http://{name}:15672")


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    fabric = Fabric(
        (
            Region(
                name="oregon",
                frontdesk_url="http://oregon-core-1:8080",
                client=(node("oregon-client-1"),),
                core=(node("oregon-core-1"),),
            ),
        )
    )
    (tmp_path / "fabric.json").write_text(dump_fabric(fabric))
    (tmp_path / "topics.toml").write_text(TOPICS.read_text() + CMS)
    return [f"--fabric={tmp_path}/fabric.json", f"--topics={tmp_path}/topics.toml"]


def export(*words: str, passwords: object = PASSWORDS) -> Result:
    text = passwords if isinstance(passwords, str) else json.dumps(passwords)
    return CliRunner().invoke(cli, ["topology", "export", *words, "--passwords=-"], input=text)


def exported(*words: str) -> dict[str, Any]:
    result = export(*words)
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def names(document: dict[str, Any], what: str) -> list[str]:
    return [entry["name"] for entry in document[what]]


def test_a_core_has_its_users_queues_and_exchanges(files: list[str]):
    words = ["oregon/core", "--box=oregon-retail-1", "--operator=operator", *files]
    document = exported(*words)
    found = names(document, "users")
    assert (len(found), set(found)) == (len(CORE_USERS), CORE_USERS)
    assert "router.1" in names(document, "queues")
    assert "intake" in names(document, "exchanges")


def test_a_client_cluster_has_the_publishers_too(files: list[str]):
    assert "cms" in names(exported("oregon/client", *files), "users")


def test_a_box_has_one_user_of_its_own(files: list[str]):
    assert names(exported("oregon-retail-1/box", *files), "users") == ["box.oregon-retail-1"]


def test_the_same_input_gives_the_same_output(files: list[str]):
    assert export("oregon/core", *files).stdout == export("oregon/core", *files).stdout


def test_each_user_has_a_salt_of_its_own_and_no_password_is_shown(files: list[str]):
    result = export("oregon/client", *files)
    hashes = [user["password_hash"] for user in json.loads(result.stdout)["users"]]
    salts = [base64.b64decode(text)[:4] for text in hashes]
    assert len(set(salts)) == len(hashes) == 4
    assert hashes == [hash_password("s3cret", salt) for salt in salts]
    assert "s3cret" not in result.output


def test_a_missing_password_is_named(files: list[str]):
    result = export("oregon-retail-1/box", *files, passwords={"cms": "s3cret"})
    assert (result.exit_code, result.stderr) == (1, "error: no password for box.oregon-retail-1\n")


@pytest.mark.parametrize("text", ["s3cret", '["s3cret"]', '{"cms": 5}', '{"cms": ""}'])
def test_what_are_no_passwords_is_refused_and_not_repeated(files: list[str], text: str):
    result = export("oregon-retail-1/box", *files, passwords=text)
    assert result.exit_code == 1
    assert "expected one JSON object" in result.stderr
    assert "s3cret" not in result.output


def test_publishers_are_named_and_feeds_that_cannot_be_used_are_refused(files: list[str]):
    topics = files[1]
    result = CliRunner().invoke(cli, ["topology", "publishers", topics])
    assert (result.exit_code, json.loads(result.stdout)) == (0, ["cms"])
    Path(topics.removeprefix("--topics=")).write_text("[[publisher]]\n")
    result = CliRunner().invoke(cli, ["topology", "publishers", topics])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: ")
