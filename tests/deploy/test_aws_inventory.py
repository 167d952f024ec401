"""deploy/ansible's dynamic inventories, against moto's server: the groups that playbooks use."""

from __future__ import annotations

import http.server
import json
import os
import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from moto_cloud import moto_cloud

# Libraries of others raise warnings.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

ROOT = Path(__file__).resolve().parents[2]
INVENTORIES = ROOT / "deploy" / "ansible" / "inventories"
ENVIRONMENTS = ROOT / "deploy" / "terraform" / "environments"
LOGIN = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_EC2_METADATA_DISABLED": "true",
}


def settings(environment: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((INVENTORIES / environment / "aws_ec2.yml").read_text())
    return found


@pytest.mark.parametrize("environment", ["production", "staging"])
def test_it_asks_for_the_fabric_and_the_regions_that_terraform_makes(environment: str) -> None:
    values = (ENVIRONMENTS / environment / "environment.auto.tfvars").read_text()
    found = settings(environment)
    fabric = re.search(r'^name = "(.*)"$', values, re.MULTILINE)
    assert fabric is not None
    assert found["filters"]["tag:Fabric"] == fabric[1]
    assert set(found["regions"]) == set(re.findall(r' aws_region = "(.*)"', values))


@pytest.fixture(scope="module")
def cloud() -> Iterator[str]:
    """Yield the address of an empty cloud."""
    with moto_cloud() as url:
        yield url


@pytest.fixture(scope="module")
def machines(cloud: str) -> dict[str, str]:
    """Make machines with Terraform's tags, and some of others; return the instance id of each."""

    def made(aws_region: str, zone: str, **tags: str) -> str:
        client = boto3.client(
            "ec2",
            region_name=aws_region,
            endpoint_url=cloud,
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
        )
        answer = client.run_instances(
            ImageId="ami-12c6146b",
            MinCount=1,
            MaxCount=1,
            Placement={"AvailabilityZone": aws_region + zone},
            TagSpecifications=[
                {
                    "ResourceType": "instance",
                    "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
                }
            ],
        )
        name: str = answer["Instances"][0]["InstanceId"]
        if tags.get("Role") == "gone":
            client.terminate_instances(InstanceIds=[name])
        return name

    ours = {"Fabric": "newsfabric"}
    oregon = {**ours, "Region": "oregon"}
    return {
        "core": made("us-west-2", "a", Host="oregon-core-1", Role="core", **oregon),
        "box": made("us-west-2", "b", Role="retail", **oregon),
        "store": made(
            "eu-west-1", "c", Host="dublin-store-3", Role="store", Region="dublin", **ours
        ),
        "proxy": made(
            "ap-southeast-1",
            "a",
            Host="singapore-proxy-1",
            Role="proxy",
            Region="singapore",
            **ours,
        ),
        "gone": made("us-west-2", "a", Role="gone", **oregon),
        "other": made("us-west-2", "a", Fabric="nf-staging", Role="core", Region="oregon"),
    }


@pytest.fixture(scope="module")
def listed(inventory: str, cloud: str, machines: dict[str, str]) -> dict[str, Any]:
    """Return the output of ``ansible-inventory --list`` for production."""
    done = subprocess.run(
        [inventory, "-i", str(INVENTORIES / "production" / "aws_ec2.yml"), "--list"],
        env={**os.environ, **LOGIN, "AWS_ENDPOINT_URL": cloud},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def hosts(listed: dict[str, Any], group: str) -> set[str]:
    return set(listed[group]["hosts"])


def test_there_is_a_group_for_each_role(listed: dict[str, Any], machines: dict[str, str]) -> None:
    assert hosts(listed, "core") == {"oregon-core-1"}
    assert hosts(listed, "store") == {"dublin-store-3"}
    assert hosts(listed, "proxy") == {"singapore-proxy-1"}


def test_there_is_a_group_for_each_region(listed: dict[str, Any], machines: dict[str, str]) -> None:
    assert hosts(listed, "oregon") == {"oregon-core-1"}
    assert hosts(listed, "dublin") == {"dublin-store-3"}
    assert hosts(listed, "singapore") == {"singapore-proxy-1"}


def test_a_box_of_an_autoscaling_group_is_left_to_itself(
    listed: dict[str, Any], machines: dict[str, str]
) -> None:
    assert "retail" not in listed
    assert machines["box"] not in listed["_meta"]["hostvars"]


def test_machines_of_others_and_machines_that_are_gone_arent_there(
    listed: dict[str, Any], machines: dict[str, str]
) -> None:
    assert set(listed["_meta"]["hostvars"]) == {
        "oregon-core-1",
        "dublin-store-3",
        "singapore-proxy-1",
    }


def test_a_host_says_its_zone_and_how_ssh_comes_to_it(
    listed: dict[str, Any], machines: dict[str, str]
) -> None:
    def variable(name: str) -> str:
        value = listed["_meta"]["hostvars"]["dublin-store-3"][name]
        # Ansible marks values from outside.
        return str(value["__ansible_unsafe"] if isinstance(value, dict) else value)

    assert variable("zone") == "eu-west-1c"
    assert variable("ansible_host").startswith("10.")
    assert variable("ansible_ssh_common_args") == (
        '-o ProxyCommand="aws ec2-instance-connect open-tunnel'
        f' --region eu-west-1 --instance-id {machines["store"]}"'
    )


@pytest.fixture
def group_of(cloud: str) -> Callable[[str], str]:
    """Return a function that makes an instance of a group at this machine's address; its id."""

    def made(group: str) -> str:
        client = boto3.client(
            "ec2",
            region_name="us-west-2",
            endpoint_url=cloud,
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
        )
        tags = [{"Key": "aws:autoscaling:groupName", "Value": group}]
        answer = client.run_instances(
            ImageId="ami-12c6146b",
            MinCount=1,
            MaxCount=1,
            PrivateIpAddress="127.0.0.1",
            TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
        )
        name: str = answer["Instances"][0]["InstanceId"]
        return name

    return made


class BootingGateway(http.server.BaseHTTPRequestHandler):
    """A gateway that is ready at the second request, as on a box that has just booted."""

    asked = 0

    def do_GET(self) -> None:
        BootingGateway.asked += self.path == "/healthz/ready"
        self.send_response(200 if BootingGateway.asked > 1 else 503)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def gateway() -> Iterator[int]:
    """Yield the port of a :class:`BootingGateway`."""
    BootingGateway.asked = 0
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), BootingGateway) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            serving.join()


