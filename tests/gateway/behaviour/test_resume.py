"""Readers that resume: missed messages once, then live ones; and a true ``recovered``."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

import pytest
import websockets
from gateways import PATIENCE, TABLE, Box, Reader, opened_box, settle, until

from gateway.wire.position import HASH_BYTES, MAX_LOGS, MAX_SEQ, Listed, Position, decode, encode
from newsfabric.errors import StoreUnavailable
from newsfabric.messages.envelope import Envelope, identity_of_id, identity_text
from newsfabric.store.memory import MemoryStore

TOPIC = "news.breaking"


class CountingStore(MemoryStore):
    """A store that counts reads for resumes; it can be away, or run ``meanwhile`` during a read."""

    def __init__(self) -> None:
        super().__init__(TABLE)
        self.reads = 0
        self.away = False
        self.meanwhile: Callable[[], Awaitable[None]] | None = None

    async def since(self, topic: str, **asked: Any) -> list[Envelope]:
        self.reads += 1
        await asyncio.sleep(0)
        if self.away:
            raise StoreUnavailable("away")
        found = await super().since(topic, **asked)
        if self.meanwhile is not None:
            await self.meanwhile()
        return found


@pytest.fixture
def store() -> CountingStore:
    return CountingStore()


async def publish(box: Box, *bodies: Any, topic: str = TOPIC) -> list[Envelope]:
    """Send messages like a router: stored first."""
    sent = []
    for body in bodies:
        made = box.envelope(topic, body)
        await box.route(made)
        sent.append(made)
    return sent


async def hear_positions(reader: Reader, count: int) -> list[tuple[Any, str]]:
    pushes = [await reader.hear() for _ in range(count)]
    return [(push["body"], push["position"]) for push in pushes]


@pytest.mark.promise("D3")
async def test_a_reader_who_comes_back_gets_what_it_missed_and_then_what_is_live(
    engine: str, store: CountingStore
) -> None:
    async with opened_box(engine, store=store) as box:
        async with box.reader(TOPIC) as reader:
            await publish(box, 1, 2)
            (_, first), (_, last) = await hear_positions(reader, 2)
        await publish(box, 3, 4)
        async with box.reader() as reader:
            resumed = await reader.subscribe(TOPIC, position=last)
            assert resumed["recovered"] is True
            assert await reader.hear_bodies(2) == [3, 4]
            await publish(box, 5)
            assert await reader.hear_bodies(1) == [5]
        async with box.reader() as reader:
            assert (await reader.subscribe(TOPIC, position=first))["recovered"] is True
            assert await reader.hear_bodies(4) == [2, 3, 4, 5]
            await reader.is_up_to_date()


async def test_nothing_missed_is_recovered_too(engine: str, store: CountingStore) -> None:
    async with opened_box(engine, store=store) as box:
        async with box.reader() as reader:
            fresh = await reader.subscribe(TOPIC)
            assert fresh["recovered"] is False
        async with box.reader() as reader:
            again = await reader.subscribe(TOPIC, position=fresh["position"])
            assert again["recovered"] is True
            await reader.is_up_to_date()


@pytest.mark.promise("D3")
async def test_a_position_is_good_on_another_gateway_in_another_region(
    engine: str, store: CountingStore
) -> None:
    async with opened_box(engine, store=store) as box:
        async with box.reader(TOPIC) as reader:
            sent = await publish(box, 1)
            ((_, position),) = await hear_positions(reader, 1)
        sent += await publish(box, 2, 3)
    async with opened_box(engine, store=store, region="dublin") as other:
        # It receives the last message as another router's copy.
        copy = dataclasses.replace(sent[2], router="dublin-router-1", origin="dublin", seq=70)
        other.send_envelope(copy)
        async with other.reader() as reader:
            resumed = await reader.subscribe(TOPIC, position=position)
            assert resumed["recovered"] is True
            assert sorted(await reader.hear_bodies(2)) == [2, 3]
            await reader.is_up_to_date()


async def test_a_crowd_that_comes_back_to_a_fresh_gateway_costs_one_read(
    engine: str, store: CountingStore
) -> None:
    positions = []
    async with opened_box(engine, store=store) as box, box.reader(TOPIC) as reader:
        sent = await publish(box, *range(5))
        positions = [position for _, position in await hear_positions(reader, 5)]
    store.reads = 0
    async with opened_box(engine, store=store) as fresh, contextlib.AsyncExitStack() as stack:
        readers = [await stack.enter_async_context(fresh.reader()) for _ in range(20)]

        async def comes(n: int, reader: Reader) -> list[Any]:
            resumed = await reader.subscribe(TOPIC, position=positions[n % 5])
            assert resumed["recovered"] is True
            return await reader.hear_bodies(4 - n % 5)

        got = await asyncio.gather(*(comes(n, reader) for n, reader in enumerate(readers)))
        assert got == [list(range(n % 5 + 1, 5)) for n in range(20)]
        assert store.reads == 1
        assert len(sent) == 5


async def test_what_the_store_has_before_the_feed_comes_once_with_the_feed(
    engine: str, store: CountingStore
) -> None:
    async with opened_box(engine, store=store) as box:
        async with box.reader() as reader:
            position = (await reader.subscribe(TOPIC))["position"]
        made = box.envelope(TOPIC, "once")
        await store.write([made])
        async with box.reader() as reader:
            resumed = await reader.subscribe(TOPIC, position=position)
            assert resumed["recovered"] is True
            box.send_envelope(made)
            box.send_envelope(dataclasses.replace(made, router="dublin-router-1", seq=9))
            await publish(box, "after")
            assert await reader.hear_bodies(2) == ["once", "after"]


@pytest.mark.parametrize("path", ["websocket", "xhr"])
async def test_sockjs_resumes_too(engine: str, store: CountingStore, path: str) -> None:
    async with opened_box(engine, store=store) as box:
        async with box.reader() as reader:
            position = (await reader.subscribe(TOPIC))["position"]
        await publish(box, 1, 2)
        verb = json.dumps({"action": "subscribe", "topic": TOPIC, "position": position})
        frames: list[str] = []
        if path == "websocket":
            url = f"ws://{box.host}/sockjs/000/s/websocket"
            async with websockets.connect(url) as socket:
                assert await asyncio.wait_for(socket.recv(), PATIENCE) == "o"
                await socket.send(json.dumps([verb]))
                while "".join(frames).count('\\"body\\"') < 2:
                    frames.append(str(await asyncio.wait_for(socket.recv(), PATIENCE)))
        else:
            await box.request("POST", "/sockjs/000/s/xhr")
            await box.request("POST", "/sockjs/000/s/xhr_send", json.dumps([verb]).encode())
            while "".join(frames).count('\\"body\\"') < 2:
                page = await box.request("POST", "/sockjs/000/s/xhr")
                frames.append(page.body.decode())
        pushes = [json.loads(text) for frame in frames for text in json.loads(frame.strip()[1:])]
        assert pushes[0]["recovered"] is True
        assert [push["body"] for push in pushes[1:]] == [1, 2]


async def test_an_answer_that_isnt_there_yet_doesnt_move_the_position(
    engine: str, store: CountingStore
) -> None:
    async with opened_box(engine, store=store) as box:
        async with box.reader() as reader:
            position = (await reader.subscribe(TOPIC))["position"]
        await publish(box, 1)
        async with box.reader() as reader:
            resumed = await reader.subscribe(TOPIC, position=position)
            assert resumed["position"] == position
            ((_, moved),) = await hear_positions(reader, 1)
        async with box.reader() as reader:
            resumed = await reader.subscribe(TOPIC, position=moved)
            assert resumed["recovered"] is True
            await reader.is_up_to_date()


@pytest.mark.promise("D4")
async def test_a_reader_learns_when_memory_and_store_cant_answer(
    engine: str, store: CountingStore
) -> None:
    async with opened_box(engine, store=store) as box:
        async with box.reader() as reader:
            position = (await reader.subscribe(TOPIC))["position"]
        # One more than the topic keeps.
        await publish(box, *range(11))
        store.away = True
        async with box.reader() as reader:
            resumed = await reader.subscribe(TOPIC, position=position)
            assert (resumed["recovered"], resumed["reason"]) == (False, "store")
            # Known messages are sent all the same.
            assert await reader.hear_bodies(10) == [*range(1, 11)]
            await publish(box, "live")
            assert await reader.hear_bodies(1) == ["live"]


async def test_more_than_one_read_may_take_is_a_gap_and_the_newest_come(
    engine: str, store: CountingStore
) -> None:
    async with opened_box(engine, store=store) as box:
        async with box.reader() as reader:
            position = (await reader.subscribe(TOPIC))["position"]
        await publish(box, *range(30))
    async with opened_box(engine, store=store, resume_rows=5) as box, box.reader() as reader:
        resumed = await reader.subscribe(TOPIC, position=position)
        assert (resumed["recovered"], resumed["reason"]) == (False, "too_many")
        gaps = 'newsfabric_gateway_resumes_total{reason="too_many",result="gap"}'
        assert await box.metric(gaps) >= 1
        assert await reader.hear_bodies(5) == [*range(25, 30)]
        await reader.is_up_to_date()


async def test_more_than_a_replay_may_hold_is_a_gap_and_the_newest_come(
    engine: str, store: CountingStore
) -> None:
    async with opened_box(engine, store=store, replay_bytes=4_000) as box:
        async with box.reader() as reader:
            position = (await reader.subscribe(TOPIC))["position"]
        await publish(box, *("x" * 1_000 for _ in range(5)))
        async with box.reader() as reader:
            resumed = await reader.subscribe(TOPIC, position=position)
            assert (resumed["recovered"], resumed["reason"]) == (False, "too_large")
            assert resumed["position"] != position
            assert await reader.hear_bodies(3) == ["x" * 1_000] * 3
            await reader.is_up_to_date()


async def test_a_gap_is_filled_by_the_rewind_that_was_asked_for(
    engine: str, store: CountingStore
) -> None:
    async with opened_box(engine, store=store) as box:
        await publish(box, 1, 2, 3)
        async with box.reader() as reader:
            old = encode(Position(1_000, {}))
            resumed = await reader.subscribe(TOPIC, position=old, rewind=2)
            assert (resumed["recovered"], resumed["reason"]) == (False, "expired")
            assert await reader.hear_bodies(2) == [2, 3]


async def test_a_burst_while_the_store_is_read_is_no_gap(engine: str, store: CountingStore) -> None:
    async with opened_box(engine, store=store) as box:
        async with box.reader() as reader:
            position = (await reader.subscribe(TOPIC))["position"]
        await publish(box, -1)
    async with opened_box(engine, store=store) as fresh, fresh.reader() as reader:
        fresh.numbers = box.numbers

        async def burst() -> None:
            # More than the topic keeps, during each read.
            memory = fresh.gateway.core.hub.memory(TOPIC)
            arrived = memory.arrived
            await publish(fresh, *range(30))
            await until(lambda: memory.arrived == arrived + 30)

        store.meanwhile = burst
        resumed = await reader.subscribe(TOPIC, position=position)
        assert (resumed["recovered"], store.reads) == (True, 1)
        assert await reader.hear_bodies(31) == [*range(-1, 30)]
        await reader.is_up_to_date()
        await publish(fresh, 30)
        assert await reader.hear_bodies(1) == [30]
        memory = fresh.gateway.core.hub.memory(TOPIC)
        assert len(list(memory.messages(time.time()))) == memory.policy.keep


async def test_a_rewind_instead_begins_where_it_did_when_it_was_asked_for(
    engine: str, store: CountingStore
) -> None:
    async with opened_box(engine, store=store) as box:
        # One more than the topic keeps.
        await publish(box, *range(11))
        async with box.reader() as reader:
            old = encode(Position(int((time.time() - 700) * 1000), {}))
            store.away = True
            # The answer is sent later than this reaches back.
            resumed = await reader.subscribe(TOPIC, position=old, rewind="1s")
            assert resumed["recovered"] is False
            assert await reader.hear_bodies(10) == [*range(1, 11)]


async def test_the_newest_of_each_key_come_only_to_those_who_missed_something(
    engine: str, store: CountingStore
) -> None:
    async with opened_box(engine, store=store) as box:
        await box.route(box.envelope("news.latest", "old", key="story", version=1))
        async with box.reader() as reader:
            position = (await reader.subscribe("news.latest"))["position"]
            assert await reader.hear_bodies(1) == ["old"]
        async with box.reader() as reader:
            resumed = await reader.subscribe("news.latest", position=position)
            assert resumed["recovered"] is True
            await reader.is_up_to_date()
        async with box.reader() as reader:
            resumed = await reader.subscribe("news.latest", position=encode(Position(1_000, {})))
            assert resumed["recovered"] is False
            assert await reader.hear_bodies(1) == ["old"]


# Bad input.


def forged(packed: bytes) -> str:
    return base64.urlsafe_b64encode(packed).rstrip(b"=").decode()


@pytest.mark.parametrize(
    "position",
    ["of another fabric", "", "AwAA", "x" * 5_000, forged(b"\x03" + b"\xff" * 40)],
    ids=["no base64", "empty", "cut off", "giant", "forged"],
)
async def test_what_cant_be_a_position_is_refused(
    engine: str, store: CountingStore, position: str
) -> None:
    async with opened_box(engine, store=store) as box, box.reader() as reader:
        error = await reader.answer_to(action="subscribe", topic=TOPIC, position=position, ref=1)
        assert (error["type"], error["code"], error["ref"]) == ("error", 112, 1)
        assert error["temporary"] is False
        assert (await reader.subscribe(TOPIC))["recovered"] is False


async def test_a_position_that_says_too_little_or_too_much_is_a_gap(
    engine: str, store: CountingStore
) -> None:
    now = int(time.time() * 1000)
    week = 7 * 86_400_000
    marks_at = {
        "another release": "AQGU",
        "older than the topic's ttl": encode(Position(now - week - 100_000, {})),
        "from the future": encode(Position(now + 86_400_000, {})),
    }
    async with opened_box(engine, store=store) as box:
        for what, position in marks_at.items():
            async with box.reader() as reader:
                resumed = await reader.subscribe(TOPIC, position=position)
                assert resumed["recovered"] is False, what


async def test_a_position_that_lists_unknown_logs_loses_nothing_of_those_that_are_known(
    engine: str, store: CountingStore
) -> None:
    async with opened_box(engine, store=store) as box:
        await publish(box, 1, 2)
        async with box.reader(TOPIC, rewind=2) as reader:
            await reader.hear_bodies(2)
        now = int(time.time() * 1000)
        unknown = {bytes((n,)) * HASH_BYTES: Listed(MAX_SEQ, now) for n in range(MAX_LOGS)}
        async with box.reader() as reader:
            forged = encode(Position(now, unknown))
            resumed = await reader.subscribe(TOPIC, position=forged)
            assert resumed["recovered"] is True
            assert await reader.hear_bodies(2) == [1, 2]


# Event streams.


async def sse(box: Box, query: str, count: int, **headers: str) -> list[tuple[str | None, str]]:
    """Return the first ``count`` events of a stream: (id, data)."""
    async with box.opened() as raw:
        raw.send_request("GET", f"/events?{query}", **headers)
        await raw.read_until(b"\r\n\r\n")
        await raw.read_until(b"\n\n")
        events: list[tuple[str | None, str]] = []
        while len(events) < count:
            block = (await raw.read_until(b"\n\n")).decode()
            fields = dict(line.split(": ", 1) for line in block.strip().splitlines() if line != ":")
            events.append((fields.get("id"), fields.get("data", "")))
        return events


async def test_an_event_stream_begins_with_an_id_and_goes_on_from_it(
    engine: str, store: CountingStore
) -> None:
    async with opened_box(engine, store=store) as box:
        (_, subscribed), (begin, nothing) = await sse(box, f"topic={TOPIC}", 2)
        assert '"recovered":false' in subscribed
        assert begin is not None
        assert nothing == ""
        await publish(box, 1, 2)
        for headers, query in (({"Last_Event_ID": begin}, ""), ({}, f"&last_event_id={begin}")):
            events = await sse(box, f"topic={TOPIC}{query}", 4, **headers)
            assert '"recovered":true' in events[0][1]
            assert ['"body":1' in events[1][1], '"body":2' in events[2][1]] == [True, True]
            assert [id_ for id_, _ in events[:3]] == [None, None, None]
            assert events[3][0] is not None
        assert (await sse(box, f"topic={TOPIC}", 2, Last_Event_ID=events[3][0]))[0][0] is None


async def test_no_event_moves_the_id_past_what_another_topic_still_waits_for(
    engine: str, store: CountingStore
) -> None:
    async with opened_box(engine, store=store) as box:
        events = await sse(box, "topic=news.a&topic=news.b", 3)
        begin = events[2][0]
        assert begin is not None
        await publish(box, "a", topic="news.a")
        await publish(box, "b", topic="news.b")
        events = await sse(box, "topic=news.a&topic=news.b", 5, Last_Event_ID=begin)
        kinds = ["a" in data.partition('"body":')[2] for _, data in events]
        assert [id_ is None for id_, _ in events] == [True, True, True, True, False]
        assert kinds == [False, True, False, False, False]


async def test_a_bad_last_event_id_is_400(engine: str, store: CountingStore) -> None:
    async with opened_box(engine, store=store) as box:
        page = await box.request("GET", f"/events?topic={TOPIC}", Last_Event_ID="1")
        assert (page.status, page.json()["code"]) == (400, 112)


# Plain HTTP.


async def get_history(box: Box, **query: Any) -> Any:
    text = "&".join(f"{name}={quote(str(value))}" for name, value in query.items())
    page = await box.request("GET", f"/history?{text}")
    assert page.status == 200, page
    assert page.headers["cache-control"] == "no-store"
    return page.json()


async def test_who_asks_for_two_wrong_things_gets_one_answer(
    engine: str, store: CountingStore, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened_box(engine, store=store) as box:
        page = await box.request("GET", "/history?topic=no..topic&limit=none")
        assert (page.status, page.json()["code"]) == (400, 107)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_catching_up_over_http_page_by_page(engine: str, store: CountingStore) -> None:
    async with opened_box(engine, store=store) as box:
        begin = await get_history(box, topic=TOPIC)
        assert (begin["messages"], begin["more"], begin["recovered"]) == ([], False, False)
        await publish(box, *range(7))
        await publish(box, "elsewhere", topic="news.b")
        bodies, position, pages = [], begin["position"], 0
        while True:
            page = await get_history(box, topic=TOPIC, after=position, limit=3)
            assert page["recovered"] is True
            bodies += [message["body"] for message in page["messages"]]
            for message in page["messages"]:
                assert message["identity"] == identity_text(identity_of_id(message["id"]))
            position, pages = page["position"], pages + 1
            if not page["more"]:
                break
        assert (bodies, pages) == (list(range(7)), 3)
        assert (await get_history(box, topic=TOPIC, after=position))["messages"] == []
        async with box.reader() as reader:
            assert (await reader.subscribe(TOPIC, position=position))["recovered"] is True
            await reader.is_up_to_date()


async def test_pages_go_on_at_another_gateway(engine: str, store: CountingStore) -> None:
    async with opened_box(engine, store=store) as box:
        begin = (await get_history(box, topic=TOPIC))["position"]
        await publish(box, *range(5))
        page = await get_history(box, topic=TOPIC, after=begin, limit=2)
    async with opened_box(engine, store=store) as other:
        rest = await get_history(other, topic=TOPIC, after=page["position"], limit=9)
        assert [message["body"] for message in rest["messages"]] == [2, 3, 4]
        assert (rest["recovered"], rest["more"]) == (True, False)


async def test_a_history_that_cant_be_read_says_why_and_is_whole_when_asked_again(
    engine: str, store: CountingStore
) -> None:
    async with opened_box(engine, store=store) as box:
        begin = (await get_history(box, topic=TOPIC))["position"]
        await publish(box, 1, 2)
    async with opened_box(engine, store=store) as other:
        store.away = True
        page = await get_history(other, topic=TOPIC, after=begin)
        assert (page["recovered"], page["reason"]) == (False, "store")
        store.away = False
        # First the store is left alone for a second.
        while (page := await get_history(other, topic=TOPIC, after=begin)).get("reason"):
            assert page["reason"] == "store"
            await asyncio.sleep(0.05)
        assert [message["body"] for message in page["messages"]] == [1, 2]
        assert page["recovered"] is True


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("topic=news.a&after=nonsense", 400, 112),
        ("topic=news.a&limit=0", 400, 107),
        ("topic=nonsense&limit=0", 404, 102),
        ("topic=news.a&limit=1001", 400, 107),
        ("topic=..", 400, 107),
        ("", 400, 107),
        ("topic=weather.oslo", 404, 102),
        ("topic=user.7", 401, 101),
    ],
)
async def test_bad_requests_of_a_history_are_reported(
    engine: str, query: str, status: int, code: int
) -> None:
    async with opened_box(engine) as box:
        page = await box.request("GET", f"/history?{query}")
        assert (page.status, page.json()["code"]) == (status, code)


async def test_pages_of_other_origins_may_ask_if_they_are_let_in(engine: str) -> None:
    async with opened_box(engine, origins=("https://a.example",)) as box:
        page = await box.request("GET", f"/history?topic={TOPIC}", Origin="https://a.example")
        assert page.headers["access-control-allow-origin"] == "https://a.example"
        other = await box.request("GET", f"/history?topic={TOPIC}", Origin="https://b.example")
        assert other.status == 403
        assert decode((await get_history(box, topic=TOPIC))["position"]).time_ms > 0
        await until(lambda: not box.gateway.core.readers.open)


async def test_corrupt_messages_of_the_store_break_no_parser(engine: str) -> None:
    store = MemoryStore(TABLE)
    async with opened_box(engine, store=store) as box:
        async with box.reader() as reader:
            position = (await reader.subscribe(TOPIC))["position"]
        made = [box.envelope(body=n) for n in range(3)]
        made[1] = dataclasses.replace(made[1], body=b'{"cut off')
        await store.write(made)
        await settle(store, made[-1])
    # A gateway that has these messages only from the store.
    async with opened_box(engine, store=store) as box, box.reader() as reader:
        resumed = await reader.subscribe(TOPIC, position=position)
        assert (resumed["recovered"], resumed["reason"]) == (False, "store")
        assert await reader.hear_bodies(2) == [0, 2]
        answer = await reader.answer_to(action="history", topic=TOPIC, limit=2)
        assert [one["body"] for one in answer["messages"]] == [0, 2]


async def test_a_topic_with_many_corrupt_messages_is_shown_as_far_as_it_is_read(
    engine: str,
) -> None:
    store = MemoryStore(TABLE)
    async with opened_box(engine, store=store) as box:
        made = [box.envelope(body=n) for n in range(401)]
        corrupt = [dataclasses.replace(one, body=b'{"cut off') for one in made[1:]]
        await store.write([made[0], *corrupt])
        await settle(store, corrupt[-1])
    async with opened_box(engine, store=store) as box, box.reader() as reader:
        assert (await reader.subscribe(TOPIC, rewind=1))["type"] == "subscribed"
        found = await reader.answer_to(action="history", topic=TOPIC, limit=1)
        assert (found["messages"], found["more"]) == ([], True)
        oldest = found["missing"][0]
        older = await reader.answer_to(action="history", topic=TOPIC, limit=1, before=oldest)
        assert [one["body"] for one in older["messages"]] == [0]
