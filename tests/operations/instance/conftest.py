"""A cloud and metadata on loopback."""

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

#: What AWS answers at once, this cloud may need longer for: its first answer of each kind loads
#: the code for it, in a process that others keep from the processor.
_PATIENT = botocore.config.Config(connect_timeout=30, read_timeout=90)


@pytest.fixture(scope="module")
def aws() -> Iterator[str]:
    """The address of a cloud with nothing in it."""
    with moto_cloud() as url:
        yield url


@pytest.fixture
def cloud_login(aws: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Our own code asks that cloud, by AWS's own variables."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", AWS_REGION)
    monkeypatch.setenv("AWS_ENDPOINT_URL", aws)
    monkeypatch.setattr(cloud, "_CONFIG", _PATIENT)
    return aws


@pytest.fixture
def passwords(cloud_login: str) -> Iterator[Any]:
    """Secrets Manager, asked by somebody else."""
    asked = boto3.client("secretsmanager", endpoint_url=cloud_login, region_name=AWS_REGION)
    with contextlib.closing(asked) as client:
        yield client


@pytest.fixture
def metadata_service() -> Iterator[Imds]:
    """A machine's metadata."""
    with imds() as service:
        yield service
