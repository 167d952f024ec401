"""A cloud and a metadata service on loopback."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import boto3
import botocore.config
import pytest
from moto_cloud import moto_cloud

from operations.instance import cloud
from tests.support.instances import AWS_REGION, Imds, imds

#: Time-outs for this cloud, which is slower than AWS: for its first reply of each kind it loads the
#: code, in a process that competes for the processor.
_PATIENT = botocore.config.Config(connect_timeout=30, read_timeout=90)


@pytest.fixture(scope="module")
def aws() -> Iterator[str]:
    """Run an empty cloud, and yield its address."""
    with moto_cloud() as url:
        yield url


@pytest.fixture
def cloud_login(aws: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Direct our own code to that cloud, by AWS's own variables; return the cloud's address."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", AWS_REGION)
    monkeypatch.setenv("AWS_ENDPOINT_URL", aws)
    monkeypatch.setattr(cloud, "_CONFIG", _PATIENT)
    return aws


@pytest.fixture
def passwords(cloud_login: str) -> Iterator[Any]:
    """Yield a client of Secrets Manager that is independent of our code."""
    asked = boto3.client("secretsmanager", endpoint_url=cloud_login, region_name=AWS_REGION)
    with contextlib.closing(asked) as client:
        yield client


@pytest.fixture
def metadata_service() -> Iterator[Imds]:
    """Run a machine's metadata service."""
    with imds() as service:
        yield service
