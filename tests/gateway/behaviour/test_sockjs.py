"""SockJS 1.0, by raw HTTP: frames, sessions."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import websockets
from gateways import PATIENCE, Box, RawSocket, Response, dechunked, opened_box, until
from sockjs_sessions import watched_bodies

from gateway.transports.sockjs import sessions
from gateway.wire.outbox import OutboxLimits
from gateway.wire.protocol import ReaderLimits

SESSION = "/sockjs/000/a-session"
TRICKY = "Ünï \u2028\u2029 \ufeff\u200c \U0001f600 東京"


def verb(**fields: Any) -> bytes:
    return json.dumps([json.dumps(fields)]).encode()


def pushes_of(frame: str) -> list[dict[str, Any]]:
    assert frame.startswith("a["), frame
    return [json.loads(element) for element in json.loads(frame[1:])]


async def poll(box: Box, session: str = SESSION, **headers: str) -> str:
    response = await box.request("POST", f"{session}/xhr", **headers)
    assert response.status == 200, response
    assert response.body.endswith(b"\n")
    return response.body.decode()[:-1]


async def post_verb(box: Box, session: str = SESSION, **fields: Any) -> None:
    response = await box.request("POST", f"{session}/xhr_send", verb(**fields))
    assert (response.status, response.body) == (204, b"")


class Lines:
    """The frames of an xhr_streaming response, as they arrive."""

    def __init__(self, raw: RawSocket) -> None:
        self._raw = raw
        self._content = b""

    async def next(self) -> str:
        while b"\n" not in self._content:
            size = int(await self._raw.read_until(b"\r\n"), 16)
            if size == 0:
                raise EOFError
            self._content += await self._raw.read(size)
            await self._raw.read(2)
        line, _, self._content = self._content.partition(b"\n")
        return line.decode()

    async def rest(self) -> list[str]:
        """Return all frames up to the end of the response."""
        frames: list[str] = []
        with contextlib.suppress(EOFError):
            while True:
                frames.append(await self.next())
        return frames


@contextlib.asynccontextmanager
async def streaming(box: Box, session: str = SESSION) -> AsyncIterator[Lines]:
    async with box.opened() as raw:
        raw.send_request("POST", f"{session}/xhr_streaming")
        head = Response.of(await raw.read_until(b"\r\n\r\n"))
        assert head.status == 200
        assert head.headers["content-type"] == "application/javascript; charset=UTF-8"
        assert "no-transform" in head.headers["cache-control"]
        lines = Lines(raw)
        assert await lines.next() == "h" * 2048
        yield lines


# xhr polling.


async def test_polling_opens_says_and_hears(box: Box) -> None:
    assert await poll(box) == "o"
    await post_verb(box, action="subscribe", topic="news.breaking", ref=1)
    (reply,) = pushes_of(await poll(box))
    assert (reply["type"], reply["ref"]) == ("subscribed", 1)
    waiting = asyncio.create_task(poll(box))
    await until(lambda: any(not c.blocked for c in box.gateway.core.readers.open))
    box.publish(body=TRICKY)
    (push,) = pushes_of(await waiting)
    assert push["body"] == TRICKY


async def test_messages_wait_between_two_polls_and_leave_together(box: Box) -> None:
    await poll(box)
    await post_verb(box, action="subscribe", topic="news.breaking")
    async with box.reader("news.breaking") as other:
        for n in range(3):
            box.publish(body=n)
        await other.hear_bodies(3)
    pushes = pushes_of(await poll(box))
    assert [p.get("body") for p in pushes] == [None, 0, 1, 2]


async def test_two_messages_in_one_turn_are_both_heard(box: Box) -> None:
    """A second packet on one polling response once raised an error."""
    await poll(box)
    await post_verb(box, action="subscribe", topic="news.breaking")
    await poll(box)
    waiting = asyncio.create_task(poll(box))
    await until(lambda: any(not c.blocked for c in box.gateway.core.readers.open))
    for n in range(3):
        box.publish(body=n)
    bodies = [p["body"] for p in pushes_of(await waiting)]
    while len(bodies) < 3:
        bodies += [p["body"] for p in pushes_of(await poll(box))]
    assert bodies == [0, 1, 2]


async def test_a_second_poll_learns_that_there_is_one(box: Box) -> None:
    await poll(box)
    first = asyncio.create_task(poll(box))
    await until(lambda: any(not c.blocked for c in box.gateway.core.readers.open))
    assert await poll(box) == 'c[2010,"Another connection still open"]'
    await post_verb(box, action="ping")
    assert pushes_of(await first) == [{"type": "pong"}]


async def test_a_poll_that_breaks_off_ends_the_session(box: Box) -> None:
    await poll(box)
    async with box.opened() as raw:
        raw.send_request("POST", f"{SESSION}/xhr")
        await until(lambda: any(not c.blocked for c in box.gateway.core.readers.open))
        raw.reset()
        await until(lambda: not box.gateway.core.readers.open)
    assert await poll(box) == 'c[1002,"Connection interrupted"]'


async def test_a_session_that_is_not_polled_is_forgotten(engine: str) -> None:
    async with opened_box(engine, sockjs_disconnect_delay=0.05) as box:
        await poll(box)
        await until(lambda: not box.gateway.core.readers.open)
        await until(lambda: not box.gateway.core.readers.closing)
        response = await box.request("POST", f"{SESSION}/xhr_send", verb(action="ping"))
        assert response.status == 404


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", b"Payload expected."),
        (b'["x', b"Broken JSON encoding."),
        (b'"x"', b"Payload expected."),
        (b"7", b"Payload expected."),
        (b"\xff", b"Broken JSON encoding."),
    ],
)
async def test_a_broken_xhr_send_is_refused(box: Box, body: bytes, text: bytes) -> None:
    await poll(box)
    response = await box.request("POST", f"{SESSION}/xhr_send", body)
    assert (response.status, response.body) == (500, text)
    await post_verb(box, action="ping")
    assert pushes_of(await poll(box)) == [{"type": "pong"}]


async def test_xhr_send_without_a_session_is_not_found(box: Box) -> None:
    response = await box.request("POST", f"{SESSION}/xhr_send", verb(action="ping"))
    assert response.status == 404


async def test_an_xhr_send_takes_all_that_a_reader_may_say_at_once(engine: str) -> None:
    """A batch as sockjs-client sends it: 255 verbs of 16 KiB."""
    async with opened_box(engine, sockjs_disconnect_delay=60.0) as box:
        await poll(box)
        padded = '{"action":"ping"}'.ljust(16 * 1024)
        response = await box.request(
            "POST", f"{SESSION}/xhr_send", json.dumps([padded] * 255).encode()
        )
        assert (response.status, response.body) == (204, b"")
        pushes: list[dict[str, Any]] = []
        while len(pushes) < 255:
            pushes += pushes_of(await poll(box))
        assert pushes == [{"type": "pong"}] * 255


async def test_an_xhr_send_that_is_too_large_is_answered_and_the_session_goes_on(
    engine: str,
) -> None:
    async with opened_box(engine, sockjs_disconnect_delay=60.0) as box:
        await poll(box)
        body = b" " * (256 * 16 * 1024 + 1)
        sent = await box.request("POST", f"{SESSION}/xhr_send", body, Origin="https://a.example")
        assert (sent.status, sent.body) == (413, b"too large")
        assert sent.headers["access-control-allow-origin"] == "https://a.example"
        await post_verb(box, action="ping")
        assert pushes_of(await poll(box)) == [{"type": "pong"}]


async def test_bodies_of_all_readers_together_are_bounded_and_the_largest_goes(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = watched_bodies(monkeypatch)
    bodies.most = 100_000
    async with opened_box(engine, sockjs_disconnect_delay=60.0) as box, box.opened() as hog:
        await poll(box)
        hog.send(
            f"POST {SESSION}/xhr_send HTTP/1.1\r\nHost: x\r\nOrigin: https://a.example\r\n"
            f"Content-Length: 100000\r\n\r\n[{' ' * 98_999}".encode()
        )
        await until(lambda: bodies.held == 99_000)
        await post_verb(box, action="ping", ref="x" * 2_000)
        assert bodies.held == 0
        hog.send(b" " * 1_000)
        sent = Response.of(await hog.read_until(b"not now: no room"))
        assert (sent.status, sent.headers["retry-after"]) == (503, "1")
        assert sent.headers["access-control-allow-origin"] == "https://a.example"


async def test_several_verbs_in_one_xhr_send_and_one_that_is_no_string(box: Box) -> None:
    await poll(box)
    body = json.dumps(['{"action":"ping","ref":1}', 7, '{"action":"ping","ref":2}']).encode()
    await box.request("POST", f"{SESSION}/xhr_send", body, Content_Type="text/plain")
    pushes: list[dict[str, Any]] = []
    while len(pushes) < 3:
        pushes += pushes_of(await poll(box))
    assert [p.get("ref", p.get("code")) for p in pushes] == [1, 107, 2]


async def test_an_over_long_verb_closes_the_session(box: Box) -> None:
    await poll(box)
    body = json.dumps(["x" * 17_000]).encode()
    await box.request("POST", f"{SESSION}/xhr_send", body)
    assert [push["code"] for push in pushes_of(await poll(box))] == [107, 1009]
    assert await poll(box) == 'c[1009,"frame too large"]'
    assert await poll(box) == 'c[1009,"frame too large"]'


async def test_a_reader_who_is_too_slow_for_what_an_over_long_verb_gets_is_closed_once(
    engine: str,
) -> None:
    limits = OutboxLimits(hard_bytes=1_000, soft_bytes=1_000)
    async with opened_box(engine, outbox=limits) as box:
        await poll(box)
        for _ in range(3):
            await post_verb(box, action="ping")
        body = json.dumps(["x" * 17_000]).encode()
        assert (await box.request("POST", f"{SESSION}/xhr_send", body)).status == 204
        assert [push["code"] for push in pushes_of(await poll(box))] == [4101]
        assert await poll(box) == 'c[4101,"too slow to read"]'


async def test_a_session_that_gets_into_a_log_doesnt_say_its_name(box: Box) -> None:
    await poll(box)
    (reader,) = box.gateway.core.readers.open
    assert SESSION.rpartition("/")[2] not in repr(reader)


async def test_a_polling_reader_is_bounded_like_all_others(engine: str) -> None:

    limits = OutboxLimits(hard_bytes=50_000, soft_bytes=50_000)
    async with opened_box(engine, outbox=limits) as box:
        await poll(box)
        await post_verb(box, action="subscribe", topic="video.feed")
        await poll(box)
        async with box.reader("video.feed") as other:
            for n in range(20):
                box.publish("video.feed", body=[n, "x" * 9_000])
                await other.hear()
        bodies = [p["body"][0] for p in pushes_of(await poll(box))]
        assert bodies == list(range(20 - len(bodies), 20))
        assert len(bodies) <= 5


# xhr_streaming and eventsource.


async def test_streaming_opens_says_and_hears(box: Box) -> None:
    async with streaming(box) as lines:
        assert await lines.next() == "o"
        await post_verb(box, action="subscribe", topic="news.breaking")
        assert pushes_of(await lines.next())[0]["type"] == "subscribed"
        box.publish(body=TRICKY)
        frame = await lines.next()
        assert "\u2028" not in frame
        assert "\\ud83d\\ude00" in frame.replace("\\\\", "\\")
        assert pushes_of(frame)[0]["body"] == TRICKY


async def test_a_streaming_response_ends_after_its_limit_and_nothing_is_lost(engine: str) -> None:
    async with opened_box(engine, sockjs_response_bytes=4096) as box:
        async with streaming(box) as lines:
            assert await lines.next() == "o"
            await post_verb(box, action="subscribe", topic="news.breaking")
            await lines.next()
            async with box.reader("news.breaking") as other:
                for n in range(20):
                    box.publish(body=[n, "x" * 500])
                await other.hear_bodies(20)
            frames = await lines.rest()
        bodies = [p["body"][0] for frame in frames for p in pushes_of(frame)]
        while len(bodies) < 20:
            bodies += [p["body"][0] for p in pushes_of(await poll(box))]
        assert bodies == list(range(20))


async def test_streaming_to_http_1_0_ends_with_the_connection(engine: str) -> None:
    async with opened_box(engine, sockjs_response_bytes=10) as box, box.opened() as raw:
        raw.send_request(
            "POST", f"{SESSION}/xhr_streaming", version="HTTP/1.0", Connection="keep-alive"
        )
        head = Response.of(await raw.read_until(b"\r\n\r\n"))
        assert "transfer-encoding" not in head.headers
        assert await raw.read_until(b"o\n") == b"h" * 2048 + b"\no\n"
        await post_verb(box, action="ping")
        assert b"pong" in await raw.read_all()


async def test_eventsource(box: Box) -> None:
    async with box.opened() as raw:
        raw.send_request("GET", f"{SESSION}/eventsource")
        head = Response.of(await raw.read_until(b"\r\n\r\n"))
        assert head.headers["content-type"] == "text/event-stream"
        assert dechunked(await raw.read_until(b"\r\n\r\n\r\n")).startswith(b"\r\n")
        await post_verb(box, action="ping")
        assert b'data: a["{\\"type\\":\\"pong\\"}"]\r\n\r\n' in await raw.read_until(b"]\r\n\r\n")


async def test_heartbeats(engine: str) -> None:
    async with opened_box(engine, heartbeat=0.05) as box:
        async with streaming(box) as lines:
            assert [await lines.next() for _ in range(3)] == ["o", "h", "h"]
        assert await poll(box, "/sockjs/0/other") == "o"
        assert await poll(box, "/sockjs/0/other") == "h"


async def test_a_stream_whose_reader_acknowledges_nothing_ends(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened_box(engine, heartbeat=0.05) as box, streaming(box) as lines:
        assert [await lines.next() for _ in range(2)] == ["o", "h"]
        monkeypatch.setattr(sessions, "since_acknowledged", lambda _: 60.0)
        # The stream ends at once, whatever part of a goodbye is on its way.
        await until(lambda: not box.gateway.core.readers.open)


async def test_a_drain_tells_streaming_and_polling_readers(engine: str) -> None:
    async with opened_box(engine) as box:
        await poll(box, "/sockjs/0/polling")
        stack = contextlib.AsyncExitStack()
        lines = await stack.enter_async_context(streaming(box))
        await lines.next()
        waiting = asyncio.create_task(poll(box, "/sockjs/0/polling"))
        await until(lambda: all(not c.blocked for c in box.gateway.core.readers.open))
    assert pushes_of(await waiting)[0]["code"] == 1012
    assert pushes_of(await lines.next())[0]["code"] == 1012
    assert await lines.next() == 'c[1012,"this box is being drained"]'
    with pytest.raises(EOFError):
        await lines.next()
    await stack.aclose()


async def test_a_full_box_answers_503_and_keeps_its_sessions(engine: str) -> None:
    async with opened_box(engine, capacity=1) as box:
        await poll(box)
        for transport in ("xhr", "xhr_streaming"):
            response = await box.request("POST", f"/sockjs/0/another/{transport}")
            assert response.status == 503
            assert int(response.headers["retry-after"]) > 0
        await post_verb(box, action="ping")
        assert pushes_of(await poll(box)) == [{"type": "pong"}]


async def test_pages_of_other_origins_are_kept_out(engine: str) -> None:
    async with opened_box(engine, origins=("https://news.example",)) as box:
        for path in ("info", "0/s/xhr_streaming", "0/s/eventsource"):
            method = "POST" if "xhr" in path else "GET"
            response = await box.request(method, f"/sockjs/{path}", Origin="https://evil.example")
            assert response.status == 403
        assert await poll(box, Origin="https://news.example") == "o"


# WebSocket.


@contextlib.asynccontextmanager
async def websocket(box: Box) -> AsyncIterator[Any]:
    async with websockets.connect(f"ws://{box.host}{SESSION}/websocket") as connection:

        async def hear() -> str:
            return str(await asyncio.wait_for(connection.recv(), PATIENCE))

        assert await hear() == "o"
        yield connection, hear


async def test_websocket_says_and_hears(box: Box) -> None:
    async with websocket(box) as (connection, hear):
        await connection.send(verb(action="subscribe", topic="news.breaking").decode())
        assert pushes_of(await hear())[0]["type"] == "subscribed"
        box.publish(body=TRICKY)
        assert pushes_of(await hear())[0]["body"] == TRICKY
        await connection.send("")
        await connection.send('["{\\"action\\":\\"ping\\",\\"ref\\":1}","{}"]')
        assert pushes_of(await hear()) == [{"type": "pong", "ref": 1}]
        assert pushes_of(await hear())[0]["code"] == 107
        await connection.send('"{\\"action\\":\\"ping\\"}"')
        assert pushes_of(await hear()) == [{"type": "pong"}]


async def test_broken_json_ends_a_websocket(box: Box) -> None:
    async with websocket(box) as (connection, hear):
        await connection.send('["x')
        with pytest.raises(websockets.ConnectionClosed) as closed:
            await hear()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1002


async def test_broken_json_on_a_websocket_ends_tcp_at_once(engine: str) -> None:
    async with opened_box(engine, linger=3600.0) as box, box.opened() as raw:
        assert (await raw.upgrade(f"{SESSION}/websocket")).status == 101
        assert await raw.read_frame() == (0x81, b"o")
        raw.send_frame(0x81, b'["x')
        first, payload = await raw.read_frame()
        assert (first, payload[:2]) == (0x88, (1002).to_bytes(2, "big"))
        # The close frame isn't answered, and the gateway doesn't wait for that.
        assert await raw.read_all() == b""


async def test_websocket_heartbeats(engine: str) -> None:
    # A client that answers later than after two heartbeats is closed.
    async with opened_box(engine, heartbeat=1.0) as box, websocket(box) as (_, hear):
        assert [await hear(), await hear()] == ["h", "h"]


async def test_pings_are_answered_with_the_same_bytes_on_every_transport(box: Box) -> None:
    pings = ['{"action":"ping"}', '{"action":"ping","ref":"s1"}', '{"action":"ping","ref":7}']
    pongs = ['{"type":"pong"}', '{"type":"pong","ref":"s1"}', '{"type":"pong","ref":7}']
    async with websocket(box) as (connection, hear):
        for ping, pong in zip(pings, pongs, strict=True):
            await connection.send(json.dumps([ping]))
            assert await hear() == "a" + json.dumps([pong])
        await connection.send(json.dumps(pings))
        assert [await hear() for _ in pings] == ["a" + json.dumps([pong]) for pong in pongs]
    await poll(box)
    response = await box.request("POST", f"{SESSION}/xhr_send", json.dumps(pings).encode())
    assert response.status == 204
    got: list[str] = []
    while len(got) < len(pongs):
        got += json.loads((await poll(box)).removeprefix("a"))
    assert got == pongs


async def test_a_flood_ends_a_websocket(engine: str) -> None:
    limits = ReaderLimits(verbs=2, refusals=1, verbs_per_second=0.001)
    async with opened_box(engine, reader=limits) as box, websocket(box) as (connection, hear):
        for _ in range(4):
            await connection.send(verb(action="ping").decode())
        frames = [await hear() for _ in range(5)]
        assert [pushes_of(f)[0]["type"] for f in frames[:4]] == [
            "pong",
            "pong",
            "error",
            "disconnect",
        ]
        assert frames[4] == 'c[4102,"too many requests"]'


async def test_the_raw_websocket_of_sockjs(box: Box) -> None:
    async with websockets.connect(f"ws://{box.host}/sockjs/websocket") as connection:
        await connection.send('{"action":"ping"}')
        assert json.loads(await asyncio.wait_for(connection.recv(), PATIENCE)) == {"type": "pong"}


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ({}, b'Can "Upgrade" only to "WebSocket".'),
        ({"Upgrade": "websocket", "Connection": "close"}, b'"Connection" must be "Upgrade".'),
    ],
)
async def test_a_websocket_url_wants_an_upgrade(
    box: Box, headers: dict[str, str], text: bytes
) -> None:
    async with box.opened() as raw:
        raw.send_request("GET", f"{SESSION}/websocket", **headers)
        response = Response.of(await raw.read_until(text))
        assert response.status == 400


# Behind a balancer.


async def test_a_cookie_for_balancers_when_it_is_wanted(engine: str) -> None:
    async with opened_box(engine, sockjs_cookie=True, sockjs_legacy=True) as box:
        info = await box.request("GET", "/sockjs/info")
        assert info.json()["cookie_needed"] is True
        requests = [
            ("POST", "a/xhr"), ("POST", "a/xhr_send"), ("POST", "b/xhr_streaming"),
            ("GET", "c/eventsource"), ("GET", "d/htmlfile?c=x"), ("GET", "e/jsonp?c=x"),
            ("POST", "e/jsonp_send"), ("OPTIONS", "a/xhr"),
        ]  # fmt: skip
        kept = {"x=1": "dummy", "JSESSIONID=box-1.7": "box-1.7", 'JSESSIONID="a;b"': "dummy"}
        for n, (cookie, expected) in enumerate(kept.items()):
            for method, path in requests:
                async with box.opened() as raw:
                    raw.send_request(method, f"/sockjs/0/{n}{path}", Cookie=cookie)
                    head = Response.of(await raw.read_until(b"\r\n\r\n"))
                assert head.headers["set-cookie"] == f"JSESSIONID={expected}; path=/", path


@pytest.mark.parametrize("bound", [True, False])
async def test_a_session_stays_at_its_address_where_it_is_asked_to(
    engine: str, bound: bool
) -> None:
    async with opened_box(engine, sockjs_same_address=bound) as box:

        async def status(address: str, transport: str) -> int:
            reader, writer = await asyncio.open_connection(
                *box.host.split(":"), local_addr=(address, 0)
            )
            raw = RawSocket(reader, writer)
            raw.send_request("POST", f"{SESSION}/{transport}", verb(action="ping"))
            head = Response.of(await raw.read_until(b"\r\n\r\n"))
            writer.close()
            return head.status

        assert await status("127.0.0.1", "xhr") == 200
        assert await status("127.0.0.2", "xhr_send") == (404 if bound else 204)
        assert await status("127.0.0.1", "xhr_send") == 204
        assert await status("127.0.0.2", "xhr") == (404 if bound else 200)


async def test_behind_https_the_cookie_works_for_pages_of_other_sites(engine: str) -> None:
    url = "https://box-1.example.org"
    async with opened_box(engine, sockjs_cookie=True, public_url=url) as box:
        answer = await box.request("POST", f"{SESSION}/xhr")
        assert answer.headers["set-cookie"] == "JSESSIONID=dummy; path=/; Secure; SameSite=None"


async def test_a_gateway_without_websocket(engine: str) -> None:
    async with opened_box(engine, websocket=False) as box:
        assert (await box.request("GET", "/sockjs/info")).json()["websocket"] is False
        for path in ("/websocket", "/sockjs/websocket", f"{SESSION}/websocket"):
            async with box.opened() as raw:
                assert (await raw.upgrade(path)).status == 404
        assert await poll(box) == "o"


# The old transports.


async def test_with_a_list_scripts_and_frames_must_say_that_they_are_of_our_own_host(
    engine: str,
) -> None:
    origins = ("https://news.example",)
    async with opened_box(engine, sockjs_legacy=True, origins=origins) as box:
        for transport in ("jsonp", "htmlfile"):
            path = f"/sockjs/0/{transport}/{transport}?c=x"
            for page in ({}, {"Sec_Fetch_Site": "same-site"}, {"Origin": ""}, {"Origin": "null"}):
                refused = await box.request("GET", path, **page)
                assert (refused.status, refused.body) == (403, b"origin not allowed"), page
        own = await box.request("GET", "/sockjs/0/s/jsonp?c=x", Sec_Fetch_Site="same-origin")
        assert (own.status, own.body) == (200, b'/**/x("o");\r\n')
        async with box.opened() as raw:
            raw.send_request("GET", "/sockjs/0/h/htmlfile?c=x", Sec_Fetch_Site="same-origin")
            head = Response.of(await raw.read_until(b"\r\n\r\n"))
        policy = "frame-ancestors 'self' https://news.example"
        assert head.headers["content-security-policy"] == policy


async def test_legacy_transports_when_they_are_wanted(engine: str) -> None:
    async with opened_box(engine, sockjs_legacy=True) as box:
        first = await box.request("GET", f"{SESSION}/jsonp?c=page.cb")
        assert (first.status, first.body) == (200, b'/**/page.cb("o");\r\n')
        form = b"d=" + b"%5B%22%7B%5C%22action%5C%22%3A%5C%22ping%5C%22%7D%22%5D"
        sent = await box.request(
            "POST",
            f"{SESSION}/jsonp_send",
            form,
            Content_Type="application/x-www-form-urlencoded",
        )
        assert (sent.status, sent.body) == (200, b"ok")
        heard = await box.request("GET", f"{SESSION}/jsonp?c=page.cb")
        assert b"pong" in heard.body
        for transport in ("jsonp", "htmlfile"):
            missing = await box.request("GET", f"/sockjs/0/x/{transport}")
            assert (missing.status, missing.body) == (500, b'"callback" parameter required')
            evil = await box.request("GET", f"/sockjs/0/x/{transport}?c=alert(1)//")
            assert (evil.status, evil.body) == (500, b'invalid "callback" parameter')
        async with box.opened() as raw:
            raw.send_request("GET", "/sockjs/0/html/htmlfile?c=_jp.a_b")
            assert b"var c = parent._jp.a_b;" in await raw.read_until(b"</script>")
            await raw.read_until(b'<script>\np("o");\n</script>\r\n')
