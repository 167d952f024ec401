"""A real data plane as its own process, and a control plane of a few lines that drives it.

For cases that a whole gateway would blur: exact counters, connections to the control socket that
break its rules, and readers while no control plane is attached.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import json
import resource
import socket
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
from envelopes import envelope
from gateways import PATIENCE, RawSocket

from gateway.core.core import Core
from gateway.native import commands
from gateway.native.events import (
    AttachedEvent,
    CountersEvent,
    Event,
    HandoverEvent,
    PublishedEvent,
    RefusedEvent,
    VerbsEvent,
)
from gateway.native.link import ControlLink, connected
from gateway.native.plane import Plane
from gateway.native.program import find_program
from gateway.process.settings import GatewaySettings, NativeSettings
from gateway.wire.frames import Framing
from gateway.wire.publication import Publication
from newsfabric.closing import CloseReason
from newsfabric.messages.envelope import id_of
from newsfabric.topics import SlowPolicy, TopicPolicy

LISTENS = "readers on port "
GREETING = b"GET /sockjs HTTP/1.1\r\nHost: x\r\n\r\n"
# A request that the data plane doesn't serve itself.
PAGE = b"GET /events?topic=news.breaking HTTP/1.1\r\nHost: x\r\n\r\n"


def gateway_settings(*, native: dict[str, Any] | None = None, **settings: Any) -> GatewaySettings:
    """Return the settings of a gateway that drains and lingers for a short time."""
    fast = {"drain_seconds": 0.0, "linger": 0.2, **settings}
    return GatewaySettings(
        name="box-1", region="oregon", native=NativeSettings(**(native or {})), **fast
    )


@dataclasses.dataclass
class Dataplane:
    """The process, its control socket and its log."""

    process: subprocess.Popen[bytes]
    path: Path
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def port(self) -> int:
        """The port for readers."""
        _, _, rest = self.log.read_text().partition(LISTENS)
        return int(rest.split(":")[0])

    def descriptors(self) -> int:
        """Count open file descriptors: each I/O thread has a table of its own."""
        tables = Path(f"/proc/{self.pid}/task").iterdir()
        return sum(len(list((table / "fd").iterdir())) for table in tables)

    @property
    def rss(self) -> int:
        return int(psutil.Process(self.pid).memory_info().rss)

    @property
    def cpu(self) -> float:
        """Seconds of CPU time used so far."""
        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)

    def leave_room_for(self, descriptors: int) -> None:
        """Limit each thread's table to ``descriptors`` more than the fullest table has now."""
        tables = Path(f"/proc/{self.pid}/task").iterdir()
        most = max(int(fd.name) for table in tables for fd in (table / "fd").iterdir())
        hard = resource.prlimit(self.pid, resource.RLIMIT_NOFILE)[1]
        resource.prlimit(self.pid, resource.RLIMIT_NOFILE, (most + 1 + descriptors, hard))

    async def ended(self, patience: float = PATIENCE) -> int:
        """Wait until the process has ended; return its exit code."""
        async with asyncio.timeout(patience):
            while (code := self.process.poll()) is None:  # noqa: ASYNC110 - no event tells it
                await asyncio.sleep(0.01)
        return code

    @contextlib.asynccontextmanager
    async def reader(self, **options: Any) -> AsyncIterator[RawSocket]:
        """Open a TCP connection to the readers' port."""
        async with raw_socket(self.port, **options) as raw:
            yield raw


@contextlib.asynccontextmanager
async def dataplane(
    folder: Path, *options: str, listening: socket.socket | None = None
) -> AsyncIterator[Dataplane]:
    """Start a data plane, and kill it at the end; fail if it ended with an error or panicked."""
    path, log = folder / "control", folder / "log"
    words = [word for option in options for word in option.split("=")]
    if listening is not None:
        words += ["--fd", str(listening.fileno())]
    with log.open("wb") as stderr:
        # Not asyncio's: killing an asyncio process needs an await.
        process = subprocess.Popen(  # noqa: ASYNC220
            [find_program(), "--control", path, *words],
            stderr=stderr,
            pass_fds=[] if listening is None else [listening.fileno()],
        )
    plane = Dataplane(process, path, log)
    try:
        async with asyncio.timeout(PATIENCE):
            # A line may arrive in pieces; this one ends with each thread's limit of descriptors.
            while not path.exists() or "descriptors" not in log.read_text().partition(LISTENS)[2]:
                assert process.poll() is None, log.read_text()
                await asyncio.sleep(0.005)
        yield plane
    finally:
        ended = process.poll()
        process.kill()
        process.wait()
    assert ended in (None, 0), log.read_text()
    assert "panicked" not in log.read_text()


