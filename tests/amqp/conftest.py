"""A name and a broker for each AMQP test."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

import pytest
from amqp_links import BrokerHandle, RabbitHandle, StubHandle

from newsfabric.settings import Node


@pytest.fixture
def name() -> str:
    """Return a name that no other test uses."""
    return f"t-{uuid.uuid4().hex[:8]}"


@pytest.fixture(params=["stub", pytest.param("rabbitmq", marks=pytest.mark.broker)])
async def broker(request: pytest.FixtureRequest, name: str) -> AsyncIterator[BrokerHandle]:
    """Yield the same handle on the stub and on RabbitMQ."""
    handle: StubHandle | RabbitHandle
    if request.param == "stub":
        handle = StubHandle()
    else:
        handle = await RabbitHandle.on(request.getfixturevalue("rabbitmq"), name)
    yield handle
    await handle.close()


@pytest.fixture
async def rabbit(rabbitmq: Node, name: str) -> AsyncIterator[RabbitHandle]:
    """Put the session's node behind a proxy of the test's own."""
    handle = await RabbitHandle.on(rabbitmq, name)
    yield handle
    await handle.close()
