"""A whole control plane on a stub broker, attached to a data plane of ours."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fake_dataplane import FakeDataplane, Visit, counters, fake_dataplane, handover, published
from gateways import TABLE, Box, Response, until

from gateway.native import core
from gateway.native.app import running
from gateway.native.core import NativeCore
from gateway.native.marks import decode_marks
from gateway.settings import GatewaySettings, NativeSettings
from newsfabric.amqp.stub import StubBroker
from newsfabric.store.memory import MemoryStore

# Younger than every gateway here: nothing of the router's past is missing.
EPOCH = int(time.time() * 1000) + 86_400_000
# Older: the past counts as seen, and is looked for.
OLD_EPOCH = 7


@pytest.fixture(autouse=True)
def program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never started: the data plane lives already."""
    monkeypatch.setenv("NEWSFABRIC_DATAPLANE", "/bin/true")


@pytest.fixture
async def fake(tmp_path: Path) -> AsyncIterator[FakeDataplane]:
    async with fake_dataplane(tmp_path / "control") as fake:
        yield fake


@dataclasses.dataclass
class Attached:
    box: Box
    visit: Visit
    settings: dict[str, Any]

    @property
    def core(self) -> NativeCore:
        core = self.box.gateway.core
        assert isinstance(core, NativeCore)
        return core

    async def serve(self, request: bytes) -> Response:
        """Hand a connection with ``request`` over; what is answered on it."""
        with socket.create_server(("127.0.0.1", 0)) as listening:
            reader = socket.create_connection(listening.getsockname())
            ours, _ = listening.accept()
        with contextlib.closing(reader), contextlib.closing(ours):
            reader.setblocking(False)
            reader.send(request)
            self.visit.hand_over(handover(), ours.fileno())
            ours.close()
            streams, writer = await asyncio.open_connection(sock=reader)
            answer = await asyncio.wait_for(streams.read(), 60)
            writer.close()
            return Response.of(answer)


@contextlib.asynccontextmanager
async def control_plane(
    fake: FakeDataplane,
    *,
    attachment: int = 1,
    blob: bytes = b"",
    epoch: int = EPOCH,
    **settings: Any,
) -> AsyncIterator[Attached]:
    store, broker, stop = MemoryStore(TABLE), StubBroker(), asyncio.Event()
    store = settings.pop("store", store)
    told = GatewaySettings(
        name="box-1", region="oregon", linger=0.1, drain_seconds=0.0,
        native=NativeSettings(socket=fake.path), **settings,
    )  # fmt: skip
    async with contextlib.AsyncExitStack() as stack:
        engine = running(told, TABLE, store, broker.connect(), stop)
        entering = asyncio.create_task(stack.enter_async_context(engine))
        visit = await fake.visited()
        heard = await visit.greet(attachment=attachment, blob=blob)
        gateway = await asyncio.wait_for(entering, 60)
        attached = Attached(Box(gateway, broker, store, stop, epoch=epoch), visit, heard)
        yield attached
        # It ends with the drain.
        leaving = asyncio.create_task(stack.aclose())
        await drained(attached.visit)
        await asyncio.wait_for(leaving, 60)


async def drained(visit: Visit) -> None:
    """Do what a data plane does that is told to drain: end."""
    with contextlib.suppress(EOFError, OSError):
        while not visit.left:
            command = await visit.hear()
            if command.name == "count":
                await visit.say(counters())
            elif command.name == "drain":
                visit.leave()
                return


async def test_the_port_is_the_data_planes(fake: FakeDataplane) -> None:
    async with control_plane(fake, capacity=5) as attached:
        assert attached.box.gateway.port == 8080
        assert attached.settings["capacity"] == 5
        page = await attached.box.request("GET", "/engine", port=attached.box.gateway.admin_port)
        assert page.json() == {"engine": "native", "pid": os.getpid(), "dataplane_pid": 99}


