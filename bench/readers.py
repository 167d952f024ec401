"""Many readers in one process: raw WebSocket on asyncio protocols, as little work as can be.

Not a WebSocket library: it trusts the server, and understands just the unmasked text
frames that a gateway sends. The bench must not be what is measured.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
import time
from collections.abc import Callable
from typing import Final, cast
from urllib.parse import urlsplit

_SENT: Final = re.compile(rb'"sent_ns":(\d+)')


def _masked_text(text: bytes) -> bytes:
    # RFC 6455 section 5.3 wants a mask from us; a zero mask leaves the bytes as they are.
    length = len(text)
    head = bytes([0x81, 0x80 | length]) if length < 126 else b"\x81\xfe" + length.to_bytes(2, "big")
    return head + b"\0\0\0\0" + text


class Reader(asyncio.Protocol):
    """One connection; calls ``on_message(sent_ns, received_ns)`` for each stamped message."""

    def __init__(self, url: str, topic: str, on_message: Callable[[int, int], None]) -> None:
        parts = urlsplit(url)
        self._host, self._path, self._topic = parts.netloc, parts.path, topic
        self._on_message = on_message
        self._buffer = bytearray()
        self._upgraded = False
        self._transport: asyncio.Transport | None = None
        self.subscribed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)
        key = base64.b64encode(os.urandom(16)).decode()
        transport.write(
            f"GET {self._path} HTTP/1.1\r\nHost: {self._host}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
            f"Sec-WebSocket-Version: 13\r\n\r\n".encode()
        )

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        self._buffer += data
        if not self._upgraded and not self._upgrade():
            return
        while (payload := self._frame()) is not None:
            found = _SENT.search(payload)
            if found is not None:
                self._on_message(int(found[1]), now)
            elif b'"type":"subscribed"' in payload and not self.subscribed.done():
                self.subscribed.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.subscribed.done():
            self.subscribed.set_exception(exc or ConnectionError("closed before subscribed"))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _upgrade(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return False
        if not self._buffer.startswith(b"HTTP/1.1 101"):
            raise ConnectionError(bytes(self._buffer[:end]).decode("latin-1"))
        del self._buffer[: end + 4]
        self._upgraded = True
        assert self._transport is not None
        self._transport.write(
            _masked_text(b'{"action":"subscribe","topic":"%s"}' % self._topic.encode())
        )
        return True

    def _frame(self) -> bytes | None:
        """The next whole frame's payload; control frames come as they are."""
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        start, length = 2, buffer[1]
        if length == 126:
            start, length = 4, int.from_bytes(buffer[2:4], "big")
        elif length == 127:
            start, length = 10, int.from_bytes(buffer[2:10], "big")
        if len(buffer) < start + length:
            return None
        payload = bytes(buffer[start : start + length])
        del buffer[: start + length]
        return payload


async def connect_readers(
    url: str, topic: str, count: int, on_message: Callable[[int, int], None]
) -> list[Reader]:
    """``count`` readers of ``topic`` at ``url`` (a gateway's websocket_url), all subscribed."""
    loop = asyncio.get_running_loop()
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    readers = []
    for _ in range(count):
        _, reader = await loop.create_connection(
            lambda: Reader(url, topic, on_message), parts.hostname, parts.port
        )
        readers.append(reader)
    async with asyncio.timeout(30):
        for reader in readers:
            await reader.subscribed
    return readers
