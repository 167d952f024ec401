"""SockJS cases: WebSocket, balancers in front, characters, and versions of HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json

import websockets
from dialogue import NONCE, Dialogue, Response, Stream, exchange
from sockjs_suite import (
    GO_AWAY,
    MANGLED,
    PRELUDE,
    case,
    poll,
    post_verbs,
    read_info,
)

# WebSocket.


@case()
async def websocket(d: Dialogue) -> None:
    async with d.websocket(f"{d.session}/websocket") as ws:
        assert await ws.hear() == "o"
        for text in ('["a"]', '[ "b" ]'):
            await ws.connection.send(text)
            assert await ws.hear() == "a" + text.replace(" ", "")
        await ws.connection.send("")
        await ws.connection.send("[]")
        await ws.connection.send(["[", '"fragm', 'ented"', "]"])
        assert await ws.hear() == 'a["fragmented"]'
        await ws.connection.send('"alone"')
        assert await ws.hear() == 'a["alone"]'


@case()
async def several_messages_in_one_frame(d: Dialogue) -> None:
    async with d.websocket(f"{d.session}/websocket") as ws:
        assert await ws.hear() == "o"
        await ws.connection.send('["a","b"]')
        heard: list[str] = []
        while len(heard) < 2:
            # One frame or two frames: both are right.
            frame = str(await asyncio.wait_for(ws.connection.recv(), 60))
            heard += json.loads(frame.removeprefix("a"))
        assert heard == ["a", "b"]


@case()
async def a_session_name_twice_on_websockets(d: Dialogue) -> None:
    async with d.websocket(f"{d.session}/websocket") as one:
        assert await one.hear() == "o"
        async with d.websocket(f"{d.session}/websocket") as other:
            assert await other.hear() == "o"
            for ws, text in ((one, '["a"]'), (other, '["b"]')):
                await ws.connection.send(text)
                assert await ws.hear() == "a" + text
    async with d.websocket(f"{d.session}/websocket") as again:
        assert await again.hear() == "o"


@case()
async def broken_json_ends_a_websocket(d: Dialogue) -> None:
    async with d.websocket(f"{d.session}/websocket") as ws:
        assert await ws.hear() == "o"
        await ws.connection.send('["a')
        # Abruptly: the server sends no SockJS frame before the end.
        with contextlib.suppress(websockets.ConnectionClosed):
            raise AssertionError(await asyncio.wait_for(ws.connection.recv(), 60))
        await ws.closed()


@case()
async def the_handshake(d: Dialogue) -> None:
    for connection in ("Upgrade", "keep-alive, Upgrade"):
        async with d.stream(
            "GET", f"{d.session}/websocket", Upgrade="websocket", Connection=connection,
            Sec_WebSocket_Version="13", Sec_WebSocket_Key=NONCE,
        ) as stream:  # fmt: skip
            assert stream.head.status == 101
            headers = stream.head.headers
            assert headers["sec-websocket-accept"] == "HSmrc0sMlYUkAGmm5OPpG2HaGWk="
            assert headers["connection"].lower() == "upgrade"
            assert headers["upgrade"].lower() == "websocket"
            assert "content-length" not in headers


@case()
async def requests_that_are_no_handshake(d: Dialogue) -> None:
    for headers in ({}, {"Upgrade": "WebSocket", "Connection": "close"}):
        assert (await d.get("/0/0/websocket", **headers)).status == 400
    for headers in ({"Upgrade": "WebSocket", "Connection": "Upgrade"}, {}):
        async with d.stream("POST", "/0/0/websocket", **headers) as stream:
            assert stream.head.status == 405
            assert stream.head.headers["allow"]


@case()
async def raw_websocket(d: Dialogue) -> None:
    async with d.websocket("/websocket") as ws:
        for text in ("Hello world!\uffff", '["a"]', "not JSON"):
            await ws.connection.send(text)
            assert await ws.hear() == text
        await ws.connection.send(["frag", "men", "ted"])
        assert await ws.hear() == "fragmented"
        await ws.connection.close(3001, "bye")
        d.note("close", ws.connection.protocol.close_rcvd.code)


@case("close")
async def a_close_ends_a_websocket(d: Dialogue) -> None:
    async with d.websocket(f"{d.session}/websocket") as ws:
        assert [await ws.hear(), await ws.hear()] == ["o", GO_AWAY]
        await ws.closed()


@case("close")
async def a_close_ends_a_raw_websocket(d: Dialogue) -> None:
    async with d.websocket("/websocket") as ws:
        assert await ws.closed() == (3000, "Go away!")


# Behind a balancer.


@case("cookie")
async def a_cookie_that_keeps_a_session_at_its_server(d: Dialogue) -> None:
    assert (await read_info(d))["cookie_needed"] is True
    for kept, cookie in (({}, "dummy"), ({"Cookie": "JSESSIONID=abcdef"}, "abcdef")):
        d.session += "x"
        for method, transport in (
            ("OPTIONS", "xhr"), ("POST", "xhr"), ("POST", "xhr_send"),
        ):  # fmt: skip
            answer = await d.request(method, f"{d.session}/{transport}", **kept)
            keeps(answer, cookie)
        for method, transport in (
            ("POST", "xhr_streaming"), ("GET", "eventsource"), ("GET", "htmlfile?c=x"),
            ("GET", "jsonp?c=x"),
        ):  # fmt: skip
            d.session += "x"
            async with d.stream(method, f"{d.session}/{transport}", **kept) as stream:
                keeps(stream.head, cookie)


def keeps(answer: Response, value: str) -> None:
    parts = [part.strip() for part in answer.headers["set-cookie"].split(";")]
    assert (parts[0], parts[1].lower()) == (f"JSESSIONID={value}", "path=/")


@case("no_websocket")
async def a_server_without_websockets(d: Dialogue) -> None:
    assert (await read_info(d))["websocket"] is False
    for path in (f"{d.session}/websocket", "/websocket"):
        answer = await d.get(
            path, Upgrade="websocket", Connection="Upgrade", Sec_WebSocket_Version="13",
            Sec_WebSocket_Key=NONCE,
        )  # fmt: skip
        assert answer.status == 404
    assert await poll(d) == b"o\n"


# Characters.


@case()
async def what_browsers_mangle_is_escaped(d: Dialogue) -> None:
    mangled = "".join(chr(c) for c in range(255, 65536) if MANGLED.match(chr(c)))
    escaped = "".join(f"\\u{ord(c):04x}" for c in mangled)
    assert await poll(d) == b"o\n"
    await post_verbs(d, json.dumps([mangled], ensure_ascii=False).encode())
    assert await poll(d) == f'a["{escaped}"]\n'.encode()


@case()
async def every_character_comes_back(d: Dialogue) -> None:
    for first, last in ((0x00, 0x800), (0x800, 0x2800), (0x2800, 0xD800), (0xE000, 0x10000)):
        text = "".join(chr(c) for c in range(first, last))
        for ascii_only in (True, False):
            d.session += "x"
            assert await poll(d) == b"o\n"
            for start in range(0, len(text), 4096):
                part = text[start : start + 4096]
                await post_verbs(d, json.dumps([part], ensure_ascii=ascii_only).encode())
                assert json.loads((await poll(d))[1:]) == [part]


@case()
async def pairs_of_surrogates(d: Dialogue) -> None:
    text = "\U0001f600 \U00010000\U0010ffff"
    for ascii_only in (True, False):
        body = json.dumps([text], ensure_ascii=ascii_only)
        d.session += "x"
        assert await poll(d) == b"o\n"
        await post_verbs(d, body.encode())
        assert json.loads((await poll(d))[1:]) == [text]
        async with d.websocket(f"{d.session}/websocket") as ws:
            assert await ws.hear() == "o"
            await ws.connection.send(body)
            assert json.loads(str(await ws.hear())[1:]) == [text]


@case()
async def half_a_pair_of_surrogates(d: Dialogue) -> None:
    assert await poll(d) == b"o\n"
    await d.post(f"{d.session}/xhr_send", rb'["\ud800"]')
    await d.post(f"{d.session}/xhr_send", b'["after"]')
    await poll(d)
    async with d.websocket(f"{d.session}/websocket") as ws:
        assert await ws.hear() == "o"
        await ws.connection.send(r'["\udc00"]')
        await ws.outcome()


@case()
async def bytes_that_are_no_utf_8(d: Dialogue) -> None:
    assert await poll(d) == b"o\n"
    await d.post(f"{d.session}/xhr_send", b'["\xff"]')


# HTTP.


@case()
async def http_1_0(d: Dialogue) -> None:
    answer = await d.request("GET", "", version="1.0", Connection="Keep-Alive")
    assert (answer.status, answer.body) == (200, b"Welcome to SockJS!\n")
    assert "transfer-encoding" not in answer.headers


@case("close")
async def http_1_0_streaming(d: Dialogue) -> None:
    async with d.stream(
        "POST", f"{d.session}/xhr_streaming", version="1.0", Connection="Keep-Alive"
    ) as stream:
        assert not {"transfer-encoding", "content-length"} & stream.head.headers.keys()
        assert await stream.rest() == PRELUDE + b"o\n" + GO_AWAY.encode() + b"\n"


@case()
async def http_1_1_keeps_the_connection(d: Dialogue) -> None:
    async with d.connected() as streams:
        for _ in range(2):
            head = await exchange(*streams, "GET", d.prefix, Connection="Keep-Alive")
            assert head.status == 200
            assert head.headers.get("connection", "keep-alive").lower() == "keep-alive"
            assert await Stream(head, streams[0]).rest() == b"Welcome to SockJS!\n"


@case("close")
async def http_1_1_streaming(d: Dialogue) -> None:
    async with d.stream("POST", f"{d.session}/xhr_streaming", Connection="Keep-Alive") as stream:
        assert stream.head.headers["transfer-encoding"] == "chunked"
        assert "content-length" not in stream.head.headers
        assert await stream.rest() == PRELUDE + b"o\n" + GO_AWAY.encode() + b"\n"
