"""The orders to drain that an agent obeys: from its own region's scaler, for its own box."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from shovelled import shovelled

from newsfabric.amqp import Delivery, Message
from newsfabric.messages.control import (
    DRAIN_EXPIRES_MS,
    DrainOrder,
    decode_drain,
    encode_drain,
    is_drain,
)
from newsfabric.settings import Credentials
from retail.agent import Agent, AgentSettings
from retail.drain import Drain
from retail.load import AWAY, emptied

ORDER = DrainOrder(region="oregon", box="oregon-retail-1", by="oregon-scaler-1", sent_ms=5)


class Acks:
    def ack(self, delivery: Delivery) -> None:
        pass


def agent() -> Agent:
    made = Agent(
        AgentSettings(
            box="oregon-retail-1",
            region="oregon",
            cores=("amqp://127.0.0.1:1/%2F",),
            broker="amqp://127.0.0.1:1/%2F",
            management="http://127.0.0.1:1",
            gateway_admin="http://127.0.0.1:1",
            drain_timeout=1.0,
            credentials=Credentials(),
        )
    )
    made._ticking = Acks()  # type: ignore[assignment]
    return made


def ordered(**fields: Any) -> Message:
    """Return the order, with other ``fields``, as oregon's scaler sends it."""
    return encode_drain(dataclasses.replace(ORDER, **fields), user_id="scaler.oregon")


async def obeys(message: Message, *ways: str) -> bool:
    ordered = agent()
    headers = shovelled(*ways) if ways else {}
    properties = dataclasses.replace(message.properties, headers=headers)
    brought = dataclasses.replace(message, properties=properties)
    ordered._on_tick(Delivery(brought, redelivered=False, tag=1, generation=1))
    return ordered._ordered.is_set()


async def test_its_own_order_over_its_own_feed() -> None:
    assert await obeys(ordered(), "postoffice.1")
    assert await obeys(ordered(), "postoffice.2")


@pytest.mark.parametrize(
    "login", [None, "", "scaler.dublin", "box.oregon-retail-1", "frontdesk.oregon"]
)
async def test_no_order_that_the_broker_doesnt_vouch_for(login: str | None) -> None:
    assert not await obeys(encode_drain(ORDER, user_id=login), "postoffice.1")


@pytest.mark.parametrize(
    "ways",
    [
        # Published on the box's own broker.
        (),
        ("outbound.dublin.1", "postoffice.1"),
        ("postoffice.1", "postoffice.1"),
        ("upstream",),
    ],
)
async def test_no_order_that_came_another_way(ways: tuple[str, ...]) -> None:
    assert not await obeys(ordered(), *ways)


@pytest.mark.parametrize("wrong", [{"box": "oregon-retail-2"}, {"region": "dublin"}])
async def test_no_order_for_another(wrong: dict[str, str]) -> None:
    other = ordered(**wrong)
    assert not await obeys(other, "postoffice.1")
    # The body of another box's order with our headers is refused, too.
    relabelled = dataclasses.replace(ordered(), body=other.body)
    assert not await obeys(relabelled, "postoffice.1")


@pytest.mark.parametrize("body", [b"", b"[]", b'{"region": 5}', b'{"region":"oregon"}', b"\xff"])
async def test_no_nonsense(body: bytes) -> None:
    message = dataclasses.replace(ordered(), body=body)
    assert is_drain(message)
    assert not await obeys(message, "postoffice.1")


def test_an_order_is_what_was_sent_and_doesnt_outlive_its_time() -> None:
    message = ordered()
    assert decode_drain(message) == ORDER
    assert message.topic == "_fabric.drain.oregon.oregon-retail-1"
    assert message.properties.expiration == str(DRAIN_EXPIRES_MS)
    assert message.properties.user_id == "scaler.oregon"


def through(*events: Any) -> Drain:
    leaving = Drain()
    for event in events:
        leaving.on(event)
    return leaving


def test_readers_are_gone_when_the_gateway_reports_it_or_has_exited_after_its_drain_order() -> None:
    assert not through("stop", "accepted", "empty").left
    assert not through("stop", "accepted", "gone").left
    assert through("stop", "gone").left
    assert through("stop", "accepted", "overdue").left
    assert through("stop", "accepted").left


def test_a_box_that_is_empty_says_so_with_its_capacity() -> None:
    last = dataclasses.replace(AWAY, connections=7, capacity=100, connects_per_second=5.0)
    found = emptied(last)
    assert (found.connections, found.capacity, found.connects_per_second) == (0, 100, 0.0)
    # 0 would mean that the capacity is unknown.
    assert emptied(AWAY).capacity == 1
