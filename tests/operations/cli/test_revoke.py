"""``newsfabric revoke`` against core clusters in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from newsfabric.amqp import Declare, Delivery, Link
from newsfabric.amqp.stub import StubBroker
from newsfabric.messages.control import Receipt, encode_receipt
from newsfabric.settings import Credentials, Fabric, Node, Region
from newsfabric.topics import REVOKED
from newsfabric.topology import declare_core
from operations.cli import revoke

FABRIC = Fabric(
    tuple(
        Region(
            name=name,
            frontdesk_url="http://127.0.0.1:1",
            client=(Node(f"{name}-client-1", f"amqp://{name}-client", ""),),
            core=tuple(Node(f"{name}-core-{n}", f"amqp://{name}-{n}", "") for n in (1, 2)),
        )
        for name in ("oregon", "dublin")
    )
)


class RevokingCore:
    """A core broker whose router replies, unless it is silent or refuses."""

    def __init__(self, region: Region) -> None:
        self.region = region
        self.broker = StubBroker()
        self.seen: list[Any] = []
        self.silent = False
        self.status: Any = "routed"

    async def start(self) -> None:
        link = self.broker.connect()
        await link.on_connect(self._declare)
        self.publisher = await link.publisher()
        self.consumer = await link.consumer("router.1", self._answer)

    async def _declare(self, declare: Declare) -> None:
        await declare_core(declare)
        await declare.queue("router.1")
        await declare.bind("router.1", "intake", "#")

    def _answer(self, delivery: Delivery) -> None:
        self.consumer.ack(delivery)
        message = delivery.message
        self.seen.append((message.topic, message.properties.message_id))
        if self.silent:
            return
        receipt = Receipt(
            status=self.status, region=self.region.name, router="r", topic=message.topic
        )
        reply_to = message.properties.reply_to or ""
        letter = encode_receipt(
            receipt, reply_to=reply_to, correlation_id=message.properties.correlation_id
        )
        self.publisher.publish_nowait("receipts", letter)


@pytest.fixture
async def cores(monkeypatch: pytest.MonkeyPatch) -> dict[str, RevokingCore]:
    found = {
        node.amqp_url: RevokingCore(region) for region in FABRIC.regions for node in region.core
    }
    for core in found.values():
        await core.start()

    async def connect(urls: Sequence[str], **_: Any) -> Link:
        (url,) = urls
        return found[url].broker.connect()

    monkeypatch.setattr(revoke, "connect", connect)
    return {url.removeprefix("amqp://"): core for url, core in found.items()}


async def revoked(seconds: float = 5.0) -> dict[str, str | None]:
    return await revoke.revoke_in_all(FABRIC, "42", Credentials(), seconds)


async def test_every_broker_is_sent_the_same_at_once(cores: dict[str, RevokingCore]) -> None:
    assert await revoked() == {"oregon": None, "dublin": None}
    first, *others = (core.seen for core in cores.values())
    assert [other == first for other in others] == [True] * 3
    assert [topic for topic, _ in first] == [REVOKED]


async def test_a_broker_that_doesnt_answer_costs_its_region_nothing(
    cores: dict[str, RevokingCore],
) -> None:
    cores["oregon-1"].broker.cut()
    cores["dublin-2"].silent = True
    assert await revoked() == {"oregon": None, "dublin": None}


async def test_a_region_that_doesnt_answer_costs_the_others_nothing(
    cores: dict[str, RevokingCore],
) -> None:
    for n in (1, 2):
        cores[f"dublin-{n}"].silent = True
    async with asyncio.timeout(60):
        assert await revoked(0.2) == {"oregon": None, "dublin": "no answer within 0.2 s"}


async def test_one_that_refuses_is_reported(cores: dict[str, RevokingCore]) -> None:
    for n in (1, 2):
        cores[f"oregon-{n}"].status = "rejected"
    found = await revoked()
    assert found["dublin"] is None
    assert found["oregon"] is not None
