"""The secrets that playbooks write to Secrets Manager for boxes of groups; moto is the server."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import boto3
import pytest
import yaml
from moto_cloud import moto_cloud

from operations.instance.files import login_in, pem_in

# Libraries of others raise warnings.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

ROOT: Final = Path(__file__).resolve().parents[2]
ANSIBLE: Final = ROOT / "deploy" / "ansible"
LOGIN: Final = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_EC2_METADATA_DISABLED": "true",
}
PEM: Final = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
AWS_REGIONS: Final = {"oregon": "us-west-2", "dublin": "eu-west-1"}


@pytest.fixture(scope="module")
def cloud() -> Iterator[str]:
    """Yield the address of an empty cloud."""
    with moto_cloud() as url:
        yield url


@pytest.fixture(scope="module")
def admission(cloud: str) -> dict[str, Any]:
    """Return the setting as in Terraform's output ``settings``, with keys that exist."""
    found = {}
    for region, aws_region in AWS_REGIONS.items():
        keys = boto3.client(
            "kms",
            region_name=aws_region,
            endpoint_url=cloud,
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
        )
        found[region] = {
            "aws_region": aws_region,
            "key": keys.create_key()["KeyMetadata"]["Arn"],
            "secrets": {
                "tls": f"newsfabric-{region}/tls/retail",
                "store": f"newsfabric-{region}/store/reader",
                "boxes": f"newsfabric-{region}/box/",
            },
        }
    return found


Write = Callable[[str], str]


@pytest.fixture
def write(playbook: str, cloud: str, admission: dict[str, Any], tmp_path: Path) -> Write:
    """Return a function: run the playbooks' tasks with a secret; return the recap of localhost."""
    tasks = ANSIBLE / "playbooks" / "tasks" / "boxes-secrets.yml"
    play = {
        "hosts": "store",
        "connection": "local",
        "gather_facts": False,
        "tasks": [{"ansible.builtin.include_tasks": str(tasks)}],
    }
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    (tmp_path / "ca.pem").write_text(PEM)

    def written(secret: str) -> str:
        given = {
            "playbook_dir": str(ANSIBLE / "playbooks"),
            "newsfabric_secret": secret,
            "newsfabric_certs": str(tmp_path),
            "newsfabric_admission": admission,
        }
        inventory = str(ANSIBLE / "inventories" / "production" / "hosts.yml")
        done = subprocess.run(
            [playbook, "-i", inventory, str(tmp_path / "play.yml"), "-e", json.dumps(given)],
            env={**os.environ, **LOGIN, "AWS_ENDPOINT_URL": cloud},
            cwd=ANSIBLE,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return written


def secret(cloud: str, region: str, name: str) -> str:
    client = boto3.client(
        "secretsmanager",
        region_name=AWS_REGIONS[region],
        endpoint_url=cloud,
        aws_access_key_id="testing",
        aws_secret_access_key="testing",
    )
    text: str = client.get_secret_value(SecretId=f"newsfabric-{region}/{name}")["SecretString"]
    return text


def changes(text: str) -> int:
    return sum(int(number) for number in re.findall(r"changed=(\d+)", text))


def test_boxes_of_each_region_find_what_they_read_and_with_another_secret_another_password(
    cloud: str, write: Write
) -> None:
    first = write("a" * 64)
    logins = [login_in(secret(cloud, region, "store/reader"), "x") for region in AWS_REGIONS]
    assert logins[0] == logins[1]
    assert logins[0]["username"] == "newsfabric_reader"
    assert [pem_in(secret(cloud, region, "tls/retail"), "x") for region in AWS_REGIONS] == [
        {"ca.pem": PEM}
    ] * 2
    assert changes(first) == 2
    assert logins[0]["password"] not in first
    assert changes(write("a" * 64)) == 0

    assert changes(write("b" * 64)) == 1
    changed = login_in(secret(cloud, "dublin", "store/reader"), "x")
    assert changed["password"] != logins[0]["password"]


@pytest.mark.parametrize(
    ("name", "store"),
    [("site", "Configure the store"), ("rotate-secrets", "Change the store's passwords")],
)
def test_they_are_written_once_the_store_knows_the_password(name: str, store: str) -> None:
    plays = yaml.safe_load((ANSIBLE / "playbooks" / f"{name}.yml").read_text())
    names = [play["name"] for play in plays]
    boxes = plays[names.index(store) + 1]
    assert boxes["tasks"][0]["ansible.builtin.include_tasks"] == "tasks/boxes-secrets.yml"
