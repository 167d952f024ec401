"""Answers to publishers that use curl: several messages in one request, rehearsals, and errors."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from core_cluster import until
from house import JSON, SETTINGS, House, open_house
from metric_values import value
from tornado.httpclient import HTTPResponse

from newsfabric.messages.envelope import identity_of, identity_text
from newsfabric.topics import TopicTable, parse_topics
from wholesale.frontdesk.api import counters
from wholesale.frontdesk.api.access import ApiKey
from wholesale.frontdesk.api.publication import MOST_AT_ONCE

HEADLINE = {"topic": "news.world", "body": {"headline": "x"}}
BOUND, FREE = ApiKey("0123456789abcdef", "cms"), ApiKey("fedcba9876543210")
RIGHTS = parse_topics(
    {
        "topic": [{"pattern": "news.*"}, {"pattern": "sport.*", "class": "gold"}],
        "publisher": [{"app_id": "cms", "topics": ["news.*"]}],
    }
)


@pytest.fixture
async def house(topics: TopicTable) -> AsyncIterator[House]:
    async with open_house(topics) as opened:
        yield opened


@pytest.fixture
async def guarded() -> AsyncIterator[House]:
    """Open a house with rights and keys: one key bound to cms, one to no app_id."""
    settings = dataclasses.replace(SETTINGS, api_keys=(BOUND, FREE), login="frontdesk.oregon")
    async with open_house(RIGHTS, settings) as opened:
        yield opened


def body_of(response: HTTPResponse) -> Any:
    return json.loads(response.body)


def error(response: HTTPResponse) -> tuple[int, str, str]:
    detail = body_of(response)["error"]
    return response.code, detail["reason"], detail["detail"]


async def rehearse(house: House, document: Any, query: str = "dry_run", **headers: str) -> Any:
    return await house.fetch(
        f"/publish?{query}",
        method="POST",
        body=json.dumps(document),
        headers={"Content-Type": JSON} | {n.replace("_", "-"): v for n, v in headers.items()},
    )


def counted(status: int) -> float:
    return value(counters.PUBLISHED.labels(str(status)))


# Several at once


async def test_several_messages_are_published_in_their_order_and_each_is_answered(house: House):
    many = [HEADLINE | {"message_id": f"m-{n}"} for n in range(20)]
    before = counted(201)
    asking = asyncio.create_task(house.publish(many))
    await until(lambda: house.client.depth(house.tap) == 20)
    published = house.published()
    assert [m.properties.message_id for m in published] == [f"m-{n}" for n in range(20)]
    for message in reversed(published):
        house.answer(message, id=f"id of {message.properties.message_id}", identity="i")
    response = await asking
    assert response.code == 200
    assert body_of(response)["answers"] == [
        {
            "status": 201,
            "id": f"id of m-{n}",
            "identity": "i",
            "message_id": f"m-{n}",
            "repeated": False,
        }
        for n in range(20)
    ]
    assert counted(201) == before + 20


async def test_one_that_is_refused_costs_the_others_nothing(house: House):
    many = [HEADLINE, {"topic": "news.world"}, HEADLINE | {"message_id": "bad"}, 7]
    asking = asyncio.create_task(house.publish(many))
    await until(lambda: house.client.depth(house.tap) == 2)
    for message in house.published():
        if message.properties.message_id == "bad":
            house.answer(message, status="rejected", reason="topic_not_allowed", detail="why")
        else:
            house.answer(message, id="i", identity="i")
    response = await asking
    assert response.code == 207
    answers = body_of(response)["answers"]
    assert [each["status"] for each in answers] == [201, 400, 422, 400]
    assert answers[1]["error"]["detail"] == "body is required: any JSON value, which readers get"
    assert answers[2]["error"] == {"reason": "topic_not_allowed", "detail": "why"}


async def test_a_message_that_is_there_twice_is_published_once(house: House):
    one = HEADLINE | {"message_id": "m-1"}
    asking = asyncio.create_task(house.publish([one, one]))
    await until(lambda: house.client.depth(house.tap))
    (message,) = house.published()
    house.answer(message, id="i", identity="i")
    answers = body_of(await asking)["answers"]
    assert [(each["status"], each["repeated"]) for each in answers] == [(201, False), (200, True)]


@pytest.mark.parametrize("count", [0, MOST_AT_ONCE + 1])
async def test_how_many_there_may_be_is_bounded(house: House, count: int):
    assert error(await house.publish([HEADLINE] * count)) == (
        400,
        "bad_request",
        f"{count} messages in one request; it takes 1 to 100",
    )
    assert house.published() == []


async def test_an_idempotency_key_names_one_message_alone(house: House):
    status, reason, detail = error(await house.publish([HEADLINE], Idempotency_Key="k"))
    assert (status, reason) == (400, "bad_request")
    assert "give each of several its message_id" in detail


# Rehearsals


async def test_a_rehearsal_says_what_would_become_of_it_and_sends_nothing(house: House):
    response = await rehearse(house, HEADLINE | {"message_id": "m-1", "app_id": "cms"})
    identity = identity_of(app_id="cms", message_id="m-1", topic="", published_ms=None, body=b"")
    assert (response.code, body_of(response)) == (
        200,
        {
            "dry_run": True,
            "topic": "news.world",
            "class": "silver",
            "message_id": "m-1",
            "identity": identity_text(identity),
        },
    )
    assert house.published() == []


async def test_a_rehearsal_of_what_has_no_name_names_none(house: House):
    assert "identity" not in body_of(await rehearse(house, HEADLINE))


@pytest.mark.parametrize(
    ("document", "status", "reason"),
    [
        (HEADLINE | {"topic": "nobody.knows"}, 422, "topic_not_allowed"),
        (HEADLINE | {"topic": "a..b"}, 422, "bad_topic"),
        (HEADLINE | {"traceparent": "x"}, 422, "bad_header"),
        (HEADLINE | {"topic": "_fabric.revoked"}, 422, "topic_not_allowed"),
        (HEADLINE | {"body": "x" * 70_000}, 413, "too_large"),
        ({"topic": "news.world"}, 400, "bad_request"),
    ],
)
async def test_a_rehearsal_is_refused_as_the_message_would_be(
    house: House, document: Any, status: int, reason: str
):
    assert error(await rehearse(house, document))[:2] == (status, reason)
    assert house.published() == []


async def test_several_are_rehearsed_as_one_is(house: House):
    response = await rehearse(house, [HEADLINE, HEADLINE | {"topic": "nobody.knows"}])
    assert response.code == 207
    assert [each["status"] for each in body_of(response)["answers"]] == [200, 422]
    assert house.published() == []


@pytest.mark.parametrize("query", ["dry_run=false", "dry_run=0", ""])
async def test_what_says_no_rehearsal_is_none(house: House, query: str):
    asking = asyncio.create_task(rehearse(house, HEADLINE, query))
    await until(lambda: house.client.depth(house.tap))
    house.answer(house.published()[0], id="i", identity="i")
    assert (await asking).code == 201


@pytest.mark.parametrize("query", ["dry_run=perhaps", "dryrun", "dry-run=true", "dry_run&DRY_RUN"])
async def test_a_rehearsal_that_is_misspelt_is_none_either(house: House, query: str):
    assert error(await rehearse(house, HEADLINE, query))[0] == 400
    assert house.published() == []


# Errors in terms of HTTP


async def test_who_has_no_key_learns_how_to_send_one(guarded: House):
    assert error(await guarded.publish(HEADLINE)) == (
        401,
        "unauthorized",
        "publishing needs an API key: curl -H 'X-API-Key: KEY'",
    )


async def test_who_has_a_wrong_key_learns_that(guarded: House):
    _, _, detail = error(await guarded.publish(HEADLINE, X_API_Key="x" * 16))
    assert detail == "this API key isn't one of this frontdesk's (--api-key-file)"


async def test_who_publishes_as_another_learns_whom_the_key_is_bound_to(guarded: House):
    asked = guarded.publish(HEADLINE | {"app_id": "web"}, X_API_Key=BOUND.key)
    assert error(await asked) == (
        403,
        "permission_denied",
        "this API key is bound to cms: leave app_id out, or set it to cms",
    )


@pytest.mark.parametrize("is_rehearsed", [False, True])
async def test_a_key_that_is_bound_to_nobody_gets_an_answer_with_what_is_needed(
    guarded: House, is_rehearsed: bool
):
    document = HEADLINE | {"app_id": "cms"}
    if is_rehearsed:
        response = await rehearse(guarded, document, X_API_Key=FREE.key)
    else:
        asking = asyncio.create_task(guarded.publish(document, X_API_Key=FREE.key))
        await until(lambda: guarded.client.depth(guarded.tap))
        why = {"reason": "publisher_not_allowed", "detail": "user_id is None"}
        guarded.answer(guarded.published()[0], status="rejected", **why)
        response = await asking
    assert error(response) == (
        403,
        "publisher_not_allowed",
        "publishing as cms needs an API key bound to cms: a line `cms KEY` in the frontdesk's "
        "--api-key-file, sent as X-API-Key",
    )


async def test_a_topic_that_isnt_the_publishers_is_reported_as_that(guarded: House):
    document = HEADLINE | {"topic": "sport.x"}
    assert error(await rehearse(guarded, document, X_API_Key=BOUND.key)) == (
        403,
        "publisher_not_allowed",
        "app_id 'cms' may not publish to sport.x (topics.toml, [[publisher]])",
    )


async def test_with_a_bound_key_all_is_well(guarded: House):
    response = await rehearse(guarded, HEADLINE, X_API_Key=BOUND.key)
    assert (response.code, body_of(response)["class"]) == (200, "silver")


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b"", "the request has no body: curl -d"),
        (b"{news", "not JSON: "),
        (b'"x"', "expected a JSON object with topic and body, or a list of them"),
        (b'{"body": 1}', 'topic is required, such as {"topic": "news.breaking", "body": …}'),
    ],
)
async def test_a_body_that_is_none_gets_an_answer_with_what_to_send(
    house: House, body: bytes, detail: str
):
    status, reason, found = error(await house.publish(body))
    assert (status, reason) == (400, "bad_request")
    assert found.startswith(detail)


async def test_the_default_content_type_of_curl_is_refused_with_the_right_one(house: House):
    _, _, detail = error(
        await house.publish(HEADLINE, Content_Type="application/x-www-form-urlencoded")
    )
    assert detail.endswith("curl -H 'Content-Type: application/json'")


@pytest.mark.parametrize("query", ["", "?limit=5", "?topic="])
async def test_a_history_without_a_topic_is_400(house: House, query: str):
    assert error(await house.fetch(f"/history{query}")) == (
        400,
        "bad_request",
        "topic is required: /history?topic=news.breaking",
    )
