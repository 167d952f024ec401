"""SockJS sessions over each of its transports, byte by byte, on the gateway's URLs."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from gateways import Box, RawSocket

from gateway.transports.bodies import RequestBodies

POLLING = ("xhr", "jsonp")
STREAMING = ("xhr_streaming", "eventsource", "htmlfile")
TRANSPORTS = ("websocket", *POLLING, *STREAMING)

_NUMBERS = itertools.count(1)
_CALLBACK = {"jsonp": "?c=f", "htmlfile": "?c=f"}
# The end of a packet in a stream.
_ENDS = {
    "xhr_streaming": b"]\n",
    "eventsource": b"]\r\n\r\n",
    "htmlfile": b']");\n</script>\r\n',
}


def watched_bodies(monkeypatch: pytest.MonkeyPatch) -> RequestBodies:
    """Return the next gateway's account of bodies being received, with a limit of 8 MiB."""
    bodies = RequestBodies(8 << 20)
    monkeypatch.setattr("gateway.transports.sockjs.sessions.RequestBodies", lambda _room: bodies)
    return bodies


class SockJsSession:
    """An open session: verbs up, pushes down."""

    def __init__(self, box: Box, transport: str, raw: RawSocket) -> None:
        self._box = box
        self._transport = transport
        self._raw = raw
        self._base = f"/sockjs/0/session-{next(_NUMBERS)}"
        self._heard: list[dict[str, Any]] = []

    async def open(self) -> None:
        """Open it, and wait for the packet ``o``."""
        if self._transport == "websocket":
            await self._raw.upgrade(f"{self._base}/websocket")
            assert (await self._raw.read_frame())[1] == b"o"
        elif self._transport in POLLING:
            assert _packet(self._transport, await self._poll()) == "o"
        else:
            method = "POST" if self._transport == "xhr_streaming" else "GET"
            self._raw.send_request(method, self._url)
            opened = {"xhr_streaming": b"o\n", "eventsource": b"data: o\r\n", "htmlfile": b'p("o")'}
            await self._raw.read_until(opened[self._transport])

    async def send_verbs(self, *verbs: dict[str, Any]) -> None:
        """Send the verbs in one packet."""
        await self.send_texts([json.dumps(verb) for verb in verbs])

    async def send_texts(self, texts: Sequence[str]) -> None:
        """Send texts, which may be no JSON, in one packet."""
        packet = json.dumps(texts).encode()
        if self._transport == "websocket":
            self._raw.send_frame(0x81, packet)
            return
        send = "jsonp_send" if self._transport == "jsonp" else "xhr_send"
        headers = {"Content-Type": "text/plain"}
        answer = await self._box.request("POST", f"{self._base}/{send}", packet, **headers)
        assert answer.status in (200, 204)

    async def hear(self, count: int) -> list[dict[str, Any]]:
        """Return the next ``count`` pushes."""
        while len(self._heard) < count:
            packet = await self._next()
            if packet.startswith("a"):
                self._heard += map(json.loads, json.loads(packet[1:]))
        heard, self._heard = self._heard[:count], self._heard[count:]
        return heard

    @property
    def _url(self) -> str:
        return f"{self._base}/{self._transport}{_CALLBACK.get(self._transport, '')}"

    async def _poll(self) -> bytes:
        method = "GET" if self._transport == "jsonp" else "POST"
        return (await self._box.request(method, self._url)).body

    async def _next(self) -> str:
        if self._transport == "websocket":
            return (await self._raw.read_frame())[1].decode()
        if self._transport in POLLING:
            return _packet(self._transport, await self._poll())
        return _packet(self._transport, await self._raw.read_until(_ENDS[self._transport]))


def _packet(transport: str, raw: bytes) -> str:
    """Return the SockJS packet in an answer, or in a piece of one with any bytes before it."""
    if transport in ("jsonp", "htmlfile"):
        literal: str = json.loads(raw[raw.rindex(b'("') + 1 : raw.rindex(b'")') + 1])
        return literal
    text = raw.decode()
    return (text[text.index("a[") :] if transport in STREAMING else text).strip()


@contextlib.asynccontextmanager
async def sockjs_session(box: Box, transport: str) -> AsyncIterator[SockJsSession]:
    """Open a session; jsonp and htmlfile need the gateway's ``sockjs_legacy``."""
    async with box.opened() as raw:
        session = SockJsSession(box, transport, raw)
        await session.open()
        yield session