@contextlib.asynccontextmanager
async def taking_over(plane: Dataplane) -> AsyncIterator[Successor]:
    """Start a newer data plane that takes over from ``plane``; kill it at the end."""
    command = [find_program(), "--take-over", "--control", plane.path]
    # As in `dataplane`.
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:  # noqa: ASYNC220
        try:
            yield Successor(process)
        finally:
            process.kill()


class Successor:
    """A data plane that takes over readers: see :func:`taking_over`."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    async def serves(self) -> None:
        """Wait until the successor has all readers."""
        assert self._process.stdout is not None
        line = asyncio.to_thread(self._process.stdout.readline)
        assert await asyncio.wait_for(line, PATIENCE) == b"serving\n"


@contextlib.asynccontextmanager
async def raw_socket(
    port: int, *, receive_buffer: int = 0, host: str = "127.0.0.1"
) -> AsyncIterator[RawSocket]:
    """Open a TCP connection on which a test can send any bytes."""
    sock = socket.socket()
    if receive_buffer:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, (host, port))
    # A small limit, so that asyncio doesn't read ahead for a reader that doesn't read.
    raw = RawSocket(*await asyncio.open_connection(sock=sock, limit=receive_buffer or 1 << 20))
    try:
        yield raw
    finally:
        await raw.close()


class Control:
    """A control plane that accepts every subscription. Made by :func:`attached`."""

    def __init__(self, path: Path, settings: GatewaySettings) -> None:
        self.settings = settings
        self.verbs: list[tuple[bytes, bytes, bytes]] = []
        self.handed: asyncio.Queue[tuple[socket.socket, str]] = asyncio.Queue()
        self.published = 0
        self.answers = True
        self.refused: str | None = None
        self.slow: SlowPolicy = "disconnect"
        self._socket = connected(path)
        self._link = ControlLink(self._socket, self._on_event, self._on_lost)
        self._counters: dict[str, int] = {}
        self._numbers = itertools.count(1)
        self._ms = 0
        self._changed = asyncio.Event()
        self.attached: AttachedEvent | None = None
        self.lost: str | None = None
        self.send(commands.hello())

    def send(self, command: bytes) -> None:
        self._link.send(command)

    def settle(self, settings: GatewaySettings) -> None:
        """Send other settings, which hold from now on."""
        self.settings = settings
        self.send(commands.settings(settings, capacity=settings.capacity))

    async def until(self, condition: Any) -> None:
        """Wait until ``condition`` holds, checked again after each event."""
        async with asyncio.timeout(PATIENCE):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def count(self) -> dict[str, int]:
        """Return fresh values of all counters."""
        self._counters.pop("accepts", None)
        self.send(commands.count())
        await self.until(lambda: "accepts" in self._counters)
        return self._counters

    async def until_counter(self, name: str, least: int) -> int:
        """Wait until counter ``name`` is ``least`` or more; return its value."""
        async with asyncio.timeout(PATIENCE):
            while (value := (await self.count()).get(name, 0)) < least:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        return value

    async def counted(self, **expected: int) -> dict[str, int]:
        """Wait until the counters have these values (``closes__lost=3``); return all counters."""
        wanted = {name.replace("__", "."): value for name, value in expected.items()}
        found = dict(await self.count())
        try:
            async with asyncio.timeout(PATIENCE):
                while wanted != {name: found.get(name, 0) for name in wanted}:
                    await asyncio.sleep(0.01)
                    found = dict(await self.count())
        except TimeoutError:
            assert {name: found.get(name, 0) for name in wanted} == wanted, found
        return found

    def publish(self, topic: str = "news.breaking", body: Any = None, **fields: Any) -> str:
        """Publish a message; return the JSON text of its push."""
        number = next(self._numbers)
        raw = json.dumps({"n": number} if body is None else body).encode()
        made = envelope(number, topic=topic, body=raw)
        self._ms = max(self._ms + 1, int(time.time() * 1000))
        made = dataclasses.replace(made, id=id_of(self._ms, made.identity), **fields)
        publication = Publication(made, TopicPolicy(pattern="#", slow=self.slow), None)
        self.send(commands.publish(number, publication))
        return publication.frame(Framing.RAW).decode()

    async def flushed(self) -> None:
        """Wait until every fan-out so far has finished."""
        last = next(self._numbers)
        made = envelope(last, topic="nobody.here")
        made = dataclasses.replace(made, id=id_of(int(time.time() * 1000), made.identity))
        self.send(commands.publish(last, Publication(made, TopicPolicy(pattern="#"), None)))
        await self.until(lambda: self.published >= last)

    def answer(self) -> None:
        """Reply to each received verb, for all its connections at once."""
        for connections, _, text in self.verbs:
            verb = json.loads(text)
            if verb["action"] == "subscribe":
                push = json.dumps({"type": "subscribed", "topic": verb["topic"]}).encode()
                policy = TopicPolicy(pattern="#", slow=self.slow)
                acceptance = commands.acceptance(
                    verb["topic"], policy, batch=0, seen=True, ref=b"", push=push
                )
                self.send(commands.subscribe(connections, acceptance))
            else:
                self.send(commands.reply(connections, json.dumps({"type": "pong"}).encode()))
        self.verbs.clear()

    def close_reader(self, connection: bytes, reason: CloseReason) -> None:
        self.send(commands.close(connection, reason))

    def leave(self) -> None:
        """Detach, and close every handed-over request that no test took."""
        self._link.close()
        while not self.handed.empty():
            self.handed.get_nowait()[0].close()

    def pause(self) -> None:
        """Stop reading the control socket, as a stopped process does."""
        asyncio.get_running_loop().remove_reader(self._socket)

    def _on_event(self, event: Event, descriptor: int | None) -> None:
        match event:
            case AttachedEvent():
                self.attached = event
            case VerbsEvent(verbs):
                self.verbs.extend(verbs)
                if self.answers:
                    self.answer()
            case CountersEvent(values):
                self._counters |= values
            case PublishedEvent(number):
                self.published = number
            case HandoverEvent(address):
                assert descriptor is not None
                self.handed.put_nowait((socket.socket(fileno=descriptor), address))
            case RefusedEvent(why):
                self.refused = why
        self._changed.set()

    def _on_lost(self, why: str) -> None:
        self.lost = why
        self._changed.set()


@contextlib.asynccontextmanager
async def attached(
    plane: Dataplane, settings: GatewaySettings | None = None
) -> AsyncIterator[Control]:
    """Attach a control plane to ``plane``, and send it the settings."""
    control = Control(plane.path, settings or gateway_settings())
    try:
        await control.until(lambda: control.attached)
        control.settle(control.settings)
        await control.count()
        yield control
    finally:
        control.leave()


@contextlib.asynccontextmanager
async def driven(
    folder: Path, *options: str, settings: GatewaySettings | None = None, **more: Any
) -> AsyncIterator[tuple[Dataplane, Control]]:
    """Start a data plane, and attach a control plane."""
    async with dataplane(folder, *options, **more) as plane, attached(plane, settings) as control:
        yield plane, control


async def subscribed(
    raw: RawSocket, *topics: str, path: str = "/websocket", **headers: str
) -> RawSocket:
    """Upgrade ``raw`` and subscribe to ``topics``; return it."""
    assert (await raw.upgrade(path, **headers)).status == 101
    for topic in topics:
        raw.send_verb(action="subscribe", topic=topic)
        first, payload = await raw.read_frame()
        assert (first, json.loads(payload)["type"]) == (0x81, "subscribed"), payload
    return raw


def storm(port: int, count: int, data: bytes = b"") -> None:
    """Open ``count`` connections in turn, each sending ``data`` and then reset. The call blocks."""
    linger = (1).to_bytes(4, "little") + (0).to_bytes(4, "little")
    for _ in range(count):
        with socket.create_connection(("127.0.0.1", port)) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            if data:
                sock.sendall(data)


def plane_of(core: Core) -> Plane:
    """Return the control plane's data plane."""
    assert isinstance(core.engine, Plane)
    return core.engine
