"""Driver ``aws`` and CloudWatch, against moto's server."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import boto3
import botocore.config
import pytest
from moto_cloud import moto_cloud

from wholesale.scaler.drivers import DriverError, DriverLimit, aws
from wholesale.scaler.drivers.aws import AwsClient, AwsDriver
from wholesale.scaler.drivers.cloudwatch import CloudWatch, metric_data
from wholesale.scaler.options import ScalerOptions
from wholesale.scaler.plan import ScalingPlan

# Third-party libraries that warn.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

GROUP = "oregon-retail"
REGION = "us-west-2"
DOCUMENT: dict[str, Any] = {
    "scaler": "oregon-scaler-1",
    "region": "oregon",
    "wanted": 7,
    "state": "limited",
    "counts": {"ready": 5, "silent": 1},
    "sums": [{"name": "readers", "value": 123456}, {"name": "carried", "value": 200000.5}],
    "driver": {"state": "failing"},
}


@pytest.fixture(scope="module")
def cloud() -> Iterator[str]:
    """Run an empty cloud; yield its address."""
    with moto_cloud() as url:
        yield url


@pytest.fixture(scope="module")
def image(cloud: str) -> str:
    """Return a machine's image; there are hundreds, and their list takes a second."""
    login = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
    machines = boto3.client("ec2", endpoint_url=cloud, region_name=REGION, **login)
    found: str = machines.describe_images()["Images"][0]["ImageId"]
    machines.close()
    return found


@pytest.fixture(autouse=True)
def _login(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    # The first answer of each kind loads the code for it, in a process that competes for the
    # processor.
    patient = botocore.config.Config(connect_timeout=30, read_timeout=90)
    monkeypatch.setattr(aws, "_CONFIG", patient)


@pytest.fixture
def group(cloud: str, image: str) -> Iterator[Any]:
    """Make an autoscaling group of two machines, with five at most."""
    client = boto3.client("autoscaling", endpoint_url=cloud)
    client.create_launch_configuration(
        LaunchConfigurationName=GROUP, ImageId=image, InstanceType="t3.micro"
    )
    client.create_auto_scaling_group(
        AutoScalingGroupName=GROUP,
        LaunchConfigurationName=GROUP,
        MinSize=1,
        MaxSize=5,
        DesiredCapacity=2,
        AvailabilityZones=[f"{REGION}a", f"{REGION}b"],
    )
    yield client
    client.delete_auto_scaling_group(AutoScalingGroupName=GROUP, ForceDelete=True)
    client.delete_launch_configuration(LaunchConfigurationName=GROUP)
    client.close()


@pytest.fixture
async def driver(cloud: str, group: Any) -> AsyncIterator[AwsDriver]:
    made = AwsDriver(GROUP, endpoint=cloud)
    yield made
    await made.close()


def desired(group: Any) -> int:
    found = group.describe_auto_scaling_groups(AutoScalingGroupNames=[GROUP])
    return int(found["AutoScalingGroups"][0]["DesiredCapacity"])


async def test_the_groups_instances_are_the_boxes_with_ages_and_zones(driver: AwsDriver) -> None:
    found = await driver.boxes()
    assert len(found) == 2
    assert all(box.name.startswith("i-") and 0 <= box.age_seconds < 300 for box in found)
    assert all(box.zone.startswith(REGION) for box in found)


async def test_a_machine_of_aws_knows_its_region(
    cloud: str, group: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.setenv("AWS_ENDPOINT_URL", cloud)
    options = ScalerOptions(
        plan=ScalingPlan(),
        driver="aws",
        command=None,
        group=GROUP,
        aws_region=REGION,
        cloudwatch="newsfabric",
        world=None,
    )
    async with options.opened("oregon") as (driver, watching):
        assert len(await driver.boxes() or ()) == 2
        assert watching is not None


async def test_more_are_wanted_in_all_and_never_fewer(driver: AwsDriver, group: Any) -> None:
    await driver.want(4)
    await driver.want(4)
    assert (desired(group), len(await driver.boxes())) == (4, 4)
    await driver.want(3)
    assert (desired(group), len(await driver.boxes())) == (4, 4)


async def test_beyond_the_groups_size_as_many_as_may_be_and_it_is_reported(
    driver: AwsDriver, group: Any
) -> None:
    with pytest.raises(DriverLimit, match="may have 5 instances, 9 are wanted"):
        await driver.want(9)
    assert desired(group) == 5


async def test_who_is_ended_goes_by_name_and_the_number_falls(
    driver: AwsDriver, group: Any
) -> None:
    await driver.want(3)
    first, second, third = sorted(box.name for box in await driver.boxes())
    await driver.end([second])
    assert desired(group) == 2
    assert sorted(box.name for box in await driver.boxes()) == [first, third]


async def test_who_is_gone_already_is_no_error_and_nobody_elses_place(
    driver: AwsDriver, group: Any
) -> None:
    await driver.want(3)
    names = sorted(box.name for box in await driver.boxes())
    await driver.end([names[0]])
    await driver.end([names[0], "i-0123456789abcdef0"])
    assert desired(group) == 2


async def test_no_fewer_than_the_group_must_have(driver: AwsDriver, group: Any) -> None:
    names = sorted(box.name for box in await driver.boxes())
    with pytest.raises(DriverLimit, match="must have 1"):
        await driver.end(names)
    assert desired(group) == 1


async def test_a_group_that_isnt_there_is_reported(cloud: str) -> None:
    driver = AwsDriver("nowhere", endpoint=cloud)
    with pytest.raises(DriverError, match="no autoscaling group 'nowhere'"):
        await driver.boxes()
    await driver.close()


async def test_a_cloud_that_doesnt_answer_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        address = f"http://127.0.0.1:{nobody.getsockname()[1]}"
    driver = AwsDriver(GROUP, endpoint=address)
    async with asyncio.timeout(60):
        with pytest.raises(DriverError, match="EndpointConnectionError"):
            await driver.boxes()
    await driver.close()


async def test_what_is_wanted_becomes_metrics_of_cloudwatch(cloud: str) -> None:
    asked = AwsClient("cloudwatch", region=None, endpoint=cloud)
    text = CloudWatch("newsfabric", asked)
    assert await text.put_metrics(DOCUMENT)
    found = await asked.run_call(lambda client: client.list_metrics(Namespace="newsfabric"))
    names = {metric["MetricName"] for metric in found["Metrics"]}
    assert names >= {"WantedBoxes", "ServingBoxes", "Readers", "Limited"}
    asked.close()


def test_the_numbers_are_those_of_the_document() -> None:
    values = {each["MetricName"]: each["Value"] for each in metric_data(DOCUMENT)}
    assert values == {
        "WantedBoxes": 7.0,
        "ServingBoxes": 5.0,
        "FailedBoxes": 0.0,
        "SilentBoxes": 1.0,
        "Readers": 123456.0,
        "CarriedReaders": 200000.5,
        "Limited": 1.0,
        "DriverFailing": 1.0,
    }
    assert metric_data({"wanted": None}) == []


async def test_a_cloudwatch_that_doesnt_answer_stops_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        address = f"http://127.0.0.1:{nobody.getsockname()[1]}"
    asked = AwsClient("cloudwatch", region=None, endpoint=address)
    assert not await CloudWatch("newsfabric", asked).put_metrics(DOCUMENT)
    assert "CloudWatch: EndpointConnectionError" in caplog.text
    asked.close()
