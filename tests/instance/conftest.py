"""A cloud and metadata on loopback."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from moto.moto_server.threaded_moto_server import ThreadedMotoServer

from tests.support.instances import AWS_REGION, Imds, imds


@pytest.fixture(scope="session")
def aws() -> Iterator[str]:
    """The address of a cloud."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def cloud_login(aws: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Our own code asks that cloud, by AWS's own variables."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", AWS_REGION)
    monkeypatch.setenv("AWS_ENDPOINT_URL", aws)
    return aws


@pytest.fixture
def metadata_service() -> Iterator[Imds]:
    """A machine's metadata."""
    with imds() as service:
        yield service
