"""A gateway as a reader on a raw WebSocket sees it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from typing import Any

import pytest
import websockets
from gateways import TABLE, Box, RawSocket, Response, opened_box, until

from gateway.wire.position import decode
from gateway.wire.protocol import ReaderLimits
from newsfabric.errors import StoreUnavailable
from newsfabric.store.memory import MemoryStore
from newsfabric.topics import TopicPolicy, TopicTable

HANDSHAKE = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec_WebSocket_Version": "13",
    "Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


async def test_a_subscriber_gets_what_is_published_from_then_on(box: Box) -> None:
    box.publish(body="before")
    async with box.reader() as reader:
        reply = await reader.answer_to(action="subscribe", topic="news.breaking", ref="r1")
        position = reply.pop("position")
        assert reply == {
            "type": "subscribed",
            "ref": "r1",
            "topic": "news.breaking",
            "recovered": False,
        }
        decode(position)
        sent = box.publish(body={"headline": "Zürich 東京 \U0001f600"}, key="k", version=3)
        push = await reader.hear()
        assert decode(push.pop("position")).time_ms > 0
        assert push == {
            "type": "message",
            "topic": "news.breaking",
            "id": sent.id,
            "key": "k",
            "version": 3,
            "published": sent.published_ms,
            "origin": "oregon",
            "class": "gold",
            "body": {"headline": "Zürich 東京 \U0001f600"},
        }


@pytest.mark.promise("D1", "S1")
async def test_copies_are_sent_once(box: Box) -> None:
    async with box.reader("news.breaking") as reader:
        sent = box.envelope(body="once")
        for router in ("oregon-router-1", "oregon-router-1", "dublin-router-1"):
            box.publish(
                message_id=sent.message_id, identity=sent.identity, id=sent.id, router=router,
                body="once",
            )  # fmt: skip
        box.publish(body="end")
        assert await reader.hear_bodies(2) == ["once", "end"]


@pytest.mark.promise("D2")
async def test_topics_are_kept_apart_and_each_is_in_order(box: Box) -> None:
    async with box.reader("news.a", "news.b") as both, box.reader("news.b") as one:
        for n in range(20):
            box.publish("news.a" if n % 2 else "news.b", body=n)
        heard = await both.hear_bodies(20)
        # Between topics there is no order.
        assert [n for n in heard if n % 2] == list(range(1, 20, 2))
        assert [n for n in heard if not n % 2] == list(range(0, 20, 2))
        assert await one.hear_bodies(10) == list(range(0, 20, 2))


async def test_after_unsubscribe_nothing_comes(box: Box) -> None:
    async with box.reader("news.a", "news.b") as reader:
        reply = await reader.answer_to(action="unsubscribe", topic="news.a", ref=1)
        assert reply == {"type": "unsubscribed", "ref": 1, "topic": "news.a"}
        box.publish("news.a")
        box.publish("news.b", body="b")
        assert await reader.hear_bodies(1) == ["b"]
        again = await reader.answer_to(action="unsubscribe", topic="news.a")
        assert again["type"] == "unsubscribed"


async def test_a_rewind_comes_after_the_reply_and_before_what_is_live(box: Box) -> None:
    async with box.reader("news.breaking") as other:
        for n in range(5):
            box.publish(body=n)
        await other.hear_bodies(5)
        async with box.reader() as reader:
            await reader.subscribe("news.breaking", rewind=3)
            box.publish(body="live")
            assert await reader.hear_bodies(4) == [2, 3, 4, "live"]


async def test_a_rewind_by_time(box: Box) -> None:
    long_ago = box.envelope(body="long ago", ms=1_000)
    await box.was_past([long_ago, box.envelope(body="just now")])
    async with box.reader() as reader:
        await reader.subscribe("news.breaking", rewind="5m")
        assert await reader.hear_bodies(1) == ["just now"]
        await reader.is_up_to_date()


async def test_a_fresh_gateway_rewinds_from_the_store(box: Box) -> None:
    await box.was_past([box.envelope(body=n) for n in range(5)])
    async with box.reader() as reader:
        await reader.subscribe("news.breaking", rewind=2)
        assert await reader.hear_bodies(2) == [3, 4]
        await reader.is_up_to_date()


def before_it_began(n: int) -> int:
    """Return the time in ms of the ``n``-th message routed before the gateway began."""
    return int(time.time() * 1000) - 60_000 + n


async def test_a_rewind_longer_than_memory_is_completed_from_the_store(box: Box) -> None:
    past = [box.envelope(body=n, ms=before_it_began(n)) for n in range(30)]
    await box.was_past(past)
    async with box.reader("news.breaking") as first:
        box.publish(body="live")
        await first.hear_bodies(1)
        async with box.reader() as reader:
            await reader.subscribe("news.breaking", rewind=25)
            assert await reader.hear_bodies(25) == [*range(6, 30), "live"]
            box.publish(body="end")
            assert await reader.hear_bodies(1) == ["end"]


async def test_what_the_store_has_before_the_feed_comes_with_the_feed(box: Box) -> None:
    box.publish(body="first")
    ahead = box.envelope(body="ahead")
    await box.store.write([ahead])
    async with box.reader() as reader:
        await reader.subscribe("news.breaking", rewind=9)
        assert await reader.hear_bodies(1) == ["first"]
        box.send_envelope(ahead)
        box.publish(body="end")
        assert await reader.hear_bodies(2) == ["ahead", "end"]


async def test_latest_versions_come_on_subscribe(box: Box) -> None:
    await box.was_past([box.envelope("news.latest", key="old", version=1, body="old 1")])
    async with box.reader("news.latest") as first:
        await first.hear_bodies(1)
        for key, version in [("a", 1), ("b", 1), ("a", 2)]:
            box.publish("news.latest", key=key, version=version, body=f"{key} {version}")
        await first.hear_bodies(3)
        async with box.reader("news.latest") as reader:
            assert await reader.hear_bodies(3) == ["old 1", "b 1", "a 2"]
            await reader.is_up_to_date()


async def test_a_rewind_of_five_on_a_topic_with_nineteen_keys_gives_the_five_newest_newest_last(
    box: Box,
) -> None:
    past = [
        box.envelope("news.latest", key=f"{n}", body=n, ms=before_it_began(n)) for n in range(12)
    ]
    await box.was_past(past)
    async with box.reader("news.latest") as first:
        await first.hear_bodies(12)
        for n in range(12, 19):
            box.publish("news.latest", key=f"{n}", body=n)
        await first.hear_bodies(7)
        for rewind, bodies in ((5, range(14, 19)), (1, [18]), (12, range(7, 19))):
            async with box.reader() as reader:
                await reader.subscribe("news.latest", rewind=rewind)
                assert await reader.hear_bodies(len(bodies)) == list(bodies)
                await reader.is_up_to_date()


async def test_a_rewind_by_time_brings_nothing_older_of_any_key(box: Box) -> None:
    old = box.envelope("news.latest", key="old", body="old", ms=before_it_began(-600_000))
    await box.was_past([old])
    async with box.reader("news.latest") as first:
        await first.hear_bodies(1)
        box.publish("news.latest", key="new", body="new")
        await first.hear_bodies(1)
        async with box.reader() as reader:
            await reader.subscribe("news.latest", rewind="5m")
            assert await reader.hear_bodies(1) == ["new"]
            await reader.is_up_to_date()


async def test_expired_messages_are_not_replayed(box: Box) -> None:
    async with box.reader("news.breaking") as first:
        box.publish(body="gone", expires_ms=1)
        box.publish(body="stays")
        await first.hear_bodies(2)
        async with box.reader() as reader:
            await reader.subscribe("news.breaking", rewind=9)
            assert await reader.hear_bodies(1) == ["stays"]
            await reader.is_up_to_date()


async def test_history_from_memory_and_store(box: Box) -> None:
    past = [box.envelope(body=n) for n in range(30)]
    await box.was_past(past)
    async with box.reader() as reader:
        reply = await reader.answer_to(action="history", topic="news.breaking", limit=3, ref=5)
        assert (reply["type"], reply["ref"], reply["more"]) == ("history", 5, True)
        assert [m["body"] for m in reply["messages"]] == [27, 28, 29]
        assert reply["messages"][0]["type"] == "message"
        before = reply["messages"][0]["id"]
        page = await reader.answer_to(
            action="history", topic="news.breaking", limit=4, before=before
        )
        assert [m["body"] for m in page["messages"]] == [23, 24, 25, 26]
        oldest = await reader.answer_to(
            action="history", topic="news.breaking", limit=100, before=past[2].id
        )
        assert [m["body"] for m in oldest["messages"]] == [0, 1]
        assert oldest["more"] is False


async def test_ping(box: Box) -> None:
    async with box.reader() as reader:
        assert await reader.answer_to(action="ping") == {"type": "pong"}


@pytest.mark.parametrize(
    ("ping", "pong"),
    [
        ('{"action":"ping"}', '{"type":"pong"}'),
        ('{"action":"ping","ref":"s17"}', '{"type":"pong","ref":"s17"}'),
        ('{"action":"ping","ref":""}', '{"type":"pong","ref":""}'),
        ('{"action":"ping","ref":0}', '{"type":"pong","ref":0}'),
        ('{"action":"ping","ref":999999999999999}', '{"type":"pong","ref":999999999999999}'),
        ('{"action":"ping","ref":-7}', '{"type":"pong","ref":-7}'),
        ('{"action":"ping","ref":1e2}', '{"type":"pong","ref":100.0}'),
        ('{"action":"ping","ref":true}', '{"type":"pong","ref":true}'),
        ('{"action":"ping","ref":null}', '{"type":"pong"}'),
        ('{"action":"ping","ref":"\\u0041"}', '{"type":"pong","ref":"A"}'),
        (
            '{"action":"ping","ref":"' + "x" * 128 + '"}',
            '{"type":"pong","ref":"' + "x" * 128 + '"}',
        ),
        ('{"action":"ping","ref":1,"ref":2}', '{"type":"pong","ref":2}'),
        ('{ "ref" : "a" , "action" : "ping" }', '{"type":"pong","ref":"a"}'),
    ],
)
async def test_a_pong_is_the_same_bytes_however_the_ping_is_written(
    box: Box, ping: str, pong: str
) -> None:
    async with box.reader() as reader:
        for _ in range(2):
            await reader.connection.send(ping)
            assert await reader.connection.recv() == pong


async def test_pings_count_as_verbs_obeyed(box: Box) -> None:
    sample = 'newsfabric_gateway_verbs_total{action="ping"}'
    before = await box.metric(sample)
    async with box.reader() as reader:
        for n in range(5):
            await reader.connection.send(f'{{"action":"ping","ref":{n}}}')
            assert await reader.hear() == {"type": "pong", "ref": n}
    assert await box.metric(sample) == before + 5


@pytest.mark.parametrize(
    ("verb", "code"),
    [
        ({"action": "subscribe", "topic": "user.7"}, 101),
        ({"action": "subscribe", "topic": "desk.plan"}, 101),
        ({"action": "subscribe", "topic": "weather.oslo"}, 102),
        ({"action": "subscribe", "topic": "news.*"}, 107),
        ({"action": "login", "token": "x"}, 101),
        ({"action": "shout"}, 107),
        ({}, 107),
    ],
)
async def test_refusals(box: Box, verb: dict[str, Any], code: int) -> None:
    async with box.reader() as reader:
        push = await reader.answer_to(**verb, ref="r")
        assert (push["type"], push["code"], push["ref"]) == ("error", code, "r")
        assert push["temporary"] is False
        await reader.is_up_to_date()


@pytest.mark.parametrize("text", ["{", "[]", "", "\x00", '{"action":' * 1000])
async def test_what_is_no_verb_is_refused_and_the_reader_stays(box: Box, text: str) -> None:
    async with box.reader() as reader:
        await reader.connection.send(text)
        assert (await reader.hear())["code"] == 107
        await reader.is_up_to_date()


async def test_a_binary_message_is_read_like_a_text(box: Box) -> None:
    async with box.reader() as reader:
        await reader.connection.send(b'{"action":"ping"}')
        assert (await reader.hear())["type"] == "pong"
        await reader.connection.send(b"\xff\xfe")
        assert (await reader.hear())["code"] == 107


async def test_subscribing_twice_and_to_too_many(engine: str) -> None:
    limits = ReaderLimits(topics=2)
    async with opened_box(engine, reader=limits) as box, box.reader("news.a", "news.b") as reader:
        assert (await reader.answer_to(action="subscribe", topic="news.a"))["code"] == 105
        assert (await reader.answer_to(action="subscribe", topic="news.c"))["code"] == 106
        await reader.answer_to(action="unsubscribe", topic="news.a")
        await reader.subscribe("news.c")


async def test_hundreds_of_topics_up_to_the_limit(box: Box) -> None:
    async with box.reader() as reader:
        for n in range(129):
            await reader.send_verb(action="subscribe", topic=f"news.t{n}", ref=n)
        pushes = [await reader.hear() for _ in range(129)]
        assert [p["ref"] for p in pushes] == list(range(129))
        assert [p["type"] for p in pushes] == ["subscribed"] * 128 + ["error"]
        assert pushes[-1]["code"] == 106


async def test_verbs_are_obeyed_in_order_while_the_store_is_slow(engine: str) -> None:
    class SlowStore(MemoryStore):
        async def history(self, *args: Any, **kwargs: Any) -> Any:
            await asyncio.sleep(0.05)
            return await super().history(*args, **kwargs)

    async with opened_box(engine, store=SlowStore(TABLE)) as box, box.reader() as reader:
        await reader.send_verb(action="subscribe", topic="news.a", ref=1)
        await reader.send_verb(action="unsubscribe", topic="news.a", ref=2)
        await reader.send_verb(action="ping", ref=3)
        for n in (4, 5):
            await reader.connection.send(f'{{"action":"ping","ref":{n}}}')
        assert [(await reader.hear())["ref"] for _ in range(5)] == [1, 2, 3, 4, 5]
        box.publish("news.a")
        await reader.is_up_to_date()


async def test_without_the_store_subscribing_works_and_history_is_refused_for_now(
    engine: str,
) -> None:
    class AwayStore(MemoryStore):
        async def history(self, *args: Any, **kwargs: Any) -> Any:
            raise StoreUnavailable("away")

    async with opened_box(engine, store=AwayStore(TABLE)) as box, box.reader() as reader:
        await reader.subscribe("news.breaking", rewind=5)
        box.publish(body=1)
        assert await reader.hear_bodies(1) == [1]
        refused = await reader.answer_to(action="history", topic="news.breaking", ref=9)
        assert (refused["code"], refused["temporary"], refused["ref"]) == (100, True, 9)


async def test_a_reader_whose_verb_cant_be_answered_has_to_come_again(
    engine: str, expect_error_log: Any
) -> None:
    class FaultyStore(MemoryStore):
        async def history(self, *args: Any, **kwargs: Any) -> Any:
            raise RuntimeError("a bug of ours")

    # One error of the read, and one of the answer that waits for it.
    for _ in range(2):
        expect_error_log("a task of the gateway failed")
    async with opened_box(engine, store=FaultyStore(TABLE)) as box, box.reader() as reader:
        await reader.send_verb(action="history", topic="news.breaking")
        code, pushes = await reader.hear_close()
        assert (code, [push["type"] for push in pushes]) == (4100, ["disconnect"])


async def test_so_has_one_whose_verb_would_have_been_answered_at_once(
    engine: str, expect_error_log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: Any) -> None:
        raise RuntimeError("a bug of ours")

    expect_error_log("a verb can't be answered")
    async with opened_box(engine) as box, box.reader() as reader:
        monkeypatch.setattr(box.gateway.core.hub, "position", breaks)
        await reader.send_verb(action="subscribe", topic="news.breaking")
        code, pushes = await reader.hear_close()
        assert (code, [push["type"] for push in pushes]) == (4100, ["disconnect"])


@pytest.mark.parametrize("ping", ['{"action":"ping"}', '{"action": "ping"}'])
async def test_a_flood_is_refused_and_then_closed(engine: str, ping: str) -> None:
    limits = ReaderLimits(verbs=5, refusals=3, verbs_per_second=0.001)
    async with opened_box(engine, reader=limits) as box, box.reader() as reader:
        for _ in range(20):
            await reader.connection.send(ping)
        code, pushes = await reader.hear_close()
        assert code == 4102
        errors = pushes[5:-1]
        assert [p["type"] for p in pushes[:5]] == ["pong"] * 5
        # While a verb waits for its answer, one error stands for all the verbs behind it.
        assert 1 <= len(errors) <= 3
        assert {(p["type"], p["code"], p["temporary"]) for p in errors} == {("error", 111, True)}
        assert pushes[-1] == {
            "type": "disconnect",
            "code": 4102,
            "reason": "too many requests",
            "reconnect": True,
            "retry_after_ms": 10_000,
        }


LIMITS = {"topics": 128, "verbs": 256, "verbs_per_second": 10}


async def test_a_page_that_follows_and_leaves_300_topics_at_once_is_refused_and_stays(
    box: Box,
) -> None:
    async with box.opened() as raw:
        await raw.upgrade()
        for n in range(300):
            raw.send_verb(action="subscribe", topic=f"news.{n}", ref=n)
            raw.send_verb(action="unsubscribe", topic=f"news.{n}", ref=n)
        replies, errors = [], []
        while len(replies) < 256 or not errors:
            push = json.loads((await raw.read_frame())[1])
            (errors if push["type"] == "error" else replies).append(push)
        assert [(p["type"], p["ref"]) for p in replies[:4]] == [
            ("subscribed", 0),
            ("unsubscribed", 0),
            ("subscribed", 1),
            ("unsubscribed", 1),
        ]
        assert errors[0] == {
            "type": "error",
            "code": 111,
            "reason": "too many requests",
            "temporary": True,
            "retry_after_ms": 1_000,
            "limits": LIMITS,
        }
        # It hasn't been closed, so it closes itself.
        raw.send_frame(0x88, (1000).to_bytes(2, "big"))
        assert {p["type"] for p in await raw.read_pushes()} <= {
            "error",
            "subscribed",
            "unsubscribed",
        }


@pytest.mark.parametrize("asked", [True, False, 1, None])
async def test_who_asks_with_a_ping_learns_which_verbs_it_may_send(box: Box, asked: object) -> None:
    options = {"limits": LIMITS} if asked is True else {}
    async with box.reader() as reader:
        assert await reader.answer_to(action="ping", ref=7, limits=asked) == {
            "type": "pong",
            "ref": 7,
            **options,
        }


@pytest.mark.parametrize("size", [16 * 1024 + 1, 1_000_000])
async def test_an_over_long_message_is_closed_with_1009(box: Box, size: int) -> None:
    async with box.reader() as reader:
        with contextlib.suppress(websockets.ConnectionClosed):
            await reader.connection.send("x" * size)
        code, pushes = await reader.hear_close()
        assert code == 1009
        assert [(p["type"], p["code"]) for p in pushes] == [("error", 107), ("disconnect", 1009)]


async def test_a_message_of_the_longest_size_is_read(box: Box) -> None:
    async with box.reader() as reader:
        verb = json.dumps({"action": "ping", "padding": "x" * 16_000})
        await reader.connection.send(verb)
        assert (await reader.hear())["type"] == "pong"


@pytest.mark.parametrize(
    ("frame", "code"),
    [(b"\x81\x01a", 1002), (b"\x81\x81\0\0\0\0\xff", 1007), (b"\x83\x80\0\0\0\0", 1002)],
    ids=["unmasked", "not UTF-8", "unknown opcode"],
)
async def test_broken_framing_is_closed(box: Box, frame: bytes, code: int) -> None:
    async with box.opened() as raw:
        assert (await raw.upgrade()).status == 101
        raw.send(frame)
        first, payload = await raw.read_frame()
        assert (first, json.loads(payload)["code"]) == (0x81, code)
        first, payload = await raw.read_frame()
        assert (first, int.from_bytes(payload[:2], "big")) == (0x88, code)


LONG = b"\x81\xfe\x40\0" + bytes(4)
PING_FRAME = b"\x89\x80" + bytes(4)


@pytest.mark.parametrize(
    ("path", "first", "then"),
    [
        ("/websocket", b"\x81", b""),
        ("/sockjs/0/a/websocket", LONG + b" " * 16_000, b""),
        ("/websocket", LONG, b" "),
        ("/websocket", b"\x01\x81" + bytes(4) + b" ", PING_FRAME),
        ("/websocket", b"\x89\x82" + bytes(4) + b"p", b""),
    ],
    ids=[
        "one byte",
        "almost all of a SockJS frame",
        "a trickle",
        "only pings go on",
        "half a ping",
    ],
)
async def test_a_message_left_unfinished_is_closed_with_1008(
    engine: str, path: str, first: bytes, then: bytes
) -> None:
    async with opened_box(engine, unfinished_seconds=1.0) as box, box.opened() as raw:
        assert (await raw.upgrade(path)).status == 101
        raw.send(first)
        end = asyncio.ensure_future(last_frames(raw))
        while not (await asyncio.wait([end], timeout=0.1))[0]:
            raw.send(then)
        disconnect, close = await end
        assert b'"code":1008,"reason":"message left unfinished","reconnect":true' in disconnect
        assert close == (1008).to_bytes(2, "big") + b"message left unfinished"
        await until(lambda: not box.gateway.core.readers.open)


async def last_frames(raw: RawSocket) -> tuple[bytes, bytes]:
    """Return the payloads of the ``disconnect`` push and of the close frame."""
    texts = []
    while (frame := await raw.read_frame())[0] != 0x88:
        texts += [frame[1]] if frame[0] == 0x81 else []
    # In SockJS, a c frame stands between them.
    disconnect = [text for text in texts if b"disconnect" in text]
    assert len(disconnect) == 1
    return disconnect[0].replace(b"\\", b""), frame[1]


async def test_a_reader_may_always_be_amid_a_message_if_none_takes_too_long(engine: str) -> None:
    async with opened_box(engine, unfinished_seconds=2.0) as box, box.opened() as raw:
        await raw.upgrade()
        verb = b'{"action":"ping"}'
        start, rest = bytes((0x81, 0x80 | len(verb))) + bytes(4) + verb[:5], verb[5:]
        began = time.monotonic()
        raw.send(start)
        while time.monotonic() < began + 3:
            raw.send(rest + start)
            # A heartbeat may be received.
            while (frame := await raw.read_frame())[0] == 0x89:
                pass
            assert json.loads(frame[1]) == {"type": "pong"}
            await asyncio.sleep(0.1)


async def test_a_readers_goodbye_is_answered_with_its_code(box: Box) -> None:
    async with box.reader("news.breaking") as reader:
        await reader.connection.close(3001, "bye")
        assert reader.connection.close_code == 3001
        assert reader.connection.protocol.close_rcvd is not None
        assert reader.connection.protocol.close_rcvd.code == 3001
    await until(lambda: not box.gateway.core.readers.open)


async def test_a_ping_frame_is_answered(box: Box) -> None:
    async with box.reader() as reader:
        pong = await reader.connection.ping(b"are you there")
        await asyncio.wait_for(pong, 60)


async def test_a_reader_without_a_sign_of_life_is_closed_with_4203(engine: str) -> None:
    async with opened_box(engine, heartbeat=0.05) as box, box.opened() as raw:
        await raw.upgrade()
        frames = []
        while not frames or frames[-1][0] != 0x88:
            frames.append(await raw.read_frame())
        assert (0x89, b"") in frames
        assert json.loads(frames[-2][1])["code"] == 4203
        assert int.from_bytes(frames[-1][1][:2], "big") == 4203


@pytest.mark.parametrize("state", ["was asked once", "is read just then", "isn't read yet"])
async def test_a_reader_is_not_blamed_for_a_gateway_that_stood_still(
    monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    # The first heartbeat is sent after half of the interval.
    monkeypatch.setattr("gateway.readers.connection.random.uniform", lambda *_: 0.5)
    async with opened_box("tornado", heartbeat=0.6) as box, box.opened() as raw:
        await raw.upgrade()
        assert await raw.read_frame() == (0x89, b"")
        if state != "was asked once":
            # Its answer to this one arrives during the standstill.
            assert await raw.read_frame() == (0x89, b"")
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()

        def stand_still() -> None:
            loop.remove_reader(ours)
            if state != "was asked once":
                raw.send_frame(0x8A, b"")
            time.sleep(2.0)

        if state == "isn't read yet":
            # As an event of a socket: the loop looks at timers before sockets are read again.
            loop.add_reader(ours, stand_still)
            theirs.send(b"x")
        else:
            stand_still()
        assert await raw.read_frame() == (0x89, b"")
        ours.close()
        theirs.close()


async def test_a_reader_that_answers_pings_stays(engine: str) -> None:
    async with opened_box(engine, heartbeat=1.0) as box, box.opened() as raw:
        await raw.upgrade()
        # Without an answer the third would be the end.
        for _ in range(3):
            assert await raw.read_frame() == (0x89, b"")
            raw.send_frame(0x8A, b"")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec_WebSocket_Version": "8"}, 426),
        ({"Sec_WebSocket_Version": ""}, 426),
        ({"Sec_WebSocket_Key": "short"}, 400),
        ({"Connection": "close"}, 400),
        ({"Upgrade": "h2c"}, 400),
    ],
)
async def test_a_bad_handshake_is_refused(box: Box, headers: dict[str, str], status: int) -> None:
    async with box.opened() as raw:
        raw.send_request("GET", "/websocket", **{**HANDSHAKE, **headers})
        assert Response.of(await raw.read_until(b"\r\n\r\n")).status == status


@pytest.mark.parametrize("path", ["/websocket", "/sockjs/0/a/websocket", "/sockjs/info", "/sockjs"])
async def test_a_request_names_its_host_once_and_plainly(box: Box, path: str) -> None:
    hosts = ["", "a\r\nHost: b", "a\r\nhost: a", "a\r\nHost: ", "a, b", "a b", "user@a", "a%zz"]
    for host in hosts:
        named = {"Host": host} if host else {}
        fields = {**HANDSHAKE, "Sec_WebSocket_Version": "8", **named}
        async with box.opened() as raw:
            raw.send_fields("GET", path, fields)
            assert Response.of(await raw.read_until(b"\r\n\r\n")).status == 400, host
    async with box.opened() as raw:
        raw.send_fields("GET", path, {**HANDSHAKE, "Host": "[2001:db8::1]:80"})
        assert Response.of(await raw.read_until(b"\r\n\r\n")).status in (101, 200)


async def test_a_handshake_with_a_body_is_none(box: Box) -> None:
    async with box.opened() as raw:
        raw.send_request("GET", "/websocket", b"{}", **HANDSHAKE, Content_Length="2")
        assert Response.of(await raw.read_until(b"\r\n\r\n")).status == 400


async def test_pages_of_other_origins_are_kept_out(engine: str) -> None:
    async with opened_box(engine, origins=("https://news.example",)) as box:
        for origin, status in [("https://evil.example", 403), ("https://news.example", 101)]:
            async with box.opened() as raw:
                assert (await raw.upgrade(Origin=origin)).status == status


async def test_a_full_box_tells_a_reader_to_come_later(engine: str) -> None:
    async with opened_box(engine, capacity=1) as box, box.reader() as first:
        async with box.reader() as second:
            code, pushes = await second.hear_close()
            assert code == 1013
            assert [(p["type"], p["code"], p["reconnect"]) for p in pushes] == [
                ("disconnect", 1013, True)
            ]
        await first.is_up_to_date()


async def test_a_dead_reader_doesnt_break_a_broadcast(box: Box) -> None:
    async with box.opened() as dead, box.reader("news.breaking") as alive:
        await dead.upgrade()
        dead.send_verb(action="subscribe", topic="news.breaking")
        await dead.read_frame()
        dead.reset()
        for n in range(3):
            box.publish(body=n)
        assert await alive.hear_bodies(3) == [0, 1, 2]
    await until(lambda: not box.gateway.core.readers.open)


async def test_a_replay_that_is_cut_has_no_gap(engine: str) -> None:
    """No newest version from before replaces a message that doesn't fit."""
    table = TopicTable([TopicPolicy(pattern="news.*", keep=0, latest=True)])
    async with opened_box(engine, table=table, replay_bytes=5_000) as box:
        small = box.envelope(key="a", body="small", ms=before_it_began(0))
        big = [box.envelope(body=x * 4_000, ms=before_it_began(n)) for n, x in ((1, "x"), (2, "y"))]
        await box.was_past([small, *big])
        async with box.reader() as reader:
            await reader.subscribe("news.breaking", rewind=2)
            assert await reader.hear_bodies(1) == ["y" * 4_000]
            await reader.is_up_to_date()


async def test_a_big_audience_is_served_in_chunks_and_in_order(engine: str) -> None:
    async with (
        opened_box(engine, fanout_chunk=2) as box,
        box.reader("news.a") as a,
        box.reader("news.a") as b,
        box.reader("news.a", "news.b") as c,
    ):
        for n in range(10):
            box.publish("news.a", body=n)
        box.publish("news.b", body="end")
        for reader in (a, b):
            assert await reader.hear_bodies(10) == list(range(10))
        heard = await c.hear_bodies(11)
        heard.remove("end")
        assert heard == list(range(10))
