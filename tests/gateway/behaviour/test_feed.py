"""Messages from the box's broker."""

from __future__ import annotations

import asyncio
import dataclasses
import time
import uuid

import pytest
from gateways import Box, opened_box, until
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from shovelled import shovelled

from gateway.memory.hub import HubLimits
from newsfabric.amqp.message import Message, Properties
from newsfabric.messages.envelope import encode


def labelled(**properties: object) -> Message:
    return Message("news.breaking", b"{}", Properties(**properties))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "message",
    [
        labelled(),
        labelled(headers={"id": 1}),
        labelled(headers={"id": "x", "seq": -1}),
        Message("_fabric.tick.oregon", b"{", Properties(type="tick")),
        Message("_fabric.tick.oregon", b"{}", Properties(type="load")),
        Message("_fabric.unheard.of", b"", Properties()),
    ],
)
async def test_what_is_not_ours_is_dropped_and_the_feed_goes_on(box: Box, message: Message) -> None:
    async with box.reader("news.breaking") as reader:
        box.send(message)
        box.publish(body="after")
        assert await reader.hear_bodies(1) == ["after"]
    assert box.broker.depth("gateway") == 0


@pytest.mark.parametrize("body", [b"", b"{", b'1}, {"x":2', b"\xff"])
async def test_a_body_that_is_not_json_never_reaches_a_reader(box: Box, body: bytes) -> None:
    before = await box.metric("newsfabric_gateway_undecodable_messages_total")
    async with box.reader("news.breaking") as reader:
        message = encode(box.envelope())
        box.send(dataclasses.replace(message, body=body))
        box.publish(body="after")
        assert await reader.hear_bodies(1) == ["after"]
    assert await box.metric("newsfabric_gateway_undecodable_messages_total") == before + 1


async def test_a_topic_that_the_gateway_doesnt_know_is_counted(box: Box) -> None:
    before = await box.metric("newsfabric_gateway_unknown_topic_messages_total")
    async with box.reader("news.breaking") as reader:
        box.publish("weather.oslo")
        box.publish(body="after")
        assert await reader.hear_bodies(1) == ["after"]
    assert await box.metric("newsfabric_gateway_unknown_topic_messages_total") == before + 1


async def test_a_gateway_is_ready_while_its_own_regions_ticks_come(engine: str) -> None:
    async with opened_box(engine, feed_fresh=2.0) as box:
        assert (await box.request("GET", "/healthz/live")).status == 200
        waiting = await box.request("GET", "/healthz/ready")
        assert (waiting.status, waiting.json()["waiting_for"]) == (503, ["feed"])
        box.tick("dublin")
        async with box.reader() as reader:
            await reader.is_up_to_date()
        assert (await box.request("GET", "/healthz/ready")).status == 503
        box.tick("oregon")
        await until(lambda: box.gateway.core.readiness().ready)
        assert (await box.request("GET", "/healthz/ready")).status == 200
        await until(lambda: not box.gateway.core.readiness().ready)


async def test_readers_stay_while_the_broker_is_away(box: Box) -> None:
    async with box.reader("news.breaking") as reader:
        box.publish(body=1)
        assert await reader.hear_bodies(1) == [1]
        box.broker.cut()
        await reader.is_up_to_date()
        box.publish(body=2)
        await box.broker.heal()
        box.publish(body=3)
        assert await reader.hear_bodies(2) == [2, 3]


async def test_deliveries_are_acknowledged_after_their_fan_out(box: Box) -> None:
    over = 'newsfabric_gateway_publications_total{class="gold"}'
    before = await box.metric(over)
    for n in range(50):
        box.publish(body=n)
    async with box.reader("news.breaking") as reader:
        box.publish(body="end")
        assert (await reader.hear_bodies(1)) == ["end"]
    while await box.metric(over) < before + 51:
        """Each look is a request, so others get their turns."""
    box.broker.cut()
    assert box.broker.depth("gateway") == 0


async def test_metrics_tell_what_was_done(box: Box) -> None:
    async def values() -> list[float]:
        samples = [
            'newsfabric_gateway_connects_total{transport="websocket"}',
            'newsfabric_gateway_deliveries_total{transport="websocket"}',
            'newsfabric_gateway_publications_total{class="gold"}',
            "newsfabric_gateway_duplicates_total",
            'newsfabric_gateway_errors_total{code="107"}',
            'newsfabric_gateway_delay_seconds_count{class="gold",origin="oregon",way="direct"}',
        ]
        return [await box.metric(f"{sample}") for sample in samples]

    before = await values()
    async with box.reader("news.breaking") as a, box.reader("news.breaking") as b:
        sent = box.publish()
        box.send(encode(sent))
        await asyncio.gather(a.hear(), b.hear())
        await a.answer_to(action="shout")
        assert await box.metric('newsfabric_gateway_readers{transport="websocket"}') == 2
        assert await box.metric("newsfabric_gateway_logs") == 1
    after = await values()
    assert [y - x for x, y in zip(before, after, strict=True)] == [2, 2, 1, 1, 1, 2]


def delays(of: str, *, origin: str) -> str:
    return f'newsfabric_gateway_delay_seconds_{of}{{class="gold",origin="{origin}",way="direct"}}'


