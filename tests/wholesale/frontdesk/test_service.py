"""The frontdesk over real sockets, with brokers and a store in memory."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from clusters import client_cluster, core_cluster, reported
from core_cluster import until
from envelopes import envelope
from gateways import opened_box
from house import DUBLIN, FABRIC, JSON, LOAD, SETTINGS, House, open_house
from metric_values import value
from signing import AUDIENCE, ISSUER, keys_file, token
from spellings import SPELLINGS
from tornado.httpclient import AsyncHTTPClient, HTTPResponse

from gateway.process.settings import TokenSettings
from newsfabric.amqp import Message
from newsfabric.amqp.stub import StubBroker
from newsfabric.errors import ConfigError, StoreUnavailable
from newsfabric.http.pace import Rate
from newsfabric.messages import control
from newsfabric.process.service import Readiness
from newsfabric.store.memory import MemoryStore
from newsfabric.topics import TopicTable
from wholesale.frontdesk.api import counters
from wholesale.frontdesk.api.access import ApiKey
from wholesale.frontdesk.service import FrontdeskService

HEADLINE = {"topic": "news.world", "body": {"headline": "x"}}


@pytest.fixture
async def house(topics: TopicTable) -> AsyncIterator[House]:
    async with open_house(topics) as opened:
        yield opened


async def metrics(house: House) -> str:
    admin = f"http://127.0.0.1:{house.service.admin_port}"
    return (await AsyncHTTPClient().fetch(f"{admin}/metrics")).body.decode()


def body_of(response: HTTPResponse) -> Any:
    assert response.headers["Content-Type"] == JSON
    return json.loads(response.body)


# --- endpoints


async def test_endpoints_name_the_ready_boxes_and_the_other_regions(house: House):
    house.report()
    await until(lambda: house.service.boxes.count(now=0.0) == 1)
    response = await house.fetch("/endpoints.json")
    assert response.code == 200
    assert body_of(response) == {
        "region": "oregon",
        "gateways": [
            {
                "sockjs_url": "http://r1.example/sockjs",
                "websocket_url": "ws://r1.example/websocket",
                "sse_url": "http://r1.example/events",
                "weight": 1.0,
            }
        ],
        "alternates": [{"region": "dublin", "endpoints_url": f"{DUBLIN}/endpoints.json"}],
        "ttl": 5,
        "retry_ms": 2000,
    }
    assert response.headers["Access-Control-Allow-Origin"] == "*"
    assert "max-age=5" in response.headers["Cache-Control"]


async def test_without_a_ready_box_it_is_503_and_still_tells_where_else(house: House):
    house.report(state="draining")
    await until(lambda: house.service.boxes.count(now=0.0) == 1)
    response = await house.fetch("/endpoints.json")
    assert response.code == 503
    assert response.headers["Retry-After"] == "2"
    assert "no-store" in response.headers["Cache-Control"]
    assert body_of(response)["gateways"] == []
    assert [a["region"] for a in body_of(response)["alternates"]] == ["dublin"]


async def test_a_strangers_message_among_the_load_reports_is_ignored(house: House):
    key = control.load_key("oregon", "x")
    house.core.publish("upstream", Message(key, b"not a report"))
    house.report()
    await until(lambda: house.service.boxes.count(now=0.0) == 1)
    assert (await house.fetch("/endpoints.json")).code == 200


async def test_what_a_box_reports_in_anothers_name_is_dropped_and_reported(
    house: House, caplog: pytest.LogCaptureFixture
):
    before = value(counters.REPORT_FORGED)
    forged = dataclasses.replace(LOAD, box="oregon-retail-2")
    house.core.publish("upstream", reported(forged, by="oregon-retail-1"))
    # A report without a user id is dropped too: no broker has checked its sender.
    house.core.publish("upstream", control.encode_load(forged))
    house.report()
    await until(lambda: house.service.boxes.count(now=0.0))
    gateways = body_of(await house.fetch("/endpoints.json"))["gateways"]
    assert len(gateways) == 1
    assert f'outcome="forged"}} {before + 2}' in await metrics(house)
    # The second line within ten seconds isn't logged.
    assert [line for line in caplog.messages if "load report" in line] == [
        "rejected a load report of 'oregon-retail-2' from user 'box.oregon-retail-1' (and 0 more)"
    ]


# --- publish


@pytest.mark.promise("S6")
async def test_a_publication_is_answered_with_its_id_once_it_is_routed(house: House):
    asking = asyncio.create_task(house.publish(HEADLINE, Idempotency_Key="k1"))
    await until(lambda: house.client.depth(house.tap))
    (message,) = house.published()
    assert (message.topic, message.body) == ("news.world", b'{"headline":"x"}')
    assert message.properties.message_id == "k1"
    house.answer(message, id="an-id", identity="an-identity")
    response = await asking
    assert response.code == 201
    assert body_of(response) == {
        "id": "an-id",
        "identity": "an-identity",
        "message_id": "k1",
        "repeated": False,
    }


@pytest.mark.promise("S6")
async def test_a_repeat_is_200_with_the_first_id(house: House):
    asking = asyncio.create_task(house.publish(HEADLINE, Idempotency_Key="k1"))
    await until(lambda: house.client.depth(house.tap))
    house.answer(house.published()[0], id="first", identity="i", repeated=True)
    response = await asking
    assert (response.code, body_of(response)["id"]) == (200, "first")


@pytest.mark.parametrize(("reason", "status"), [("topic_not_allowed", 422), ("too_large", 413)])
async def test_a_rejection_comes_with_its_reason(house: House, reason: str, status: int):
    asking = asyncio.create_task(house.publish(HEADLINE))
    await until(lambda: house.client.depth(house.tap))
    house.answer(house.published()[0], status="rejected", reason=reason, detail="because")
    response = await asking
    assert response.code == status
    assert body_of(response) == {"error": {"reason": reason, "detail": "because"}}


@pytest.mark.promise("S6")
async def test_what_was_dropped_for_want_of_room_may_come_again_later(house: House):
    asking = asyncio.create_task(house.publish(HEADLINE, Idempotency_Key="k1"))
    await until(lambda: house.client.depth(house.tap))
    house.answer(house.published()[0], status="rejected", reason="overload", detail="later")
    response = await asking
    assert (response.code, response.headers["Retry-After"]) == (503, "1")
    error = body_of(response)["error"]
    assert (error["reason"], error["message_id"]) == ("overload", "k1")


async def test_each_answer_finds_its_own_request(house: House):
    asking = [asyncio.create_task(house.publish(HEADLINE, Idempotency_Key=k)) for k in "abc"]
    await until(lambda: house.client.depth(house.tap) == 3)
    for message in reversed(house.published()):
        house.answer(message, id=f"id-{message.properties.message_id}", identity="i")
    answers = await asyncio.gather(*asking)
    assert [body_of(answer)["id"] for answer in answers] == ["id-a", "id-b", "id-c"]


@pytest.mark.promise("F1")
async def test_a_receipt_that_nobody_waits_for_is_ignored(house: House):
    asking = asyncio.create_task(house.publish(HEADLINE))
    await until(lambda: house.client.depth(house.tap))
    (message,) = house.published()
    guessed = dataclasses.replace(message.properties, correlation_id="0" * 32)
    house.answer(dataclasses.replace(message, properties=guessed), id="forged", identity="i")
    house.client.publish("", dataclasses.replace(message, topic=guessed.reply_to or ""))
    house.answer(message, id="true", identity="i")
    assert body_of(await asking)["id"] == "true"


@pytest.mark.promise("S6")
async def test_without_a_receipt_in_time_it_is_504_with_the_key_to_send_again(topics: TopicTable):
    hurried = dataclasses.replace(SETTINGS, receipt_seconds=0.05)
    async with open_house(topics, hurried) as house:
        response = await house.publish(HEADLINE)
        (message,) = house.published()
        assert response.code == 504
        error = body_of(response)["error"]
        assert error["reason"] == "no_receipt"
        assert "same Idempotency-Key" in error["detail"]
        assert error["message_id"] == message.properties.message_id


@pytest.mark.promise("S6")
async def test_without_a_broker_it_is_503(house: House):
    house.client.cut()
    response = await house.publish(HEADLINE)
    assert (response.code, response.headers["Retry-After"]) == (503, "1")
    assert body_of(response)["error"]["detail"].startswith("nothing was sent: no client broker")


async def test_what_no_shovel_would_take_away_is_503(house: House):
    house.client.delete_queue(house.tap)
    assert (await house.publish(HEADLINE)).code == 503


async def test_without_a_receipt_the_message_goes_by_another_broker_too(topics: TopicTable):
    second = client_cluster()
    async with open_house(topics, SETTINGS, second) as house:
        beside = dataclasses.replace(house, client=second, tap=second.tap("publish"))
        asking = asyncio.create_task(house.publish(HEADLINE, Idempotency_Key="k1"))
        await until(lambda: house.client.depth(house.tap) and second.depth(beside.tap))
        (copy,) = beside.published()
        assert [m.properties.message_id for m in (*house.published(), copy)] == ["k1", "k1"]
        beside.answer(copy, id="i", identity="x")
        response = await asking
        assert (response.code, body_of(response)["id"]) == (201, "i")


@pytest.mark.promise("S6")
async def test_with_one_broker_down_the_other_takes_all(topics: TopicTable):
    second = client_cluster()
    async with open_house(topics, SETTINGS, second) as house:
        second.cut()
        asking = [asyncio.create_task(house.publish(HEADLINE, Idempotency_Key=k)) for k in "abc"]
        await until(lambda: house.client.depth(house.tap) == 3)
        for message in house.published():
            house.answer(message, id="i", identity="x")
        assert [(await each).code for each in asking] == [201, 201, 201]


@pytest.mark.promise("O4")
async def test_at_the_bound_of_waiting_publications_the_next_is_503(topics: TopicTable):
    async with open_house(topics, dataclasses.replace(SETTINGS, max_pending=1)) as house:
        first = asyncio.create_task(house.publish(HEADLINE))
        await until(lambda: house.client.depth(house.tap))
        assert body_of(await house.publish(HEADLINE))["error"]["reason"] == "busy"
        house.answer(house.published()[0], id="i", identity="i")
        assert (await first).code == 201


@pytest.mark.parametrize(
    ("document", "headers", "status", "reason"),
    [
        (b"{", {}, 400, "bad_request"),
        ({"topic": "news.world"}, {}, 400, "bad_request"),
        (HEADLINE | {"body": "x" * 70_000}, {}, 413, "too_large"),
        (b" " * 500_000, {}, 413, "too_large"),
        (HEADLINE, {"Content_Type": "text/plain"}, 415, "unsupported_media_type"),
        (HEADLINE, {"Content_Type": ""}, 415, "unsupported_media_type"),
    ],
)
async def test_a_bad_request_is_refused_with_its_reason(
    house: House, document: Any, headers: dict[str, str], status: int, reason: str
):
    response = await house.publish(document, **headers)
    assert response.code == status
    assert body_of(response)["error"]["reason"] == reason
    assert house.published() == []


async def test_a_body_of_unknown_length_is_bounded_too(house: House):
    async def body_in_pieces(write: Any) -> None:
        for _ in range(50):
            await write(b" " * 10_000)

    response = await house.fetch(
        "/publish", method="POST", headers={"Content-Type": JSON}, body_producer=body_in_pieces
    )
    assert response.code == 413


async def test_only_post_publishes(house: House):
    response = await house.fetch("/publish")
    assert (response.code, response.headers["Allow"]) == (405, "POST")


async def test_web_pages_may_not_publish(house: House):
    response = await house.fetch(
        "/publish",
        method="OPTIONS",
        headers={"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"},
    )
    assert response.code == 405
    assert "Access-Control-Allow-Origin" not in response.headers
    # If its name resolves to loopback, the page has the same origin, and sends no preflight.
    assert (await house.publish(HEADLINE, Origin="http://evil.example")).code == 403
    assert house.published() == []


async def test_with_a_key_only_its_holder_publishes(topics: TopicTable):
    guarded = dataclasses.replace(SETTINGS, api_keys=(ApiKey("0123456789abcdef"),))
    async with open_house(topics, guarded) as house:
        response = await house.publish(HEADLINE)
        assert (response.code, response.headers["WWW-Authenticate"]) == (401, "Bearer")
        asking = asyncio.create_task(house.publish(HEADLINE, X_API_Key="0123456789abcdef"))
        await until(lambda: house.client.depth(house.tap))
        house.answer(house.published()[0], id="i", identity="i")
        assert (await asking).code == 201


async def test_it_vouches_for_whom_it_knows_by_a_key_and_for_nobody_else(topics: TopicTable):
    keys = (ApiKey("0123456789abcdef", "cms"), ApiKey("fedcba9876543210"))
    settings = dataclasses.replace(SETTINGS, api_keys=keys, login="frontdesk.oregon")
    async with open_house(topics, settings) as house:
        for key, vouched in ((keys[0], "frontdesk.oregon"), (keys[1], None)):
            document = HEADLINE | {"app_id": "cms"}
            asking = asyncio.create_task(house.publish(document, X_API_Key=key.key))
            await until(lambda: house.client.depth(house.tap))
            (message,) = house.published()
            assert (message.properties.app_id, message.properties.user_id) == ("cms", vouched)
            house.answer(message, id="i", identity="i")
            await asking


def test_it_doesnt_listen_to_the_world_without_a_key():
    with pytest.raises(ConfigError, match="--api-key-file"):
        dataclasses.replace(SETTINGS, host="0.0.0.0")


async def test_ordered_to_stop_it_finishes_the_requests_that_wait(topics: TopicTable):
    async with open_house(topics) as house:
        asking = asyncio.create_task(house.publish(HEADLINE))
        await until(lambda: house.client.depth(house.tap))
        (message,) = house.published()
        loop = asyncio.get_running_loop()
        loop.call_later(0.05, lambda: house.answer(message, id="late", identity="i"))
    response = await asking
    assert (response.code, body_of(response)["id"]) == (201, "late")


# --- pages of other origins, and HEAD


@pytest.mark.parametrize("path", ["/history?topic=user.42&after=", "/endpoints.json"])
async def test_a_page_of_another_origin_may_send_its_token(house: House, path: str):
    response = await house.fetch(
        path,
        method="OPTIONS",
        headers={
            "Origin": "https://news.example",
            "Access-Control-Request-Method": "GET",
            "Access-Control-Request-Headers": "authorization",
        },
    )
    assert (response.code, response.body) == (204, b"")
    assert response.headers["Access-Control-Allow-Origin"] == "*"
    assert response.headers["Access-Control-Allow-Methods"] == "GET, HEAD, OPTIONS"
    assert "Authorization" in response.headers["Access-Control-Allow-Headers"]


@pytest.mark.parametrize(
    "path",
    [
        "/endpoints.json",
        "/history?topic=news.world",
        "/history?topic=weather.oslo",
        "/openapi.json",
        "/healthz/live",
        "/healthz/ready",
        "/board",
        "/board.json",
        "/board/plots.json",
        "/board/metrics",
        "/",
    ],
)
async def test_head_is_answered_like_get_without_content(house: House, path: str):
    head = await house.fetch(path, method="HEAD")
    get = await house.fetch(path)
    assert (head.code, head.body) == (get.code, b"")
    assert head.headers["Content-Type"] == get.headers["Content-Type"]
    assert head.headers.get("Cache-Control") == get.headers.get("Cache-Control")


async def test_head_of_the_boards_stream_ends(house: House):
    head = await house.fetch("/board/stream", method="HEAD")
    assert (head.code, head.body) == (200, b"")
    assert head.headers["Content-Type"].startswith("text/event-stream")


async def test_head_of_what_only_takes_is_405(house: House):
    response = await house.fetch("/publish", method="HEAD")
    assert (response.code, response.headers["Allow"]) == (405, "POST")


# --- history


async def test_history_of_a_public_topic_is_oldest_first_and_pages_backwards(house: House):
    written = [
        envelope(n, at=n - 10_000, topic="news.world", body=b'{"n":%d}' % n) for n in range(5)
    ]
    await house.store.write(written)
    newest = body_of(await house.fetch("/history?topic=news.world&limit=2"))
    assert [m["body"]["n"] for m in newest["messages"]] == [3, 4]
    before = newest["messages"][0]["id"]
    older = body_of(await house.fetch(f"/history?topic=news.world&limit=2&before={before}"))
    assert [m["body"]["n"] for m in older["messages"]] == [1, 2]
    assert older["topic"] == "news.world"


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("", 400),
        ("topic=sport.today", 404),
        ("topic=news..x", 404),
        ("topic=user.7", 403),
        ("topic=desk.plan", 403),
        ("topic=news.world&limit=0", 400),
        ("topic=news.world&limit=201", 400),
        ("topic=news.world&limit=9999999999999", 400),
        ("topic=news.world&limit=x", 400),
        ("topic=news.world&before=x", 400),
    ],
)
async def test_what_isnt_there_or_not_public_isnt_shown(house: House, query: str, status: int):
    response = await house.fetch(f"/history?{query}")
    assert response.code == status
    assert set(body_of(response)["error"]) == {"reason", "detail"}


async def test_what_is_no_json_is_left_out_of_a_history_and_counted(house: House):
    name = "newsfabric_store_unreadable_rows_total"

    async def counted() -> float:
        lines = (await metrics(house)).splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))

    bodies = [b"1", b"2", b'{"cut off', b"\xff", b"", b"[1]junk", b"3"]
    written = [
        envelope(n, at=n - 10_000, topic="news.world", body=body) for n, body in enumerate(bodies)
    ]
    await house.store.write(written)
    before = await counted()
    answer = body_of(await house.fetch("/history?topic=news.world&limit=3"))
    found = answer["messages"]
    assert [message["body"] for message in found] == [1, 2, 3]
    assert answer["missing"] == [one.id for one in written[2:6]]
    assert await counted() > before
    older = body_of(await house.fetch(f"/history?topic=news.world&before={found[1]['id']}"))
    assert [message["body"] for message in older["messages"]] == [1]
    assert "missing" not in older
    one = body_of(await house.fetch("/history?topic=news.world&limit=1"))
    assert "missing" not in one, "they are older, and a reader that asks for those gets them listed"


@pytest.mark.parametrize("many", [4, 100])
async def test_bad_rows_hide_nothing_that_is_behind_them(house: House, many: int):
    good = envelope(0, at=-10_000, topic="news.world", body=b"1")
    bad = [envelope(n, at=n - 10_000, topic="news.world", body=b"{") for n in range(1, many + 1)]
    await house.store.write([good, *bad])
    answer = body_of(await house.fetch("/history?topic=news.world&limit=1"))
    assert [message["body"] for message in answer["messages"]] == [1]
    assert answer["missing"] == [one.id for one in bad]


async def test_of_a_topic_of_nothing_but_bad_rows_some_are_named_and_the_others_before_them(
    house: House,
):
    good = envelope(0, at=-10_000, topic="news.world", body=b"1")
    bad = [envelope(n, at=n - 10_000, topic="news.world", body=b"{") for n in range(1, 301)]
    await house.store.write([good, *bad])
    answer = body_of(await house.fetch("/history?topic=news.world&limit=1"))
    assert answer["messages"] == []
    assert answer["missing"] == [one.id for one in bad[-256:]]
    older = body_of(await house.fetch(f"/history?topic=news.world&before={answer['missing'][0]}"))
    assert [message["body"] for message in older["messages"]] == [1]
    assert older["missing"] == [one.id for one in bad[:-256]]


async def test_without_the_store_history_is_503(house: House, monkeypatch: pytest.MonkeyPatch):
    async def away(*_: Any, **__: Any) -> None:
        raise StoreUnavailable("gone")

    monkeypatch.setattr(house.store, "history", away)
    assert (await house.fetch("/history?topic=news.world")).code == 503


# --- catching up


def missed(response: HTTPResponse) -> list[Any]:
    return [message["body"] for message in body_of(response)["messages"]]


async def test_what_a_reader_missed_is_answered_as_a_gateway_answers_it(house: House):
    async with opened_box("tornado") as box:
        house.report(sse_url=f"http://{box.host}/events")
        await until(lambda: house.service.boxes.count(now=0.0) == 1)
        box.tick()
        beginning = await house.fetch("/history?topic=news.breaking&after=")
        after = body_of(beginning)["position"]
        assert (beginning.code, missed(beginning)) == (200, [])
        async with box.reader("news.breaking") as reader:
            for n in range(5):
                box.publish(body=n)
            await reader.hear_bodies(5)
        query = f"/history?topic=news.breaking&limit=3&after={after}"
        first = await house.fetch(query)
        theirs = await box.request("GET", query)
        assert body_of(first) == theirs.json()
        assert (missed(first), body_of(first)["recovered"]) == ([0, 1, 2], True)
        after = body_of(first)["position"]
        rest = await house.fetch(f"/history?topic=news.breaking&after={after}")
        assert (missed(rest), body_of(rest)["more"]) == ([3, 4], False)
        assert rest.headers["Access-Control-Allow-Origin"] == "*"
        assert "no-store" in rest.headers["Cache-Control"]


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("topic=news.breaking&after=nonsense", 400),
        ("topic=no.such&after=", 404),
        ("topic=user.7&after=", 401),
        ("topic=news.breaking&after=&limit=0", 400),
    ],
)
async def test_what_a_gateway_refuses_is_refused(house: House, query: str, status: int):
    async with opened_box("tornado") as box:
        house.report(sse_url=f"http://{box.host}/events")
        await until(lambda: house.service.boxes.count(now=0.0) == 1)
        response = await house.fetch(f"/history?{query}")
        theirs = await box.request("GET", f"/history?{query}")
    assert (response.code, theirs.status) == (status, status)
    assert body_of(response) == theirs.json()


@pytest.mark.promise("M4")
async def test_nobody_reads_anothers_messages_through_the_frontdesk(house: House, tmp_path: Path):
    letter = envelope(1, at=0, topic="user.7", body=b'"secret"')
    await house.store.write([letter])
    settings = TokenSettings(keys=keys_file(tmp_path), audience=AUDIENCE, issuer=ISSUER)
    async with opened_box("tornado", store=house.store, tokens=settings) as box:
        house.report(sse_url=f"http://{box.host}/events")
        await until(lambda: house.service.boxes.count(now=0.0) == 1)
        bearer = {"Authorization": f"Bearer {token('42', topics=['#', 'user.7'])}"}
        for topic in SPELLINGS:
            # A box that no longer reports isn't asked.
            house.report(sse_url=f"http://{box.host}/events")
            named = quote(topic, safe="")
            for more in ("", "&limit=5", f"&before={letter.id}", "&after=", "&after=&limit=5"):
                path = f"/history?topic={named}{more}"
                for headers in ({}, bearer):
                    response = await house.fetch(path, headers=headers)
                    assert response.code in (400, 401, 403, 404), path
                    assert b"secret" not in response.body


async def test_a_gateway_that_doesnt_answer_is_passed_over(house: House):
    async with opened_box("tornado") as box:
        for name in ("a", "b"):
            house.report(box=name, sse_url="http://127.0.0.1:1/events", connections=99)
        house.report(box="c", sse_url=f"http://{box.host}/events")
        await until(lambda: house.service.boxes.count(now=0.0) == 3)
        for _ in range(5):
            assert (await house.fetch("/history?topic=news.breaking&after=")).code == 200


@pytest.mark.parametrize("sse_url", [None, "http://127.0.0.1:1/events"])
async def test_without_a_gateway_that_answers_it_is_503(house: House, sse_url: str | None):
    if sse_url is not None:
        house.report(sse_url=sse_url)
        await until(lambda: house.service.boxes.count(now=0.0) == 1)
    response = await house.fetch("/history?topic=news.breaking&after=")
    assert (response.code, response.headers["Retry-After"]) == (503, "1")
    assert body_of(response)["error"]["reason"] == "unavailable"


async def test_after_and_before_are_two_questions(house: House):
    assert (await house.fetch("/history?topic=news.world&after=x&before=y")).code == 400


# --- pages and health


async def test_the_page_of_metrics_has_an_anchor_for_each(house: House):
    page = await house.fetch("/board/metrics")
    assert page.code == 200
    assert page.headers["Content-Type"] == "text/html"
    assert b'id="newsfabric_gateway_delay_seconds"' in page.body
    assert "default-src 'self'" in page.headers["Content-Security-Policy"]


async def test_the_page_is_served_with_a_policy_and_revalidated(house: House):
    page = await house.fetch("/")
    assert page.code == 200
    assert page.headers["Content-Type"].startswith("text/html")
    assert "default-src 'self'" in page.headers["Content-Security-Policy"]
    again = await house.fetch("/", headers={"If-None-Match": page.headers["Etag"]})
    assert again.code == 304
    assert page.headers["Cache-Control"] == "no-cache"


@pytest.mark.parametrize(
    "name", ["reader.js", "reader.css", "sockjs.min.js", "newsfabric.js", "newsfabric.mjs"]
)
async def test_what_the_page_loads_is_there(house: House, name: str):
    assert (await house.fetch(f"/static/{name}")).code == 200


@pytest.mark.parametrize(
    "path", ["/nothing", "/static/none.js", "/static/../boxes.py", "/static/%2e%2e/__init__.py"]
)
async def test_nothing_else_is_served(house: House, path: str):
    assert (await house.fetch(path)).code in (403, 404)


async def test_it_is_ready_while_both_links_are_up(house: House):
    assert (await house.fetch("/healthz/ready")).code == 200
    house.core.cut()
    response = await house.fetch("/healthz/ready")
    assert response.code == 503
    assert json.loads(response.body)["waiting_for"] == ["core"]
    assert (await house.fetch("/healthz/live")).code == 200


@pytest.mark.sockets
@pytest.mark.parametrize("missing", ["core", "client"])
async def test_it_isnt_ready_before_all_that_it_needs_is_there(topics: TopicTable, missing: str):
    client, core = client_cluster(), core_cluster()
    away = StubBroker()
    away.cut()
    clusters = {"core": core, "client": client} | {missing: away}
    service = FrontdeskService(
        dataclasses.replace(SETTINGS, admin_port=None),
        fabric=FABRIC,
        topics=topics,
        core=clusters["core"].connect(),
        client=[clusters["client"].connect()],
        store=MemoryStore(topics),
    )
    stop = asyncio.Event()
    serving = asyncio.create_task(service.serve(stop))
    await service.listening.wait()
    assert service.readiness() == Readiness(False, (missing,))
    stop.set()
    await serving


async def test_it_counts_what_it_does(house: House):
    await house.fetch("/endpoints.json")
    admin = f"http://127.0.0.1:{house.service.admin_port}"
    assert 'newsfabric_frontdesk_endpoints_answers_total{gateways="none"}' in await metrics(house)
    assert (await AsyncHTTPClient().fetch(f"{admin}/healthz/ready")).code == 200
    assert (await house.fetch("/metrics")).code == 404


async def test_one_address_may_not_ask_for_history_without_end(topics: TopicTable):
    few = dataclasses.replace(SETTINGS, history_rate=Rate(burst=2, per_second=0.01))
    async with open_house(topics, few) as house:
        answers = [await house.fetch("/history?topic=news.world") for _ in range(3)]
        assert [answer.code for answer in answers] == [200, 200, 429]
        assert json.loads(answers[-1].body)["error"]["reason"] == "too_many_requests"
        assert 1 <= int(answers[-1].headers["Retry-After"]) <= 100
        assert (await house.fetch("/history?topic=news.world&after=")).code == 429
