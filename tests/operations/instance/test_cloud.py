"""Boxes' passwords and the group, against moto; and the boxes that are admitted by them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from operations.instance.admit import Admission, AdmittedGroup
from operations.instance.cloud import CloudError, InstanceCloud
from tests.support.instances import AWS_REGION, BOX

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
GROUP = "newsfabric-oregon-retail"
PREFIX = "newsfabric-oregon/box/"
MACHINES = f"arn:aws:ec2:{AWS_REGION}:123456789012:instance/"


@pytest.fixture
def group(cloud_login: str) -> Iterator[Any]:
    """Yield an autoscaling group of two machines, with the hook."""
    client = boto3.client("autoscaling", endpoint_url=cloud_login, region_name=AWS_REGION)
    machines = boto3.client("ec2", endpoint_url=cloud_login, region_name=AWS_REGION)
    client.create_launch_configuration(
        LaunchConfigurationName=GROUP,
        ImageId=machines.describe_images()["Images"][0]["ImageId"],
        InstanceType="t3.micro",
    )
    client.create_auto_scaling_group(
        AutoScalingGroupName=GROUP,
        LaunchConfigurationName=GROUP,
        MinSize=1,
        MaxSize=5,
        DesiredCapacity=2,
        AvailabilityZones=[f"{AWS_REGION}a"],
    )
    yield client
    client.delete_auto_scaling_group(AutoScalingGroupName=GROUP, ForceDelete=True)
    client.delete_launch_configuration(LaunchConfigurationName=GROUP)
    client.close()
    machines.close()


def test_a_box_has_one_password_whoever_makes_it(passwords: Any, cloud_login: str) -> None:
    first, second = InstanceCloud(AWS_REGION), InstanceCloud(AWS_REGION)
    made = first.box_password(PREFIX, BOX, MACHINES + BOX, None)
    assert len(made) >= 32
    assert second.box_password(PREFIX, BOX, MACHINES + BOX, None) == made
    tags = passwords.describe_secret(SecretId=PREFIX + BOX)["Tags"]
    assert tags == [{"Key": "Box", "Value": MACHINES + BOX}]
    first.forget_box(PREFIX, BOX)
    second.forget_box(PREFIX, BOX)
    with pytest.raises(CloudError, match="ResourceNotFoundException"):
        first.secret(PREFIX + BOX)


def test_a_cloud_that_is_away_is_an_error_of_one_line(
    cloud_login: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(CloudError) as caught:
        InstanceCloud(AWS_REGION).complete(GROUP, "drain", BOX)
    assert "\n" not in str(caught.value)


def test_a_group_that_is_none_is_an_error(cloud_login: str) -> None:
    with pytest.raises(CloudError, match="no autoscaling group"):
        InstanceCloud(AWS_REGION).instances("nobody")


class CloudCoreUsers:
    """A core's users."""

    def __init__(self) -> None:
        self.users = {"router.oregon": "", "box.oregon-retail-1": ""}

    async def user_names(self) -> set[str]:
        return set(self.users)

    async def import_definitions(self, document: dict[str, Any]) -> None:
        self.users |= {user["name"]: user["password_hash"] for user in document["users"]}

    async def delete_user(self, name: str) -> None:
        del self.users[name]


async def test_boxes_of_the_group_are_users_of_the_core_until_they_have_gone(
    group: Any, passwords: Any
) -> None:
    cloud, core = InstanceCloud(AWS_REGION), CloudCoreUsers()
    place = AdmittedGroup(region="oregon", group=GROUP, prefix=PREFIX, machines=MACHINES)
    both = [Admission(place, cloud, core), Admission(place, cloud, core)]
    boxes = cloud.instances(GROUP)
    assert len(boxes) == 2
    for admission in both:
        await admission.step(0.0)
    assert core.users.keys() == {
        "router.oregon", "box.oregon-retail-1", *(f"box.{box}" for box in boxes)
    }  # fmt: skip
    stays, goes = sorted(boxes)
    group.terminate_instance_in_auto_scaling_group(
        InstanceId=goes, ShouldDecrementDesiredCapacity=True
    )
    assert cloud.instances(GROUP) == {stays}
    for admission in both:
        await admission.step(5.0)
    assert f"box.{goes}" in core.users
    await both[0].step(605.0)
    assert f"box.{goes}" not in core.users
    assert f"box.{stays}" in core.users
    with pytest.raises(CloudError):
        cloud.secret(PREFIX + goes)
    cloud.forget_box(PREFIX, stays)
