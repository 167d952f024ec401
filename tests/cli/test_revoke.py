"""``newsfabric revoke`` against core clusters in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from newsfabric.amqp import Declare, Delivery, Link
from newsfabric.amqp.stub import StubBroker
from newsfabric.cli import revoke
from newsfabric.control import Receipt, encode_receipt
from newsfabric.settings import Credentials, Fabric, Node, Region
from newsfabric.topics import REVOKED
from newsfabric.topology import declare_core


class Core:
    """A core cluster whose router answers, unless it is silent or says no."""

    def __init__(self, name: str) -> None:
        self.region = Region(
            name=name,
            frontdesk_url="http://127.0.0.1:1",
            client=(Node(f"{name}-client-1", f"amqp://{name}-client", ""),),
            core=(Node(f"{name}-core-1", f"amqp://{name}-core", ""),),
        )
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
async def cores(monkeypatch: pytest.MonkeyPatch) -> dict[str, Core]:
    found = {name: Core(name) for name in ("oregon", "dublin")}
    for core in found.values():
        await core.start()

    async def connect(urls: Sequence[str], **_: Any) -> Link:
        (url,) = urls
        return found[url.removeprefix("amqp://").removesuffix("-core")].broker.connect()

    monkeypatch.setattr(revoke, "connect", connect)
    return found


async def told(cores: dict[str, Core], seconds: float = 5.0) -> dict[str, str | None]:
    fabric = Fabric(tuple(core.region for core in cores.values()))
    return await revoke.tell_all(fabric, "42", Credentials(), seconds)


async def test_every_region_is_told_the_same_at_once(cores: dict[str, Core]) -> None:
    assert await told(cores) == {"oregon": None, "dublin": None}
    oregon, dublin = (core.seen for core in cores.values())
    assert oregon == dublin
    assert [topic for topic, _ in oregon] == [REVOKED]


async def test_a_region_that_doesnt_answer_costs_the_others_nothing(
    cores: dict[str, Core],
) -> None:
    cores["dublin"].silent = True
    async with asyncio.timeout(60):
        assert await told(cores, 0.2) == {"oregon": None, "dublin": "no answer within 0.2 s"}


async def test_one_that_says_no_is_told(cores: dict[str, Core]) -> None:
    cores["oregon"].status = "rejected"
    found = await told(cores)
    assert found["dublin"] is None
    assert found["oregon"] is not None
