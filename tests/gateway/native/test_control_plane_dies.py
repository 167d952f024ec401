"""Control planes that are killed, stopped, displaced, or send garbage: readers don't notice."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import websockets
from dataplanes import (
    Dataplane,
    attached,
    dataplane,
    driven,
    gateway_settings,
    subscribed,
)
from gateways import RawSocket, Reader, settle

from bench.soak.messages import TABLE, NumberingRouter, line_of
from bench.soak.processes import ControlPlane
from gateway.native import commands
from gateway.native.table import MAGIC, VERSION, CommandKind
from gateway.native.wire import encode
from gateway.wire.protocol import ReaderLimits
from newsfabric.store.logs import Log
from newsfabric.store.sqlite import SqliteStore

TOPIC = "news.steady"
# A reader that is silent for twice this time is closed, on a busy machine too.
HEARTBEAT = 1.0


class DyingControlPlanes:
    """A data plane, control planes in processes of their own, a store, and a router."""

    def __init__(self, plane: Dataplane, folder: Path) -> None:
        self.plane, self.folder = plane, folder
        self.router, self.store = NumberingRouter(), SqliteStore(folder / "store.sqlite", TABLE)
        self.control: list[ControlPlane] = []
        self.bodies = 0

    async def start(self) -> ControlPlane:
        """Start the next control plane, and wait until it is attached."""
        control = await ControlPlane.start(
            {
                "store": str(self.folder / "store.sqlite"),
                "gateway": {
                    # Not Oregon, so that it doesn't wait for ticks of our router there.
                    "region": "dublin",
                    "heartbeat": HEARTBEAT,
                    "drain_seconds": 0.0,
                    "linger": 0.2,
                },
                "native": {"socket": str(self.plane.path)},
            },
            self.folder / "control.log",
        )
        self.control.append(control)
        await control.ready()
        return control

    async def publish(self, count: int = 1) -> None:
        """Send messages like a router: store each, send it to all control planes, settle it."""
        for _ in range(count):
            self.bodies += 1
            made = self.router.message(TOPIC, self.bodies)
            await self.store.write([made])
            for control in self.control:
                control.feed(line_of(made))
            await settle(self.store, made)

    async def kill(self) -> None:
        """Kill the last control plane with kill -9."""
        control = self.control.pop()
        control.signal(signal.SIGKILL)
        assert await control.ended() == -signal.SIGKILL

    @contextlib.asynccontextmanager
    async def reader(self) -> AsyncIterator[Reader]:
        """Connect a reader that answers pings, also while a test doesn't read its messages."""
        url = f"ws://127.0.0.1:{self.plane.port}/websocket"
        async with websockets.connect(url, ping_interval=None, max_queue=None) as connection:
            yield Reader(connection)


@pytest.fixture
async def fabric(tmp_path: Path) -> AsyncIterator[DyingControlPlanes]:
    async with dataplane(tmp_path, "--threads=2") as plane:
        fabric = DyingControlPlanes(plane, tmp_path)
        await fabric.store.list_log(Log("oregon", "soak", fabric.router.epoch))
        await fabric.start()
        yield fabric
        for control in fabric.control:
            control.signal(signal.SIGKILL)
            await control.ended()
        await fabric.store.close()


async def pinged(raw: RawSocket) -> None:
    """Wait for the next heartbeat, and answer it."""
    while (await raw.read_frame())[0] != 0x89:
        pass
    raw.send_frame(0x8A, b"")


async def test_killed_and_replaced_nothing_is_lost_or_doubled(fabric: DyingControlPlanes) -> None:
    async with (
        fabric.reader() as reader,
        fabric.plane.reader() as silent,
        asyncio.timeout(40),
    ):
        await subscribed(silent, "live.silent")
        await reader.subscribe(TOPIC)
        await fabric.publish(5)
        assert await reader.hear_bodies(5) == [1, 2, 3, 4, 5]
        # Some of these may have reached the one that is killed.
        await fabric.publish(5)
        await fabric.kill()
        # Heartbeats go on, verbs wait, and messages published now are only in the store.
        await fabric.publish(5)
        for _ in range(3):
            await pinged(silent)
        await reader.send_verb(action="ping", ref="asked of nobody")
        await fabric.start()
        await fabric.publish(5)
        pushes = [await reader.hear() for _ in range(16)]
        bodies = [push["body"] for push in pushes if push["type"] == "message"]
        assert sorted(bodies) == list(range(6, 21))
        assert {"type": "pong", "ref": "asked of nobody"} in pushes
        await reader.is_up_to_date()


async def test_killed_again_and_again(fabric: DyingControlPlanes) -> None:
    async with fabric.reader() as reader, asyncio.timeout(60):
        await reader.subscribe(TOPIC)
        for _ in range(3):
            await fabric.publish(4)
            await fabric.kill()
            await fabric.publish(4)
            await fabric.start()
        bodies = await reader.hear_bodies(24)
        assert sorted(bodies) == list(range(1, 25))
        await reader.is_up_to_date()


