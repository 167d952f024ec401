"""The actions that a publisher with minimal rights can and can't do on a client cluster."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, UnroutableError

from newsfabric import topology
from newsfabric.amqp.link import connect
from newsfabric.brokers.management import Management
from newsfabric.settings import Credentials, Node
from newsfabric.topics import PublisherRights
from newsfabric.topology.rights import publisher, user_definitions

pytestmark = pytest.mark.broker

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "guarantees.md"


def documented(kind: str) -> str:
    """Return the permission that docs/guarantees.md gives publisher ``cms``."""
    found = re.search(rf"^\| {kind} \| `(.+)` \|$", DOCUMENT.read_text("utf-8"), re.MULTILINE)
    assert found is not None
    return found[1].replace(r"\|", "|")


@pytest.fixture
async def url(rabbitmq: Node) -> AsyncIterator[str]:
    """Yield the client cluster's URL for a publisher with the documented permissions."""
    link = await connect([rabbitmq.amqp_url], name="test")
    await link.on_connect(topology.declare_client)
    user = Credentials(f"cms-{uuid.uuid4().hex[:8]}", "secret")
    async with Management(rabbitmq.management_url, Credentials()) as api:
        await (await link.publisher()).ready()
        await api._send("PUT", f"/users/{user.username}", {"password": "secret", "tags": ""})
        rights = {kind: documented(kind) for kind in ("configure", "write", "read")}
        assert rights == publisher(PublisherRights("cms", ())).permissions()
        await api._send("PUT", f"/permissions/%2F/{user.username}", rights)
        allowed = publisher(PublisherRights("cms", ("rights.#", "news.*")))
        (topics,) = allowed.topic_permissions()
        await api._send("PUT", f"/topic-permissions/%2F/{user.username}", topics)
        yield user.in_url(rabbitmq.amqp_url)
        await api._send("DELETE", f"/users/{user.username}")
    await link.close()


def channel(connection: pika.BlockingConnection) -> BlockingChannel:
    opened = connection.channel()
    opened.confirm_delivery()
    return opened


def publish(
    to: BlockingChannel,
    exchange: str,
    *,
    topic: str = "rights.x",
    mandatory: bool = False,
    **properties: str,
) -> None:
    sent = pika.BasicProperties(**properties)
    to.basic_publish(exchange, topic, b"{}", sent, mandatory=mandatory)


@pytest.mark.promise("C1", "C2")
async def test_a_confirm_comes_though_nobody_will_ever_see_the_message(url: str) -> None:
    def tried() -> None:
        with pika.BlockingConnection(pika.URLParameters(url)) as connection:
            publish(channel(connection), "publish")
            with pytest.raises(UnroutableError):
                publish(channel(connection), "publish", mandatory=True)

    await asyncio.to_thread(tried)


@pytest.mark.promise("F2", "R5")
async def test_a_publisher_gets_its_own_receipts(url: str, rabbitmq: Node) -> None:
    def tried() -> None:
        with (
            pika.BlockingConnection(pika.URLParameters(url)) as connection,
            pika.BlockingConnection(pika.URLParameters(rabbitmq.amqp_url)) as fabric,
        ):
            own = channel(connection)
            mine = own.queue_declare("", exclusive=True).method.queue
            properties = pika.BasicProperties(correlation_id="c1", type="receipt")
            channel(fabric).basic_publish("", mine, b"{}", properties)
            _, answer, _ = next(own.consume(mine, inactivity_timeout=60))
            assert answer.correlation_id == "c1"

    await asyncio.to_thread(tried)


@pytest.mark.promise("F2")
async def test_it_can_neither_forge_receipts_nor_hear_others(url: str, rabbitmq: Node) -> None:
    def tried() -> None:
        with (
            pika.BlockingConnection(pika.URLParameters(url)) as connection,
            pika.BlockingConnection(pika.URLParameters(rabbitmq.amqp_url)) as other,
        ):
            others = f"web.{uuid.uuid4()}"
            other.channel().queue_declare(others, durable=True)
            own = channel(connection).queue_declare("", exclusive=True).method.queue
            forbidden = [
                # The default exchange leads to every queue.
                lambda of: publish(of, ""),
                lambda of: of.queue_bind(own, "publish", "#"),
                lambda of: of.basic_get(others),
                lambda of: of.queue_purge(others),
                lambda of: of.queue_bind(others, "publish", "#"),
                lambda of: of.queue_declare(f"web.{uuid.uuid4()}"),
                lambda of: of.queue_declare(f"cms.{uuid.uuid4()}"),
            ]
            for attempt in forbidden:
                with pytest.raises(ChannelClosedByBroker, match="ACCESS_REFUSED"):
                    attempt(channel(connection))
            other.channel().queue_delete(others)

    await asyncio.to_thread(tried)


@pytest.mark.promise("F2")
async def test_it_publishes_to_its_topics_and_no_others(url: str) -> None:
    def tried() -> None:
        with pika.BlockingConnection(pika.URLParameters(url)) as connection:
            for topic in ("rights", "rights.a.b", "news.x"):
                publish(channel(connection), "publish", topic=topic)
            for topic in ("news", "news.a.b", "sport.x", "x.rights", "xrights.x", "news.x."):
                with pytest.raises(ChannelClosedByBroker, match=f"topic '{topic}'"):
                    publish(channel(connection), "publish", topic=topic)

    await asyncio.to_thread(tried)


@pytest.mark.promise("F2")
async def test_it_cant_say_that_it_logged_in_as_somebody_else(url: str) -> None:
    def tried() -> None:
        with pika.BlockingConnection(pika.URLParameters(url)) as connection:
            mine = pika.URLParameters(url).credentials.username
            publish(channel(connection), "publish", user_id=mine)
            with pytest.raises(ChannelClosedByBroker, match="user_id"):
                publish(channel(connection), "publish", user_id="guest")

    await asyncio.to_thread(tried)


async def test_definitions_of_publishers_are_what_a_broker_takes(rabbitmq: Node) -> None:
    name = f"cms-{uuid.uuid4().hex[:8]}"
    users = [publisher(PublisherRights(name, ("news.#",)))]
    document = user_definitions(users, {name: "pass-word"})
    own = Credentials(name, "pass-word").in_url(rabbitmq.amqp_url)
    link = await connect([rabbitmq.amqp_url], name="test")
    await link.on_connect(topology.declare_client)

    def tried() -> None:
        with pika.BlockingConnection(pika.URLParameters(own)) as connection:
            publish(channel(connection), "publish", topic="news.x")
            with pytest.raises(ChannelClosedByBroker, match="ACCESS_REFUSED"):
                publish(channel(connection), "publish", topic="sport.x")

    async with Management(rabbitmq.management_url, Credentials()) as api:
        await (await link.publisher()).ready()
        await api._send("POST", "/definitions", document)
        await asyncio.to_thread(tried)
        await api._send("DELETE", f"/users/{name}")
    await link.close()
