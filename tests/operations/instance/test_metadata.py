"""A machine's metadata: read with a token only, bounded, and checked."""

from __future__ import annotations

import pytest

from operations.instance.metadata import ENDPOINT, Metadata, MetadataError
from tests.support.instances import AWS_REGION, BOX, Imds


def metadata(service: Imds) -> Metadata:
    return Metadata.of({ENDPOINT: service.endpoint})


def test_it_says_who_we_are(metadata_service: Imds) -> None:
    found = metadata(metadata_service)
    assert (found.instance_id(), found.aws_region()) == (BOX, AWS_REGION)
    assert found.target_state() == "InService"
    assert metadata_service.tokens == 1


def test_a_token_that_has_ended_is_replaced(metadata_service: Imds) -> None:
    found = metadata(metadata_service)
    found.instance_id()
    metadata_service.tokens += 1
    assert found.target_state() == "InService"


def test_a_machine_of_no_group_has_no_state(metadata_service: Imds) -> None:
    del metadata_service.paths["autoscaling/target-lifecycle-state"]
    assert metadata(metadata_service).target_state() is None


@pytest.mark.parametrize("status", [401, 403, 500])
def test_an_error_is_an_error_and_not_an_answer(metadata_service: Imds, status: int) -> None:
    found = metadata(metadata_service)
    found.instance_id()
    metadata_service.status = status
    with pytest.raises(MetadataError):
        found.target_state()


@pytest.mark.parametrize("name", ["", "x", "i-0123", "i-0123456789abcdef0/../x"])
def test_an_id_that_is_none_names_no_box(metadata_service: Imds, name: str) -> None:
    metadata_service.paths["instance-id"] = name
    with pytest.raises(MetadataError, match="instance-id"):
        metadata(metadata_service).instance_id()


@pytest.mark.sockets
def test_nobody_there_is_an_error() -> None:
    with pytest.raises(MetadataError):
        Metadata("http://127.0.0.1:1").target_state()


def test_an_endpoint_that_is_no_url_is_refused() -> None:
    with pytest.raises(MetadataError, match=ENDPOINT):
        Metadata("file:///etc/passwd")