async def test_stopped_for_a_while_it_goes_on(fabric: DyingControlPlanes) -> None:
    async with fabric.reader() as reader, fabric.plane.reader() as silent:
        await subscribed(silent, "live.silent")
        await reader.subscribe(TOPIC)
        fabric.control[-1].signal(signal.SIGSTOP)
        await reader.send_verb(action="ping", ref="asked")
        await fabric.publish(3)
        for _ in range(3):
            await pinged(silent)
        fabric.control[-1].signal(signal.SIGCONT)
        pushes = [await reader.hear() for _ in range(4)]
        assert [p["body"] for p in pushes if p["type"] == "message"] == [1, 2, 3]
        await reader.is_up_to_date()


async def test_a_stopped_one_is_displaced_by_the_next(fabric: DyingControlPlanes) -> None:
    async with fabric.reader() as reader, asyncio.timeout(40):
        await reader.subscribe(TOPIC)
        await fabric.publish(3)
        assert await reader.hear_bodies(3) == [1, 2, 3]
        old = fabric.control.pop()
        old.signal(signal.SIGSTOP)
        await fabric.publish(3)
        await reader.send_verb(action="ping", ref="asked of the stopped one")
        await fabric.start()
        pushes = [await reader.hear() for _ in range(4)]
        assert sorted(p["body"] for p in pushes if p["type"] == "message") == [4, 5, 6]
        # When it wakes up it finds that it was replaced, and ends without draining any reader.
        old.signal(signal.SIGCONT)
        assert await old.ended() == 0
        await reader.is_up_to_date()


async def pong(reader: Reader, patience: float) -> bool:
    """Return whether a plain ping is answered within ``patience`` seconds."""
    # At a pace that is no flood.
    await asyncio.sleep(0.05)
    await reader.connection.send(b'{"action":"ping"}')
    try:
        text = await asyncio.wait_for(reader.connection.recv(), patience)
    except TimeoutError:
        return False
    assert text == '{"type":"pong"}'
    return True


async def test_pings_are_not_answered_for_one_that_is_frozen(fabric: DyingControlPlanes) -> None:
    async with fabric.reader() as reader, asyncio.timeout(30):
        await reader.subscribe(TOPIC)
        fabric.control[-1].signal(signal.SIGSTOP)
        while await pong(reader, 1.0):
            pass
        fabric.control[-1].signal(signal.SIGCONT)
        assert await reader.hear() == {"type": "pong"}
        await reader.is_up_to_date()


async def test_an_upgrade_loses_and_doubles_nothing(fabric: DyingControlPlanes) -> None:
    async with fabric.reader() as reader, asyncio.timeout(40):
        await reader.subscribe(TOPIC)
        old = fabric.control[-1]
        starting = asyncio.create_task(fabric.start())
        while not starting.done():
            await fabric.publish()
            await asyncio.sleep(0.01)
        await starting
        assert await old.ended() == 0
        fabric.control.remove(old)
        await fabric.publish(3)
        bodies = await reader.hear_bodies(fabric.bodies)
        assert sorted(bodies) == list(range(1, fabric.bodies + 1))
        await reader.is_up_to_date()


async def test_alone_for_too_long_it_sends_readers_away_and_ends(tmp_path: Path) -> None:
    lonely = gateway_settings(native={"alone_seconds": 0.4})
    async with dataplane(tmp_path) as plane, plane.reader() as raw, plane.reader() as sockjs:
        async with attached(plane, lonely):
            await subscribed(raw, TOPIC)
            assert (await sockjs.upgrade("/sockjs/0/a/websocket")).status == 101
        pushes = []
        while (frame := await raw.read_frame())[0] != 0x88:
            pushes.append(json.loads(frame[1]))
        assert [push["code"] for push in pushes] == [1012]
        assert int.from_bytes(frame[1][:2], "big") == 1012
        assert b'c[1012,"' in await sockjs.read_all()
        assert await plane.ended() == 0
        assert not plane.path.exists()


async def test_a_control_plane_that_comes_just_in_time_keeps_it(tmp_path: Path) -> None:
    lonely = gateway_settings(native={"alone_seconds": 2.0})
    async with dataplane(tmp_path) as plane, plane.reader() as raw:
        async with attached(plane, lonely):
            await subscribed(raw, TOPIC)
        await asyncio.sleep(0.5)
        async with attached(plane, lonely) as control:
            await asyncio.sleep(2.0)
            push = control.publish(TOPIC)
            assert await raw.read_frame() == (0x81, push.encode())
            assert (await control.count())["draining"] == 0


