"""/events as an EventSource sees it."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Mapping
from typing import Any

import pytest
from gateways import Box, RawSocket, Response, opened_box, until

from gateway.readers.admission import AdmissionDecision
from gateway.transports import sse
from gateway.wire.outbox import OutboxLimits


async def opened_stream(raw: RawSocket, query: str, **headers: str) -> Response:
    raw.send_request("GET", f"/events?{query}", **headers)
    return Response.of(await raw.read_until(b"\r\n\r\n"))


async def next_event(raw: RawSocket) -> tuple[str | None, dict[str, Any]]:
    """Return the id (None if it has none) and data of the next event; comments are skipped."""
    while True:
        lines = (await raw.read_until(b"\n\n")).decode().strip("\n").split("\n")
        fields = dict(line.split(": ", 1) for line in lines if not line.startswith(":"))
        if "data" in fields:
            return fields.get("id"), json.loads(fields["data"])


async def test_an_event_stream_says_what_it_is_and_when_to_come_back(box: Box) -> None:
    async with box.opened() as raw:
        head = await opened_stream(raw, "topic=news.breaking")
        assert head.status == 200
        assert head.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert head.headers["cache-control"] == "no-store, no-transform"
        assert head.headers["connection"] == "close"
        assert "transfer-encoding" not in head.headers
        assert await raw.read_until(b"\n\n") == b"retry: 2000\n\n"


async def test_messages_are_events_whose_id_is_the_position(box: Box) -> None:
    async with box.opened() as raw:
        await opened_stream(raw, "topic=news.a&topic=news.b&topic=news.a")
        replies = [(await next_event(raw))[1] for _ in range(2)]
        assert [(r["type"], r["topic"]) for r in replies] == [
            ("subscribed", "news.a"),
            ("subscribed", "news.b"),
        ]
        box.publish("news.b", body=b'{"text":\r\n"line\\nbreak \xe2\x80\xa8"}')
        id_, push = await next_event(raw)
        assert id_ == push["position"]
        assert push["body"] == {"text": "line\nbreak \u2028"}


@pytest.mark.parametrize("rewind", ["2", "5m"])
async def test_a_stream_can_begin_in_the_past(box: Box, rewind: str) -> None:
    await box.was_past([box.envelope(body=n) for n in range(2)])
    async with box.opened() as raw:
        await opened_stream(raw, f"topic=news.breaking&rewind={rewind}")
        pushes = [(await next_event(raw))[1] for _ in range(3)]
        assert [p.get("body") for p in pushes] == [None, 0, 1]


async def test_resuming_is_answered_honestly(box: Box) -> None:
    async with box.opened() as raw:
        await opened_stream(raw, "topic=news.a", Last_Event_ID="AQ")
        assert (await next_event(raw))[1]["recovered"] is False
    async with box.opened() as raw:
        await opened_stream(raw, "topic=news.a&last_event_id=AQ")
        assert (await next_event(raw))[1]["recovered"] is False


@pytest.mark.parametrize(
    ("query", "header"),
    [
        ("lastEventId={last}", None),
        ("last_event_id={last}", None),
        ("lastEventId={last}&last_event_id={first}", None),
        ("lastEventId=", "{last}"),
        ("lastEventId={first}", "{last}"),
    ],
)
async def test_a_stream_goes_on_behind_what_was_heard_last(
    box: Box, query: str, header: str | None
) -> None:
    async with box.opened() as raw:
        await opened_stream(raw, "topic=news.breaking")
        await next_event(raw)
        for n in range(2):
            box.publish(body=n)
        (first, _), (last, _) = await next_event(raw), await next_event(raw)
    for n in range(2, 5):
        box.publish(body=n)
    asked = query.format(first=first, last=last)
    headers = {} if header is None else {"Last_Event_ID": header.format(last=last)}
    async with box.opened() as raw:
        await opened_stream(raw, f"topic=news.breaking&{asked}", **headers)
        pushes = [(await next_event(raw))[1] for _ in range(4)]
        assert [p.get("body") for p in pushes] == [None, 2, 3, 4]
        assert pushes[0]["recovered"] is True


async def test_one_bad_topic_is_an_error_event_and_the_others_are_served(box: Box) -> None:
    async with box.opened() as raw:
        await opened_stream(raw, "topic=user.7&topic=news.a")
        pushes = [(await next_event(raw))[1] for _ in range(2)]
        assert [(p["type"], p["topic"]) for p in pushes] == [
            ("error", "user.7"),
            ("subscribed", "news.a"),
        ]


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("", 400, 107),
        ("topic=user.7", 401, 101),
        ("topic=weather.oslo", 404, 102),
        ("topic=news.*", 400, 107),
        ("topic=news.a&rewind=zebra", 400, 107),
        ("&".join(f"topic=news.t{n}" for n in range(129)), 400, 106),
    ],
)
async def test_a_stream_of_nothing_is_refused(box: Box, query: str, status: int, code: int) -> None:
    response = await box.request("GET", f"/events?{query}")
    assert response.status == status
    assert response.json()["code"] == code


async def test_a_comment_keeps_an_idle_stream_open(engine: str) -> None:
    async with opened_box(engine, heartbeat=0.05) as box, box.opened() as raw:
        await opened_stream(raw, "topic=news.a")
        await raw.read_until(b"\n:\n\n")


async def test_a_stream_whose_reader_acknowledges_nothing_ends(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse, "since_acknowledged", lambda _: 60.0)
    async with opened_box(engine, heartbeat=0.1) as box, box.opened() as raw:
        await opened_stream(raw, "topic=news.a")
        await raw.read_until(b'"code":4203')
        await until(lambda: not box.gateway.core.readers.open)


async def test_a_stream_that_takes_nothing_is_given_up(engine: str) -> None:
    limits = OutboxLimits(hard_bytes=300_000, soft_bytes=200_000)
    async with (
        opened_box(engine, heartbeat=0.1, outbox=limits) as box,
        box.opened(receive_buffer=4096) as raw,
    ):
        await opened_stream(raw, "topic=video.feed")
        await next_event(raw)
        for _ in range(20):
            box.publish("video.feed", body="x" * 60_000)
        await until(lambda: not box.gateway.core.readers.open)


async def test_pages_of_other_origins(engine: str) -> None:
    async with opened_box(engine, origins=("https://news.example",)) as box:
        evil = await box.request("GET", "/events?topic=news.a", Origin="https://evil.example")
        assert evil.status == 403
        assert "access-control-allow-origin" not in evil.headers
        async with box.opened() as raw:
            head = await opened_stream(raw, "topic=news.a", Origin="https://news.example")
            assert head.headers["access-control-allow-origin"] == "https://news.example"
            assert head.headers["vary"] == "Origin"
        asked = await box.request("OPTIONS", "/events", Origin="https://news.example")
        assert asked.status == 204
        assert "Last-Event-ID" in asked.headers["access-control-allow-headers"]


async def test_a_full_box_answers_503(engine: str) -> None:
    async with opened_box(engine, capacity=1) as box, box.reader():
        response = await box.request("GET", "/events?topic=news.a")
        assert response.status == 503
        assert int(response.headers["retry-after"]) > 0


async def test_the_last_event_of_a_drain_is_the_disconnect(engine: str) -> None:
    async with opened_box(engine) as box:
        raw_context = box.opened()
        raw = await raw_context.__aenter__()
        await opened_stream(raw, "topic=news.a")
        await next_event(raw)
    assert (await next_event(raw))[1]["code"] == 1012
    assert await raw.read_all() == b""
    await raw_context.__aexit__(None, None, None)


async def test_what_a_reader_sends_after_its_request_is_dropped(box: Box) -> None:
    async with box.opened() as raw:
        await opened_stream(raw, "topic=news.a")
        await next_event(raw)
        raw.send(b"x" * 300_000)
        await asyncio.sleep(0)
        box.publish("news.a", body=1)
        assert (await next_event(raw))[1]["body"] == 1


async def test_a_reader_who_breaks_off_before_the_answer_leaves_nothing(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reset arrives after the request was read, and before the socket is looked at again."""
    core, left = box.gateway.core, asyncio.Event()
    ask = core.admission.decide

    def reset_first(headers: Mapping[str, str]) -> AdmissionDecision:
        reader.close()
        left.set()
        return ask(headers)

    monkeypatch.setattr(core.admission, "decide", reset_first)
    reader = socket.create_connection(("127.0.0.1", box.gateway.port))
    linger = (1).to_bytes(4, "little") + (0).to_bytes(4, "little")
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    reader.sendall(b"GET /events?topic=news.breaking HTTP/1.1\r\nHost: x\r\n\r\n")
    await asyncio.wait_for(left.wait(), 60)
    monkeypatch.setattr(core.admission, "decide", ask)
    async with box.reader("news.breaking") as other:
        await other.is_up_to_date()
    assert not core.readers.open
    assert not core.readers.closing
