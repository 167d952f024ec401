"""Real brokers for the tests of shovels: a client and a core node of one region."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from brokers import NamedNodes as Nodes

from localfabric.world.rabbitmq_home import RabbitmqHome
from newsfabric.settings import Fabric, Region


@pytest.fixture(scope="module")
def nodes(rabbitmq_home: RabbitmqHome, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    folder = tmp_path_factory.mktemp("shovels")
    with Nodes(folder, rabbitmq_home, ["oregon-client-1", "oregon-core-1"]) as started:
        yield started


@pytest.fixture(scope="module")
def known(nodes: Nodes) -> Fabric:
    region = Region(
        name="oregon",
        frontdesk_url="http://127.0.0.1:1",
        client=(nodes.node("oregon-client-1"),),
        core=(nodes.node("oregon-core-1"),),
    )
    return Fabric((region,))
