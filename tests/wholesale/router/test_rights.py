"""Publishers' rights: the router checks topics.toml itself, even if brokers accept a message."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest
from core_cluster import EPOCH, CoreCluster, message, running

from newsfabric.amqp import Message
from newsfabric.amqp.fields import encode_table
from newsfabric.amqp.message import SHOVELLED, Undecoded
from newsfabric.amqp.stub import StubBroker
from newsfabric.store.memory import MemoryStore
from newsfabric.topics import parse_topics

pytestmark = pytest.mark.promise("F3")

TOPICS = parse_topics(
    {
        "topic": [{"pattern": "news.*"}, {"pattern": "fabric.canary"}],
        "publisher": [{"app_id": "cms", "topics": ["news.world", "news.asia"]}],
    }
)


def shovelled(
    topic: str = "news.world", *, shovel: str = "publish.oregon.1", **properties: Any
) -> Message:
    """Return a message from a client cluster, with the shovel's mark."""
    table = encode_table({"shovel-name": shovel})
    headers = {SHOVELLED: Undecoded(b"F" + table)}
    return message(topic, headers=headers, reply_to="amq.gen-r", message_id=topic, **properties)


async def answers(messages: Sequence[Message]) -> list[str]:
    broker = StubBroker()
    core = CoreCluster(broker, broker.connect(), MemoryStore(TOPICS, now_ms=lambda: EPOCH), TOPICS)
    await core.open()
    async with running(core) as router:
        core.publish(*messages)
        await core.none_owed(router)
    found = {receipt.topic: receipt.reason or receipt.status for receipt in core.receipts()}
    return [found[m.topic] for m in messages]


async def test_a_publisher_publishes_within_its_rights() -> None:
    sent = [shovelled(topic, app_id="cms", user_id="cms") for topic in ("news.world", "news.sport")]
    assert await answers(sent) == ["routed", "publisher_not_allowed"]


@pytest.mark.parametrize("app_id", [None, "", "web", "CMS"])
async def test_who_isnt_listed_publishes_nothing(app_id: str | None) -> None:
    assert await answers([shovelled(app_id=app_id)]) == ["publisher_not_allowed"]


async def test_who_doesnt_say_whom_it_logged_in_as_publishes_nothing() -> None:
    assert await answers([shovelled(app_id="cms")]) == ["publisher_not_allowed"]
    assert await answers([shovelled(app_id="cms", user_id="")]) == ["publisher_not_allowed"]


async def test_a_frontdesk_vouches_for_whom_it_knows_by_a_key_within_their_rights() -> None:
    user = "frontdesk.dublin"
    sent = [shovelled(topic, app_id="cms", user_id=user) for topic in ("news.world", "news.sport")]
    assert await answers(sent) == ["routed", "publisher_not_allowed"]
    assert await answers([shovelled(user_id=user)]) == ["publisher_not_allowed"]


async def test_no_other_of_the_fabrics_users_vouches_for_anyone() -> None:
    for user in ("frontdesk", "frontdesks.oregon", "box.oregon-retail-1", "keeper.oregon"):
        assert await answers([shovelled(app_id="cms", user_id=user)]) == ["publisher_not_allowed"]


async def test_who_logged_in_counts_more_than_who_it_says_it_is() -> None:
    assert await answers([shovelled(app_id="cms", user_id="web")]) == ["publisher_not_allowed"]
    assert await answers([shovelled(app_id="cms", user_id="cms")]) == ["routed"]


async def test_what_came_through_any_shovel_is_a_publishers() -> None:
    assert await answers([shovelled(app_id="web", shovel="x")]) == ["publisher_not_allowed"]


async def test_canaries_are_everyones() -> None:
    assert await answers([shovelled("fabric.canary", app_id="newsfabric-canary")]) == ["routed"]


async def test_what_enters_the_core_directly_is_the_fabrics_own() -> None:
    own = message("news.sport", reply_to="amq.gen-r", message_id="m", app_id="newsfabric-mailbox")
    assert await answers([own]) == ["routed"]


async def test_a_topic_that_there_isnt_is_still_that() -> None:
    assert await answers([shovelled("sport.x", app_id="cms")]) == ["topic_not_allowed"]


@pytest.mark.parametrize("reply_to", ["web.receipts.1", "shovel.publish.oregon.1", "r", "amq.x"])
async def test_a_receipt_goes_to_no_queue_that_a_broker_hasnt_named(reply_to: str) -> None:
    asked = [
        shovelled(app_id="cms", user_id="cms"),
        # Neither a routed message nor one refused for another reason.
        shovelled("sport.x", app_id="cms", user_id="cms"),
    ]
    wrong = [dataclasses.replace(m.properties, reply_to=reply_to) for m in asked]
    sent = [dataclasses.replace(m, properties=p) for m, p in zip(asked, wrong, strict=True)]
    core, evidence = await _after(sent)
    assert core == []
    assert evidence == ["bad_property", "topic_not_allowed"]


async def _after(messages: Sequence[Message]) -> tuple[list[str], list[str]]:
    broker = StubBroker()
    core = CoreCluster(broker, broker.connect(), MemoryStore(TOPICS, now_ms=lambda: EPOCH), TOPICS)
    await core.open()
    async with running(core) as router:
        core.publish(*messages)
        await core.none_owed(router)
    rejected = [str(m.properties.headers["reason"]) for m in core.arrived("rejected")]
    return [receipt.status for receipt in core.receipts()], rejected
