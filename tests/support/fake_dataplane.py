"""A data plane written from docs/dataplane-protocol.md alone: it records commands and sends events.

It has no readers and imports nothing of the gateway, so that the two ends of the protocol check
each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import socket
import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

PATIENCE = 60.0
READER = struct.pack("<HII", 1, 7, 3)


class Body:
    """A reader of a command's fields."""

    def __init__(self, body: bytes) -> None:
        self.body, self.at = body, 0

    def take(self, size: int) -> bytes:
        self.at += size
        assert self.at <= len(self.body)
        return self.body[self.at - size : self.at]

    def connections(self) -> bytes:
        return self.take(10 * self.number("H"))

    def number(self, form: str) -> int:
        (value,) = struct.unpack("<" + form, self.take(struct.calcsize("<" + form)))
        return int(value)

    def data(self, form: str) -> bytes:
        return self.take(self.number(form))

    def topic(self) -> tuple[Any, ...]:
        return self.data("B").decode(), self.number("B")

    def message(self) -> dict[str, Any]:
        return {
            "id": self.take(16).hex(),
            "version": self.number("q"),
            "key": self.data("H").decode(),
            "push": self.data("I"),
        }

    def messages(self) -> list[dict[str, Any]]:
        return [self.message() for _ in range(self.number("I"))]


def _hello(b: Body) -> dict[str, Any]:
    return {"magic": b.take(4), "version": b.number("H")}


def _settings(b: Body) -> dict[str, Any]:
    names = (
        "capacity heartbeat_ms linger_ms retry_after_ms head_bytes unfinished_ms message_bytes"
        " topics verbs verbs_per_second refusals waiting hard_bytes soft_bytes soft_ms"
    )
    found: dict[str, Any] = {name: b.number("I") for name in names.split()}
    # Up to version 6, these bytes were limits of a data plane's memory.
    b.take(4)
    names = "fanout_chunk deflate_bytes per_address"
    found |= {name: b.number("I") for name in names.split()}
    found["once_hub_topics"] = b.number("I")
    b.take(12)
    names = "identities identity_ms alone_ms drain_ms drain_per_second"
    found |= {name: b.number("I") for name in names.split()}
    found["origins"] = [b.data("H").decode() for _ in range(b.number("H"))]
    found["reasons"] = [
        (b.data("B").decode(), b.number("H"), b.data("B").decode(), b.number("B"), b.number("I"))
        for _ in range(b.number("B"))
    ]
    found["cookie"] = b.data("B").decode()
    found["pong_ms"] = b.number("I")
    found["websocket"] = bool(b.number("B"))
    found["sockjs_cookie"] = bool(b.number("B"))
    found["handovers"] = b.number("I")
    found["proxy_from"] = [b.data("B").decode() for _ in range(b.number("H"))]
    found["outbox_bytes"] = b.number("Q")
    found["stalled_ms"] = b.number("I")
    return found


def _auth(b: Body) -> dict[str, Any]:
    return {
        "connections": b.connections(),
        "user": b.data("B").decode(),
        "issued_ms": b.number("Q"),
        "ends_ms": b.number("Q"),
        "blob": b.data("H"),
        "push": b.data("I"),
    }


def _evict(b: Body) -> dict[str, Any]:
    reason = b.data("B").decode()
    users = [(b.data("B").decode(), b.number("Q")) for _ in range(b.number("I"))]
    return {"reason": reason, "users": users}


def _publish(b: Body) -> dict[str, Any]:
    return {"number": b.number("Q"), "topic": b.topic(), "message": b.message()}


def _subscribe(b: Body) -> dict[str, Any]:
    return {
        "connections": b.connections(),
        "topic": b.topic(),
        "batch": b.number("Q"),
        "seen": b.number("B"),
        "ref": b.data("H"),
        "push": b.data("I"),
        "messages": b.messages(),
    }


COMMANDS: dict[int, tuple[str, Callable[[Body], dict[str, Any]]]] = {
    1: ("hello", _hello),
    2: ("settings", _settings),
    3: ("publish", _publish),
    5: ("subscribe", _subscribe),
    6: ("unsubscribe", lambda b: {
        "connections": b.connections(), "name": b.data("B").decode(), "push": b.data("I")}),
    7: ("reply", lambda b: {"connections": b.connections(), "push": b.data("I")}),
    9: ("close", lambda b: {
        "connections": b.connections(), "name": b.data("B").decode(),
        "retry_after_ms": b.number("I")}),
    10: ("remember", lambda b: {"blob": b.data("I")}),
    11: ("drain", lambda b: {"seconds_ms": b.number("I"), "per_second": b.number("I")}),
    12: ("count", lambda b: {}),
    20: ("shed", lambda b: {
        "name": b.data("B").decode(), "count": b.number("I"), "retry_ms": b.number("I")}),
    15: ("batch", lambda b: {
        "number": b.number("Q"), "topic": b.topic(), "messages": b.messages()}),
    16: ("auth", _auth),
    17: ("evict", _evict),
    23: ("stamp", lambda b: {"taken_ms": b.number("Q"), "series": b.data("B").decode()}),
    24: ("mark", lambda b: {"mark": b.data("H")}),
    21: ("gone", lambda b: {"address": b.data("B").decode()}),
    22: ("kept", lambda b: {
        "connections": {b.data("B").decode(): b.number("I") for _ in range(b.number("I"))}}),
}  # fmt: skip


