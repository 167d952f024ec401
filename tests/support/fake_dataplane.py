"""A data plane without readers: it records commands and sends events, by the protocol's table.

Tests of the bytes themselves are in tests/gateway/native/test_commands.py and test_events.py, and
in the data plane's crate.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import socket
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from gateway.native.table import FORMS, VERSION, CommandKind, EventKind
from gateway.native.wire import decode, encode

PATIENCE = 60.0
READER = struct.pack("<HII", 1, 7, 3)


@dataclasses.dataclass
class ReceivedCommand:
    name: str
    fields: dict[str, Any]


def decoded(data: bytes) -> list[ReceivedCommand]:
    """Decode the commands in ``data``, of which no byte may be left over."""
    found = []
    while data:
        length, number = struct.unpack_from("<IB", data)
        kind = CommandKind(number)
        fields = _plain(decode(kind, data[5 : 4 + length]))
        found.append(ReceivedCommand(kind.name.lower(), fields))
        data = data[4 + length :]
    return found


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    """Name the fields of records, as tests compare them."""
    if "json" in fields:
        return dict(json.loads(fields["json"]))
    if "acceptance" in fields:
        fields |= named("acceptance", fields.pop("acceptance"))
    if "message" in fields:
        fields["message"] = named("message", fields["message"])
    if "messages" in fields:
        fields["messages"] = [named("message", one) for one in fields["messages"]]
    return fields


def named(record: str, values: tuple[Any, ...]) -> dict[str, Any]:
    names = [field.split()[0] for field in FORMS[record].split(", ")]
    return dict(zip(names, values, strict=True))


def event(kind: int, body: bytes) -> bytes:
    return struct.pack("<IB", 1 + len(body), kind) + body


def attached(
    *, pid: int = 99, attachment: int = 1, readers: int = 0, port: int = 8080, blob: bytes = b""
) -> bytes:
    return encode(EventKind.ATTACHED, VERSION, pid, attachment, readers, [port], blob)


def verbs(*texts: bytes, connections: bytes = READER, auth: bytes = b"") -> bytes:
    """Encode the event that each of ``connections`` (10 bytes each) has sent all of ``texts``."""
    return encode(EventKind.VERBS, [(connections, auth, text) for text in texts])


def published(number: int) -> bytes:
    return encode(EventKind.PUBLISHED, number)


def handover(address: str = "192.0.2.1") -> bytes:
    return encode(EventKind.HANDOVER, address)


def counters(**values: int) -> bytes:
    all_of_them = [(name.replace("__", "."), value) for name, value in values.items()]
    return encode(EventKind.COUNTERS, all_of_them)


def refused(why: str) -> bytes:
    return encode(EventKind.REFUSED, why)


class Visit:
    """The connection of one control plane."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._buffer = b""
        self._commands: list[ReceivedCommand] = []
        self.left = False

    async def hear(self, *but: str) -> ReceivedCommand:
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
        await self.send_events(attached(**fields))
        return await self.hear_named("settings")

    async def send_events(self, data: bytes) -> None:
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