async def test_what_the_feed_brings_is_published_once_and_acknowledged_when_it_is_over(
    fake: FakeDataplane,
) -> None:
    async with control_plane(fake) as attached:
        sent = attached.box.publish(body="x", key="k", version=4)
        attached.box.publish(identity=sent.identity, id=sent.id, router="another", body="x")
        attached.box.publish(body="y")
        first = await attached.visit.hear_named("publish")
        assert first["topic"] == ("news.breaking", 10, 0, 0)
        message = first["message"]
        assert message["id"] == sent.id.replace("-", "")
        assert (message["key"], message["version"]) == ("k", 4)
        assert json.loads(message["push"])["body"] == "x"
        second = await attached.visit.hear_named("publish")
        assert json.loads(second["message"]["push"])["body"] == "y"
        await attached.visit.say(published(first["number"]) + counters(accepts=1))
        await until(lambda: attached.core.plane.unfinished == 1)
        attached.box.broker.cut()
        assert attached.box.broker.depth("gateway") == 1


async def test_requests_that_are_handed_over_are_served(fake: FakeDataplane) -> None:
    async with control_plane(fake) as attached:
        answer = await attached.serve(
            b"GET /sockjs HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        assert (answer.status, answer.body) == (200, b"Welcome to SockJS!\n")


async def test_readers_here_and_there_share_the_capacity(fake: FakeDataplane) -> None:
    request = b"POST /sockjs/0/%s/xhr HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    async with control_plane(fake, capacity=2) as attached:
        await attached.visit.say(counters(readers__websocket=1))
        assert (await attached.serve(request % b"a")).status == 200
        assert (await attached.visit.hear_named("settings"))["capacity"] == 1
        assert (await attached.serve(request % b"b")).status == 503
        assert attached.core.readers == 2


async def test_without_a_data_plane_it_isnt_ready(fake: FakeDataplane) -> None:
    async with control_plane(fake) as attached:
        attached.box.tick()
        await until(lambda: attached.core.readiness().ready)
        attached.visit.leave()
        attached.visit = await fake.visited()
        assert attached.core.readiness().waiting_for == ("dataplane",)
        await attached.visit.greet(attachment=2)
        await until(lambda: attached.core.readiness().ready)


async def test_the_next_control_plane_publishes_what_the_first_one_missed(
    fake: FakeDataplane,
) -> None:
    store = MemoryStore(TABLE)
    async with control_plane(fake, store=store) as first:
        first.box.publish(body="seen")
        blob = b""
        while not blob or not decode_marks(blob).marks:
            command = await first.visit.hear("publish", "stamp")
            blob = command.fields["blob"]
        missed = [first.box.envelope(body=n) for n in range(2)]
    later = MemoryStore(TABLE)
    await later.write(missed)
    async with control_plane(fake, attachment=2, blob=blob, store=later) as second:
        bodies = [
            json.loads((await second.visit.hear_named("publish"))["message"]["push"])["body"]
            for _ in range(2)
        ]
        assert bodies == [0, 1]
        assert second.core.hub.streams.mark(missed[0].router, EPOCH) == missed[-1].seq


async def test_marks_are_left_behind_what_they_speak_of(fake: FakeDataplane) -> None:
    async with control_plane(fake) as attached:
        sent = attached.box.publish()
        names = []
        marks: tuple[Any, ...] = ()
        while not marks:
            command = await attached.visit.hear()
            names.append(command.name)
            if command.name == "remember":
                marks = decode_marks(command.fields["blob"]).marks
        assert "publish" in names
        assert [(m.router, m.epoch, m.seq) for m in marks] == [(sent.router, EPOCH, sent.seq)]
        assert abs(marks[0].routed_ms - time.time() * 1000) < 60_000


async def test_no_marks_are_left_while_the_past_of_a_stranger_is_looked_for_but_not_for_ever(
    fake: FakeDataplane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "_REMEMBER_SECONDS", 0.01)
    async with control_plane(fake, epoch=OLD_EPOCH) as attached:
        assert (await attached.visit.hear()).name == "remember"
        attached.box.publish()
        await attached.visit.hear_named("publish")
        assert attached.core.mender.ready
        assert not attached.core.mender.tells_all
        # Those that are left are as old as they may be.
        monkeypatch.setattr(core, "_OLDEST_MARKS_SECONDS", 0.0)
        marks: tuple[Any, ...] = ()
        while not marks:
            marks = decode_marks((await attached.visit.hear()).fields["blob"]).marks
        assert not attached.core.mender.tells_all
