"""The contract of all publishers' libraries, in any language, against real brokers.

A router of a few lines stands for the fabric, so that it can be deaf, slow, or reject messages.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
from collections.abc import AsyncIterator

import pytest
from client_programs import CONTRACT, Program, program
from client_regions import ClientRegions, settings

from newsfabric.amqp import Message
from newsfabric.settings import Node
from newsfabric.topics import PublisherRights

# Maven may take a minute to compile the Java library on a busy machine.
pytestmark = [pytest.mark.broker, pytest.mark.timeout(400)]

SILENCE = 0.3
# Longer than the time limit of a program.
FOR_EVER = 600.0
MESSAGE = {"topic": "news.x", "body": '{"headline": "Hello"}'}


@pytest.fixture(scope="module", params=CONTRACT)
def publisher(request: pytest.FixtureRequest) -> Program:
    return program(request.param)


@pytest.fixture
async def regions(rabbitmq: Node) -> AsyncIterator[ClientRegions]:
    async with ClientRegions.on(rabbitmq) as made:
        yield made


async def test_each_given_field_of_a_message_is_on_the_wire(
    publisher: Program, regions: ClientRegions
) -> None:
    region = await regions("oregon")
    options = {
        "key": "story-1",
        "version": 2**40,
        "message_id": "m-1",
        "type": "story",
        "expiration": 60000,
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    }
    began = time.time()
    await publisher.run(settings(region), {**MESSAGE, "options": options})
    (message,) = region.seen
    properties = message.properties
    assert (message.topic, message.body) == ("news.x", b'{"headline": "Hello"}')
    assert properties.content_type == "application/json"
    assert (properties.message_id, properties.app_id, properties.type) == ("m-1", "cms", "story")
    assert properties.expiration == "60000"
    assert properties.delivery_mode == 1
    assert str(properties.reply_to).startswith("amq.gen-")
    headers = dict(properties.headers)
    stamp = headers.pop("timestamp_in_ms")
    assert began - 1 < stamp / 1000 < time.time() + 1
    assert properties.timestamp == stamp // 1000
    assert headers == {n: options[n] for n in ("key", "version", "traceparent")}


async def test_a_field_that_isnt_given_isnt_sent(
    publisher: Program, regions: ClientRegions
) -> None:
    region = await regions("oregon")
    await publisher.run(settings(region), MESSAGE, MESSAGE)
    one, two = (message.properties for message in region.seen)
    assert one.message_id
    assert one.message_id != two.message_id
    assert (one.type, one.expiration) == (None, None)
    assert set(one.headers) == {"timestamp_in_ms"}


async def test_who_knows_a_messages_id_can_not_answer_for_a_router(
    publisher: Program, regions: ClientRegions
) -> None:
    region = await regions("oregon")

    def forge(message: Message, _n: int) -> str:
        properties = message.properties
        known = dataclasses.replace(properties, correlation_id=properties.message_id)
        region.answer(dataclasses.replace(message, properties=known), "too_large")
        return "routed"

    region.answers = forge
    one = {**MESSAGE, "options": {"message_id": "m-1"}}
    result = await publisher.run(settings(region), one, one)
    assert [each["published"]["id"] for each in result] == 2 * ["id of m-1"]
    secrets = {message.properties.correlation_id for message in region.seen}
    assert len(secrets) == 2
    # 120 random bits, in any text form.
    assert min(len(str(secret)) for secret in secrets) >= 32


async def test_it_returns_what_the_receipt_says(publisher: Program, regions: ClientRegions) -> None:
    region = await regions("oregon")
    result = await publisher.run(settings(region), {**MESSAGE, "options": {"message_id": "m-1"}})
    assert result == [
        {
            "published": {
                "message_id": "m-1",
                "routed": True,
                "id": "id of m-1",
                "identity": "2743aa7ac79215815ab",
                "region": "oregon",
                "router": "oregon-router-1",
                "repeated": False,
            }
        }
    ]


async def test_pythons_asynchronous_publisher_returns_it_too(regions: ClientRegions) -> None:
    region = await regions("oregon")
    message = {**MESSAGE, "options": {"message_id": "m-1"}}
    (result,) = await program("python-async").run(settings(region), message)
    assert (result["published"]["routed"], result["published"]["id"]) == (True, "id of m-1")


async def test_asked_to_it_waits_for_the_brokers_confirm_only(
    publisher: Program, regions: ClientRegions
) -> None:
    region = await regions("oregon")
    region.answers = lambda _message, _n: None
    (result,) = await publisher.run(settings(region, receipt=False), MESSAGE)
    assert result["published"]["routed"] is False
    assert result["published"]["message_id"] == (await region.saw(1))[0].properties.message_id


async def test_without_a_receipt_it_sends_the_same_again(
    publisher: Program, regions: ClientRegions
) -> None:
    region = await regions("oregon")
    region.answers = lambda _message, n: None if n < 3 else "routed"
    (result,) = await publisher.run(settings(region, send_again=SILENCE), MESSAGE)
    assert result["published"]["routed"] is True
    assert len(region.seen) == 3
    assert len({m.properties.message_id for m in region.seen}) == 1
    assert len({(m.topic, m.body) for m in region.seen}) == 1


async def test_a_rejection_is_an_error_with_its_reason(
    publisher: Program, regions: ClientRegions
) -> None:
    region = await regions("oregon")
    region.answers = lambda _message, _n: "topic_not_allowed"
    result = await publisher.run(settings(region), MESSAGE)
    assert result == [{"error": "Rejected", "reason": "topic_not_allowed"}]
    assert len(region.seen) == 1


async def test_a_message_that_nobody_waits_for_is_an_error(
    publisher: Program, regions: ClientRegions
) -> None:
    region = await regions("oregon", queue=False)
    result = await publisher.run(
        settings(region), MESSAGE, {**MESSAGE, "options": {"receipt": False}}
    )
    assert result == [{"error": "Returned"}, {"error": "Returned"}]


async def test_what_one_region_returns_another_may_take(
    publisher: Program, regions: ClientRegions
) -> None:
    nobody, dublin = await regions("oregon", queue=False), await regions("dublin")
    (result,) = await publisher.run(settings(nobody, dublin), MESSAGE)
    assert result["published"]["region"] == "dublin"


async def test_no_answer_in_time_is_an_error_that_says_what_to_send_again(
    publisher: Program, regions: ClientRegions
) -> None:
    region = await regions("oregon")
    region.answers = lambda _message, _n: None
    message = {**MESSAGE, "options": {"message_id": "m-1"}}
    # Enough time to connect on a busy machine: otherwise the message isn't even sent.
    result = await publisher.run(settings(region, timeout=5.0), message)
    assert result == [{"error": "Unanswered", "message_id": "m-1", "sent": True}]


async def test_where_no_broker_can_be_reached_it_says_that_nothing_was_sent(
    publisher: Program, unused_tcp_port: int
) -> None:
    down = f"amqp://127.0.0.1:{unused_tcp_port}/%2F"
    message = {**MESSAGE, "options": {"message_id": "m-1"}}
    result = await publisher.run(settings(down, timeout=1.0), message)
    assert result == [{"error": "Unanswered", "message_id": "m-1", "sent": False}]


async def test_a_broker_that_is_down_is_passed_over(
    publisher: Program, regions: ClientRegions, unused_tcp_port: int
) -> None:
    region = await regions("oregon")
    down = f"amqp://127.0.0.1:{unused_tcp_port}/%2F"
    (result,) = await publisher.run(settings(f"{down}, {region.url}"), MESSAGE)
    assert result["published"]["region"] == "oregon"


async def test_a_region_that_is_down_is_passed_over(
    publisher: Program, regions: ClientRegions, unused_tcp_port: int
) -> None:
    dublin = await regions("dublin")
    down = f"amqp://127.0.0.1:{unused_tcp_port}/%2F"
    (result,) = await publisher.run(settings(down, dublin), MESSAGE)
    assert result["published"]["region"] == "dublin"


async def test_a_region_that_takes_and_doesnt_route_is_passed_over(
    publisher: Program, regions: ClientRegions
) -> None:
    oregon, dublin = await regions("oregon"), await regions("dublin")
    oregon.answers = lambda _message, _n: None
    # On a busy machine the program may be connected to dublin first.
    dublin.answers = lambda _message, _n: "routed" if oregon.seen else None
    (result,) = await publisher.run(settings(oregon, dublin, timeout=40.0, send_again=1.0), MESSAGE)
    assert result["published"]["region"] == "dublin"
    first, second = (await oregon.saw(1))[0], (await dublin.saw(1))[0]
    assert first.properties.message_id == second.properties.message_id


async def test_asked_to_it_publishes_to_two_regions_at_once(
    publisher: Program, regions: ClientRegions
) -> None:
    oregon, dublin = await regions("oregon"), await regions("dublin")
    oregon.answers = lambda _message, _n: None
    # Dublin answers once oregon has it, after a repeat: a program that starts slowly on a busy
    # machine may be connected to one of the two only.
    dublin.answers = lambda _message, _n: "routed" if oregon.seen else None
    given = settings(oregon, dublin, copies=2, timeout=40.0, send_again=1.0)
    message = {**MESSAGE, "options": {"message_id": "m-1"}}
    (result,) = await publisher.run(given, message)
    assert result["published"]["region"] == "dublin"
    seen = [*await oregon.saw(1), *dublin.seen]
    assert {message.properties.message_id for message in seen} == {"m-1"}


async def test_a_bounded_number_is_under_way(publisher: Program, regions: ClientRegions) -> None:
    region = await regions("oregon")
    held: list[Message] = []

    def hold(message: Message, _n: int) -> None:
        held.append(message)

    region.answers = hold
    given = settings(region, window=10, send_again=30.0)
    running = asyncio.create_task(publisher.run(given, {"topic": "news.x", "many": 30}))
    for batch in range(1, 4):
        await region.saw(10 * batch)
        await asyncio.sleep(0.1)  # an eleventh would arrive in this time
        assert len(region.seen) == 10 * batch
        for message in held:
            region.answer(message, "routed")
        held.clear()
    (result,) = await running
    assert result["failed"] == 0


async def test_a_connection_that_breaks_costs_nothing(
    publisher: Program, regions: ClientRegions
) -> None:
    region = await regions("oregon")
    region.answers = lambda _message, _n: None
    given = settings(region, send_again=2.0, timeout=60.0)
    running = asyncio.create_task(publisher.run(given, {"topic": "news.x", "many": 5}))
    first = {m.properties.message_id for m in await region.saw(5)}
    await region.cut_publishers()
    # Receipts are lost with their queue, so the messages are sent again.
    before = len(region.seen)
    region.answers = lambda _message, _n: "routed"
    (result,) = await running
    assert result["failed"] == 0
    assert {m.properties.message_id for m in region.seen[before:]} == first


async def test_what_isnt_a_receipt_is_ignored(publisher: Program, regions: ClientRegions) -> None:
    region = await regions("oregon")

    def babble(message: Message, _n: int) -> str:
        for body in (b"{}", b"no JSON", b"[1]", b'{"status": 7}'):
            strange = Message(str(message.properties.reply_to), body, message.properties)
            region.publisher.publish_nowait("", strange)
        return "routed"

    region.answers = babble
    (result,) = await publisher.run(settings(region), {**MESSAGE, "options": {"type": "receipt"}})
    assert result["published"]["routed"] is True


async def test_many_threads_worth_of_messages_all_arrive(
    publisher: Program, regions: ClientRegions
) -> None:
    region = await regions("oregon")
    (result,) = await publisher.run(settings(region), {"topic": "news.x", "many": 500})
    assert result["failed"] == 0
    assert len({m.properties.message_id for m in region.seen}) == 500
    assert json.loads(region.seen[0].body)["headline"] == "Comet seen over the bay"


async def test_what_its_broker_forbids_is_an_error_and_costs_the_others_nothing(
    publisher: Program, regions: ClientRegions
) -> None:
    region = await regions("oregon")
    url = await region.user(PublisherRights("cms", ("news.#",)))
    allowed, forbidden = MESSAGE, {**MESSAGE, "topic": "sport.x"}
    result = await publisher.run(settings(url, send_again=1.0), allowed, forbidden, allowed)
    assert result[1] == {"error": "Rejected", "reason": "publisher_not_allowed"}
    assert [result[n]["published"]["routed"] for n in (0, 2)] == [True, True]
    assert {message.topic for message in region.seen} == {"news.x"}
    # The broker confirms the user's name.
    assert {message.properties.user_id for message in region.seen} == {"cms"}


async def test_a_body_over_the_limit_is_an_error_at_once_and_is_not_sent(
    publisher: Program, regions: ClientRegions
) -> None:
    region = await regions("oregon")
    large = {**MESSAGE, "body": '"' + 65_535 * "x" + '"'}
    just = {**MESSAGE, "body": '"' + 65_534 * "x" + '"'}
    # If it were sent, the program would wait for a receipt for that long.
    result = await publisher.run(settings(region, timeout=FOR_EVER), MESSAGE, large, just)
    assert result[1] == {"error": "Rejected", "reason": "too_large"}
    assert [result[n]["published"]["routed"] for n in (0, 2)] == [True, True]
    assert sorted(len(message.body) for message in region.seen) == [21, 65_536]


async def test_a_key_that_no_frame_can_carry_is_an_error_at_once_and_is_not_sent(
    publisher: Program, regions: ClientRegions
) -> None:
    region = await regions("oregon")
    long = {**MESSAGE, "options": {"key": 200_000 * "x"}}
    result = await publisher.run(settings(region, timeout=FOR_EVER), MESSAGE, long)
    assert result[1] == {"error": "Rejected", "reason": "bad_header"}
    assert len(region.seen) == 1


async def test_what_a_broker_closes_the_channel_for_is_an_error_and_costs_the_others_nothing(
    publisher: Program, regions: ClientRegions
) -> None:
    region = await regions("oregon")
    bad = {**MESSAGE, "options": {"expiration": -1}}
    given = settings(region, send_again=1.0, timeout=FOR_EVER)
    result = await publisher.run(given, MESSAGE, bad, MESSAGE)
    assert result[1] == {"error": "Rejected", "reason": "bad_property"}
    assert [result[n]["published"]["routed"] for n in (0, 2)] == [True, True]
    assert {message.properties.expiration for message in region.seen} == {None}


async def test_a_broker_that_is_no_entrance_of_the_fabric_is_passed_over(
    publisher: Program, regions: ClientRegions
) -> None:
    nobody, dublin = await regions("oregon"), await regions("dublin")
    await nobody.without_exchange()
    (result,) = await publisher.run(settings(nobody, dublin, timeout=FOR_EVER), MESSAGE)
    assert result["published"]["region"] == "dublin"
    (result,) = await publisher.run(settings(nobody, timeout=FOR_EVER), MESSAGE)
    assert result == {"error": "Returned"}


@pytest.mark.parametrize("field", ["topic", "message_id", "type"])
async def test_what_amqp_cant_carry_is_an_error_and_costs_the_others_nothing(
    publisher: Program, regions: ClientRegions, field: str
) -> None:
    region = await regions("oregon")
    long = "x" * 256
    bad = {**MESSAGE, "topic": long} if field == "topic" else {**MESSAGE, "options": {field: long}}
    result = await publisher.run(settings(region), MESSAGE, bad, MESSAGE)
    assert result[1] == {"error": "argument"}
    assert [result[n]["published"]["routed"] for n in (0, 2)] == [True, True]
    assert len(region.seen) == 2