@pytest.mark.parametrize("hours", [-30, 0, 30])
async def test_delay_is_from_the_router_to_each_readers_socket_whatever_the_publisher_says(
    box: Box, hours: int
) -> None:
    origin = uuid.uuid4().hex
    now_ms = int(time.time() * 1000)
    said_ms = now_ms + hours * 3_600_000
    async with box.reader("news.breaking") as a, box.reader("news.breaking") as b:
        box.publish(
            origin=origin, path=(f"publish.a.0@{now_ms - 5_000}", "r@1"), published_ms=said_ms
        )
        await asyncio.gather(a.hear(), b.hear())
        while await box.metric(delays("count", origin=origin)) < 2:
            """Each look is a request, so others get their turns."""
    assert 10 < await box.metric(delays("sum", origin=origin)) < 60
    for bound, many in (("4.0", 0), ("+Inf", 2)):
        labels = f'class="gold",le="{bound}",origin="{origin}",way="direct"'
        assert await box.metric(f"newsfabric_gateway_delay_seconds_bucket{{{labels}}}") == many


async def test_what_a_socket_does_not_take_at_once_is_held_and_not_measured(box: Box) -> None:
    origin = uuid.uuid4().hex
    held = "newsfabric_gateway_held_deliveries_total"
    made = 'newsfabric_gateway_deliveries_total{transport="websocket"}'
    held_before, made_before = await box.metric(held), await box.metric(made)
    async with box.opened(receive_buffer=4096) as stalled, box.reader("news.breaking") as other:
        await stalled.upgrade()
        stalled.send_verb(action="subscribe", topic="news.breaking")
        await stalled.read_until(b"subscribed")
        for n in range(80):
            box.publish(origin=origin, body={"n": n, "text": "x" * 40_000})
        await other.hear_bodies(80)
        while await box.metric(made) < made_before + 160:
            """Each look is a request, so others get their turns."""
        waiting = await box.metric(held) - held_before
        assert waiting > 0
        assert await box.metric(delays("count", origin=origin)) == 160 - waiting


async def test_an_exemplar_names_a_message_for_who_takes_openmetrics(box: Box) -> None:
    origin = uuid.uuid4().hex
    async with box.reader("news.breaking") as reader:
        sent = box.publish(origin=origin)
        await reader.hear()
        while not await box.metric(delays("count", origin=origin)):
            """Each look is a request, so others get their turns."""
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    page = await box.request("GET", "/metrics", port=box.gateway.admin_port, **accept)
    assert page.headers["content-type"].startswith("application/openmetrics-text")
    families = {family.name: family for family in openmetrics(page.body.decode())}
    samples = families["newsfabric_gateway_delay_seconds"].samples
    named = [one.exemplar.labels for one in samples if one.exemplar is not None]
    assert {"id": sent.id} in named


@pytest.mark.promise("S2")
async def test_of_two_bodies_of_a_message_readers_get_the_first_and_it_is_counted(box: Box) -> None:
    before = await box.metric("newsfabric_gateway_differing_copies_total")
    first = box.envelope(body="first")
    second = dataclasses.replace(first, body=b'"second"', router="oregon-router-2")
    async with box.reader("news.breaking") as reader:
        for each in (first, second):
            box.send(encode(each))
        box.publish(body="after")
        assert await reader.hear_bodies(2) == ["first", "after"]
    assert await box.metric("newsfabric_gateway_differing_copies_total") == before + 1


async def test_identities_that_had_to_go_early_are_counted(engine: str) -> None:
    early = "newsfabric_gateway_evicted_identities_total"
    async with opened_box(engine, hub=HubLimits(identities=4)) as box:
        before = await box.metric(early)
        async with box.reader("news.breaking") as reader:
            for n in range(5):
                box.publish(body=n)
            assert await reader.hear_bodies(5) == [0, 1, 2, 3, 4]
        # The older half of one group; with the native engine, in both processes.
        gone = 2 if engine == "tornado" else 4
        async with asyncio.timeout(60):
            while await box.metric(early) < before + gone:
                """Each look is a request, so others get their turns."""


async def test_the_first_of_a_messages_copies_wins_and_its_way_is_remembered(box: Box) -> None:
    ways = (["outbound.dublin.1", "postoffice.2"], ["postoffice.1"], ["postoffice.2"])
    made = box.envelope(body="once", message_id="raced")
    before = [await box.metric(_copies(way, place)) for way, place in _PLACES]
    async with box.reader("news.breaking") as reader:
        for way in ways:
            message = encode(made)
            headers = shovelled(*way, **message.properties.headers)
            properties = dataclasses.replace(message.properties, headers=headers)
            box.send(dataclasses.replace(message, properties=properties))
        box.publish(body="after")
        assert await reader.hear_bodies(2) == ["once", "after"]
    page = await box.request("GET", "/trace/raced", port=box.gateway.admin_port)
    (seen,) = page.json()["sightings"]
    assert [copy["way"] for copy in seen["copies"]] == list(ways)
    assert (seen["copies"][0]["id"], seen["copies"][0]["seq"]) == (made.id, made.seq)
    assert "delivered" in seen["steps"]
    after = [await box.metric(_copies(way, place)) for way, place in _PLACES]
    assert [b - a for a, b in zip(before, after, strict=True)] == [1, 1, 1]


_PLACES = (
    ("outbound.dublin.1 postoffice.2", "first"),
    ("postoffice.1", "later"),
    ("postoffice.2", "later"),
)


def _copies(way: str, place: str) -> str:
    return f'newsfabric_gateway_copies_total{{place="{place}",way="{way}"}}'
