"""A box's agent on several brokers, of which one doesn't reply."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from quick_time import run

from newsfabric.settings import Credentials
from retail.agent import KEEP_WITHIN, Agent, AgentSettings
from retail.feed import _PAUSED


class CountingBroker:
    """A broker that counts how often it was asked to have the box's queues."""

    def __init__(self, *, hangs: bool) -> None:
        self._hangs = hangs
        self.kept = 0

    async def keep(self, *_: object) -> None:
        if self._hangs:
            await asyncio.Event().wait()
        self.kept += 1

    declare = keep


async def _keep() -> None:
    settings = AgentSettings(
        box="oregon-retail-1",
        region="oregon",
        cores=("amqp://a.test", "amqp://b.test", "amqp://c.test"),
        broker="amqp://localhost",
        management="http://localhost",
        gateway_admin="http://localhost",
        drain_timeout=10.0,
        credentials=Credentials(),
    )
    agent = Agent(settings)
    own, *cores = brokers = [CountingBroker(hangs=n == 1) for n in range(3)]
    agent._link = cast(Any, own)
    agent._cores = cast(Any, dict(enumerate(cores, 1)))
    await agent._keep_queues()
    assert asyncio.get_running_loop().time() == KEEP_WITHIN < _PAUSED
    assert [broker.kept for broker in brokers] == [1, 0, 1]


def test_a_broker_that_does_not_answer_delays_no_other_and_no_look_for_long() -> None:
    run(_keep(), began=0.0)