def asked_for_boxes(
    playbook: str, cloud: str, folder: Path, group: str, port: int
) -> subprocess.CompletedProcess[str]:
    """Run verify.yml's tasks that look for the boxes of ``group``."""
    tasks = ROOT / "deploy" / "ansible" / "playbooks" / "tasks" / "boxes-of-group.yml"
    play = {
        "hosts": "oregon-core-1",
        "connection": "local",
        "gather_facts": False,
        "tasks": [
            {"ansible.builtin.include_tasks": str(tasks)},
            {
                "ansible.builtin.copy": {
                    "content": "{{ group_boxes | map(attribute='instance_id') | to_json }}",
                    "dest": str(folder / "boxes.json"),
                    "mode": "0600",
                }
            },
        ],
    }
    (folder / "play.yml").write_text(yaml.safe_dump([play]))
    given = {
        "newsfabric_admission": {"oregon": {"aws_region": "us-west-2", "group": group}},
        "newsfabric_readers_port": port,
    }
    hosts = str(INVENTORIES / "production" / "hosts.yml")
    return subprocess.run(
        [playbook, "-i", hosts, str(folder / "play.yml"), "-e", json.dumps(given)],
        env={**os.environ, **LOGIN, "AWS_ENDPOINT_URL": cloud},
        cwd=ROOT / "deploy" / "ansible",
        capture_output=True,
        text=True,
    )


def test_verify_reads_at_the_groups_boxes_that_are_ready(
    playbook: str, cloud: str, group_of: Callable[[str], str], gateway: int, tmp_path: Path
) -> None:
    box = group_of("newsfabric-oregon-retail")
    group_of("somebody-elses")
    done = asked_for_boxes(playbook, cloud, tmp_path, "newsfabric-oregon-retail", gateway)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((tmp_path / "boxes.json").read_text()) == [box]


def test_a_group_without_a_box_that_is_ready_fails_verify(
    playbook: str, cloud: str, tmp_path: Path
) -> None:
    done = asked_for_boxes(playbook, cloud, tmp_path, "nobody", 1)
    assert done.returncode == 2
    assert "of the 0 boxes of nobody none is ready" in " ".join(done.stdout.split())


def test_machines_on_aws_ask_a_clock_that_no_firewall_closes() -> None:
    roles = ROOT / "deploy" / "ansible" / "roles"
    install = yaml.safe_load((roles / "instance" / "tasks" / "install.yml").read_text())
    [clock] = [
        task["ansible.builtin.copy"]
        for task in install
        if "/etc/chrony/sources.d/" in str(task.get("ansible.builtin.copy"))
    ]
    # chrony reads files with this suffix there.
    assert clock["dest"].endswith(".sources")
    assert clock["content"].startswith("server 169.254.169.123 ")
