"""A revocation from the operator's command to the reader: by a router and the feed, in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from core_cluster import CoreCluster, running
from gateways import ENGINES, opened_box, until
from signing import AUDIENCE, ISSUER, keys_file, token

from gateway.process.settings import TokenSettings
from newsfabric.amqp import Link
from newsfabric.amqp.stub import StubBroker
from newsfabric.settings import Credentials, Fabric, Node, Region
from newsfabric.store.memory import MemoryStore
from newsfabric.store.rules import clock_ms
from newsfabric.topics import TopicPolicy, TopicTable
from operations.cli import revoke

TABLE = TopicTable([TopicPolicy(pattern="user.*", topic_class="gold", access="owner")])
REGION = Region(
    name="oregon",
    frontdesk_url="http://127.0.0.1:1",
    client=(Node("oregon-client-1", "amqp://client", ""),),
    core=(Node("oregon-core-1", "amqp://core", ""),),
)


@pytest.mark.parametrize("engine", list(ENGINES))
async def test_a_revoked_user_is_out(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core, store = StubBroker(), MemoryStore(TABLE)
    cluster = CoreCluster(core, core.connect(), store, TABLE)
    await cluster.open()

    async def connect(urls: Sequence[str], **_: Any) -> Link:
        assert urls == ["amqp://core"]
        return core.connect()

    monkeypatch.setattr(revoke, "connect", connect)
    token_settings = TokenSettings(keys=keys_file(tmp_path), audience=AUDIENCE, issuer=ISSUER)
    async with (
        running(cluster, now_ms=clock_ms),
        opened_box(engine, table=TABLE, store=store, tokens=token_settings) as box,
        box.reader() as reader,
        box.reader() as other,
    ):
        assert (await reader.answer_to(action="login", token=token("42")))["type"] == "logged_in"
        assert (await other.answer_to(action="login", token=token("7")))["type"] == "logged_in"
        # The work of the shovel between core and box.
        carrying = asyncio.create_task(_carry(cluster, box.broker))
        fabric = Fabric((REGION,))
        assert await revoke.revoke_in_all(fabric, "42", Credentials(), 5.0) == {"oregon": None}
        assert (await reader.hear_close())[0] == 4001
        await other.is_up_to_date()
        carrying.cancel()
        await asyncio.gather(carrying, return_exceptions=True)
    # A box that starts later reads it from the store.
    async with opened_box(engine, table=TABLE, store=store, tokens=token_settings) as box:
        await until(lambda: len(box.gateway.core.authenticator.revocations) == 1)


async def _carry(cluster: CoreCluster, box: StubBroker) -> None:
    while True:
        for message in cluster.broker.pop_messages(cluster.taps["postoffice"]):
            box.publish("postoffice", message)
        await asyncio.sleep(0.005)
