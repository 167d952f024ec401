"""The targets of attacks: both engines, and brokers with their generated definitions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from gateways import ENGINES
from guarded import BOXES, Guarded, guarded

from localfabric.world.rabbitmq_home import RabbitmqHome
from newsfabric.topology import box_feed, box_queue, feed_bindings


@pytest.fixture(params=list(ENGINES))
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def core(
    rabbitmq_home: RabbitmqHome, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Guarded]:
    """Run oregon's core with a feed of each box, as agents and keepers make it."""
    with guarded("core", tmp_path_factory.mktemp("core"), rabbitmq_home) as node:
        for box in BOXES:
            arguments = box_feed(box, 1, "amqp://").queue.bounds.arguments()
            with node.connect(f"box.{box}") as connection:
                channel = connection.channel()
                channel.queue_declare(box_queue(box, 1), durable=True, arguments=arguments)
            with node.connect("keeper.oregon") as connection:
                channel = connection.channel()
                for each in feed_bindings("oregon", box, box_queue(box, 1)):
                    channel.queue_bind(each.queue, each.exchange, each.key)
        yield node


@pytest.fixture(scope="session")
def client(
    rabbitmq_home: RabbitmqHome, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Guarded]:
    """Run oregon's client cluster, with publishers ``cms`` and ``web``."""
    with guarded("client", tmp_path_factory.mktemp("client"), rabbitmq_home) as node:
        yield node