@dataclasses.dataclass
class Command:
    name: str
    fields: dict[str, Any]


def decoded(data: bytes) -> list[Command]:
    """Decode the commands in ``data``, of which no byte may be left over."""
    found = []
    while data:
        length, kind = struct.unpack_from("<IB", data)
        name, read = COMMANDS[kind]
        body = Body(data[5 : 4 + length])
        fields = read(body)
        assert body.at == length - 1, (name, body.at, length)
        found.append(Command(name, fields))
        data = data[4 + length :]
    return found


def event(kind: int, body: bytes) -> bytes:
    return struct.pack("<IB", 1 + len(body), kind) + body


def attached(
    *, pid: int = 99, attachment: int = 1, readers: int = 0, port: int = 8080, blob: bytes = b""
) -> bytes:
    head = struct.pack("<HIIIBHI", 9, pid, attachment, readers, 1, port, len(blob))
    return event(129, head + blob)


def verbs(*texts: bytes, connections: bytes = READER, auth: bytes = b"") -> bytes:
    """Encode the event that each of ``connections`` (10 bytes each) has sent all of ``texts``."""
    head = struct.pack("<H", len(connections) // 10) + connections + struct.pack("<H", len(auth))
    body = b"".join(head + auth + struct.pack("<I", len(text)) + text for text in texts)
    return event(130, struct.pack("<I", len(texts)) + body)


def published(number: int) -> bytes:
    return event(132, struct.pack("<Q", number))


def handover(address: str = "192.0.2.1") -> bytes:
    return event(133, bytes((len(address),)) + address.encode())


def counters(**values: int) -> bytes:
    named = {name.replace("__", ".").encode(): value for name, value in values.items()}
    parts = [bytes((len(n),)) + n + struct.pack("<Q", value) for n, value in named.items()]
    return event(134, struct.pack("<H", len(parts)) + b"".join(parts))


def refused(why: str) -> bytes:
    return event(135, bytes((len(why),)) + why.encode())


class Visit:
    """The connection of one control plane."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._buffer = b""
        self._commands: list[Command] = []
        self.left = False

    async def hear(self, *but: str) -> Command:
        """Return the next command, skipping those named ``but``."""
        while True:
            while not self._commands:
                await self._more()
            command = self._commands.pop(0)
            if command.name not in but:
                return command

    async def hear_named(self, name: str) -> dict[str, Any]:
        """Return the fields of the next command, ``name``, after any that may come at any time."""
        command = await self.hear(*{"remember", "gone", "kept", "mark", "stamp"} - {name})
        assert command.name == name, command
        return command.fields

    async def greet(self, **fields: Any) -> dict[str, Any]:
        """Answer ``hello``; return the settings that follow."""
        await self.hear_named("hello")
        await self.say(attached(**fields))
        return await self.hear_named("settings")

    async def say(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self._socket, data)

    def hand_over(self, data: bytes, *descriptors: int) -> None:
        socket.send_fds(self._socket, [data], list(descriptors))

    async def ended(self) -> None:
        """Wait until the control plane has closed the link."""
        with contextlib.suppress(EOFError):
            while True:
                await self._more()

    def leave(self) -> None:
        self.left = True
        self._socket.close()

    async def _more(self) -> None:
        loop = asyncio.get_running_loop()
        data = await asyncio.wait_for(loop.sock_recv(self._socket, 1 << 20), PATIENCE)
        if not data:
            raise EOFError
        self._buffer += data
        while len(self._buffer) >= 4:
            end = 4 + int(struct.unpack_from("<I", self._buffer)[0])
            if len(self._buffer) < end:
                return
            self._commands += decoded(self._buffer[:end])
            self._buffer = self._buffer[end:]


class FakeDataplane:
    """A listener at ``path`` for control planes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(path))
        self._listening.listen()
        self._listening.setblocking(False)
        self._visits: list[Visit] = []

    async def visited(self) -> Visit:
        """Accept the next control plane's connection."""
        loop = asyncio.get_running_loop()
        connection, _ = await asyncio.wait_for(loop.sock_accept(self._listening), PATIENCE)
        connection.setblocking(False)
        self._visits.append(Visit(connection))
        return self._visits[-1]

    def close(self) -> None:
        self._listening.close()
        self.path.unlink(missing_ok=True)
        for visit in self._visits:
            visit.leave()


@contextlib.asynccontextmanager
async def fake_dataplane(path: Path) -> AsyncIterator[FakeDataplane]:
    plane = FakeDataplane(path)
    try:
        yield plane
    finally:
        plane.close()