SETTINGS = commands.settings(gateway_settings(), capacity=10)
HELLO = commands.hello()
GARBAGE = {
    "noise": bytes(range(256)),
    "http": b"GET / HTTP/1.1\r\n\r\n",
    "an empty message": bytes(4),
    "an endless message": struct.pack("<IB", 1 << 25, 1),
    "wrong magic": struct.pack("<IB4sH", 7, 1, b"nope", 1),
    "another version": encode(CommandKind.HELLO, MAGIC, VERSION + 1),
    "settings before hello": SETTINGS,
}
AFTER_HELLO = {
    "hello twice": HELLO,
    "unknown command": struct.pack("<IB", 1, 77),
    "an event": struct.pack("<IBQ", 9, 132, 1),
    "settings cut short": struct.pack("<I", 20) + SETTINGS[4:24],
    "settings too long": struct.pack("<I", len(SETTINGS) - 3) + SETTINGS[4:] + b"x",
    "a count that lies": struct.pack("<IBQB2sI", 1 + 15, 15, 1, 1, b"t\0", 2**32 - 1),
    "close for no reader with half a name": struct.pack("<IB", 12, 9) + bytes(10) + b"\xff",
}


@pytest.mark.parametrize("name", [*GARBAGE, *AFTER_HELLO])
async def test_garbage_ends_the_control_plane_and_no_reader(tmp_path: Path, name: str) -> None:
    async with dataplane(tmp_path, "--threads=2") as plane, plane.reader() as raw:
        async with attached(plane) as control:
            await subscribed(raw, TOPIC)
        data = GARBAGE.get(name) or HELLO + SETTINGS + AFTER_HELLO[name]
        loop = asyncio.get_running_loop()
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as stranger:
            stranger.connect(str(plane.path))
            stranger.setblocking(False)
            await loop.sock_sendall(stranger, data)
            async with asyncio.timeout(60):
                heard = b""
                with contextlib.suppress(ConnectionError):
                    while more := await loop.sock_recv(stranger, 65536):
                        heard += more
        # The last event states the reason.
        assert heard[-300:].rfind(b"\x87") >= 0
        async with attached(plane) as control:
            push = control.publish(TOPIC)
            assert await raw.read_frame() == (0x81, push.encode())
            await control.counted(readers__websocket=1)


async def test_a_control_plane_may_leave_in_the_middle_of_any_message(tmp_path: Path) -> None:
    whole = HELLO + SETTINGS + commands.remember(b"half of this") + commands.count()
    async with dataplane(tmp_path) as plane, plane.reader() as raw:
        async with attached(plane):
            await subscribed(raw, TOPIC)
        for at in range(1, len(whole), 7):
            with contextlib.closing(socket.socket(socket.AF_UNIX)) as stranger:
                stranger.connect(str(plane.path))
                stranger.sendall(whole[:at])
        before = plane.descriptors()
        async with attached(plane) as control:
            push = control.publish(TOPIC)
            assert await raw.read_frame() == (0x81, push.encode())
        assert plane.descriptors() <= before + 1


async def test_the_control_socket_is_for_this_user_alone(tmp_path: Path) -> None:
    async with dataplane(tmp_path) as plane:
        assert os.stat(plane.path).st_mode & 0o777 == 0o600


async def test_verbs_that_wait_are_bounded(tmp_path: Path) -> None:
    limits = gateway_settings(reader=ReaderLimits(waiting=10))
    async with dataplane(tmp_path) as plane, plane.reader() as raw:
        async with attached(plane, limits) as control:
            await subscribed(raw, TOPIC)
            # The first verb may or may not reach it, as with one that leaves: the others wait.
            control.pause()
            for number in range(14):
                raw.send_verb(action="ping", ref=number)
            errors: list[Any] = []
            for _ in range(3):
                errors.append(json.loads((await raw.read_frame())[1])["code"])
            assert errors == [111] * 3
        async with attached(plane):
            pongs = [await raw.read_frame() for _ in range(11)]
            assert {json.loads(payload)["type"] for _, payload in pongs} == {"pong"}


async def test_one_that_doesnt_read_is_cut_off(tmp_path: Path) -> None:
    async with driven(tmp_path) as (plane, control), plane.reader() as raw:
        await subscribed(raw, TOPIC)
        control.pause()
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as deaf:
            deaf.connect(str(plane.path))
            deaf.setblocking(False)
            deaf.send(HELLO + SETTINGS)
            # Each count is answered with half a kilobyte or more, of which 192 MiB may wait.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                async with asyncio.timeout(60):
                    for _ in range(600):
                        await asyncio.get_running_loop().sock_sendall(
                            deaf, commands.count() * 1_000
                        )
                    pytest.fail("it was never cut off")
        async with attached(plane) as second:
            push = second.publish(TOPIC)
            # Pings may have arrived meanwhile.
            while (frame := await raw.read_frame())[0] == 0x89:
                pass
            assert frame == (0x81, push.encode())
