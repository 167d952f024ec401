"""A whole control plane on a stub broker, attached to a fake data plane."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import json
import os
import socket
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from dataplanes import plane_of
from envelopes import START_MS, envelope
from fake_dataplane import (
    FakeDataplane,
    Visit,
    counters,
    fake_dataplane,
    handover,
    published,
    verbs,
)
from fake_dataplane import attached as greets
from gateways import TABLE, Box, Response, settle, until

import gateway.run.app
from gateway.core.core import Core
from gateway.logs.known_log import LogSnapshot
from gateway.logs.logs import LogsSnapshot
from gateway.native.plane import PlaneState
from gateway.native.saved_logs import decode_logs, encode_given, encode_logs
from gateway.native.table import MAX_BLOB
from gateway.process.settings import GatewaySettings, NativeSettings
from gateway.run.native_app import running
from gateway.wire.position import log_of
from newsfabric.amqp.stub import StubBroker
from newsfabric.messages.envelope import Envelope, ms_of_id
from newsfabric.store.logs import Log
from newsfabric.store.memory import MemoryStore

EPOCH = int(time.time() * 1000)


@pytest.fixture(autouse=True)
def program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name a program that is never started: the data plane runs already."""
    monkeypatch.setenv("NEWSFABRIC_DATAPLANE", "/bin/true")


@pytest.fixture
async def fake(tmp_path: Path) -> AsyncIterator[FakeDataplane]:
    async with fake_dataplane(tmp_path / "control") as fake:
        yield fake


@dataclasses.dataclass
class AttachedEvent:
    box: Box
    visit: Visit
    settings: dict[str, Any]
    # The command by which readers were sent elsewhere at the start.
    shed: dict[str, Any]

    @property
    def core(self) -> Core:
        return self.box.gateway.core

    def hand_over(self, request: bytes, address: str = "192.0.2.1") -> socket.socket:
        """Hand over a connection with ``request``; return the reader's end of it."""
        with socket.create_server(("127.0.0.1", 0)) as listening:
            reader = socket.create_connection(listening.getsockname())
            ours, _ = listening.accept()
        with contextlib.closing(ours):
            reader.setblocking(False)
            reader.send(request)
            self.visit.hand_over(handover(address), ours.fileno())
        return reader

    async def serve(self, request: bytes) -> Response:
        """Hand over a connection with ``request``; return the answer on it."""
        with self.hand_over(request) as reader:
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
    readers: int = 0,
    numbers: Iterator[int] | None = None,
    **settings: Any,
) -> AsyncIterator[AttachedEvent]:
    store, broker, stop = MemoryStore(TABLE), StubBroker(), asyncio.Event()
    store = settings.pop("store", store)
    settings = GatewaySettings(
        name="box-1", region="oregon", linger=0.1, drain_seconds=0.0,
        native=NativeSettings(socket=fake.path), **settings,
    )  # fmt: skip
    async with contextlib.AsyncExitStack() as stack:
        engine = running(settings, TABLE, store, broker.connect(), stop)
        entering = asyncio.create_task(stack.enter_async_context(engine))
        visit = await fake.visited()
        await visit.hear_named("hello")
        await visit.send_events(greets(attachment=attachment, blob=blob, readers=readers))
        shed = await visit.hear_named("shed") if readers else {}
        heard = await visit.hear_named("settings")
        serving = await asyncio.wait_for(entering, 60)
        if serving.core.follower.begun.is_set():
            # Now there is room for readers.
            heard = await visit.hear_named("settings")
        box = Box(serving, broker, store, stop, epoch=EPOCH)
        box.numbers = numbers or box.numbers
        attached = AttachedEvent(box, visit, heard, shed)
        yield attached
        # It ends with the drain.
        leaving = asyncio.create_task(stack.aclose())
        await drained(attached.visit)
        await asyncio.wait_for(leaving, 60)


async def drained(visit: Visit) -> None:
    """Act like a data plane that is ordered to drain: end."""
    with contextlib.suppress(EOFError, OSError):
        while not visit.left:
            command = await visit.hear()
            if command.name == "count":
                await visit.send_events(counters())
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
        assert first["topic"] == ("news.breaking", 0)
        message = first["message"]
        assert message["id"].hex() == sent.id.replace("-", "")
        assert (message["key"], message["version"]) == ("k", 4)
        assert json.loads(message["push"])["body"] == "x"
        second = await attached.visit.hear_named("publish")
        assert json.loads(second["message"]["push"])["body"] == "y"
        await attached.visit.send_events(published(first["number"]) + counters(accepts=1))
        await until(lambda: len(plane_of(attached.core)._unfinished) == 1)
        attached.box.broker.cut()
        assert attached.box.broker.depth("gateway") == 1


async def test_requests_that_are_handed_over_are_served(fake: FakeDataplane) -> None:
    async with control_plane(fake) as attached:
        answer = await attached.serve(
            b"GET /sockjs HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        assert (answer.status, answer.body) == (200, b"Welcome to SockJS!\n")


async def test_a_data_plane_hears_what_becomes_of_what_it_handed_over(fake: FakeDataplane) -> None:
    async with control_plane(fake) as attached:
        addresses = ("192.0.2.1", "192.0.2.1", "192.0.2.2")
        first, second, third = [attached.hand_over(b"GET /", address) for address in addresses]
        third.close()
        assert await attached.visit.hear_named("gone") == {"address": "192.0.2.2"}
        plane = plane_of(attached.core)
        attached.visit.leave()
        await until(lambda: plane.state is PlaneState.AWAY)
        # The data plane isn't notified that this one is gone, so the next `kept` must not count it.
        second.close()
        serving = plane.on_event.__self__  # type: ignore[attr-defined]
        await until(lambda: serving._handovers.open == {"192.0.2.1": 1})
        visit = attached.visit = await fake.visited()
        await visit.hear_named("hello")
        await visit.send_events(greets(attachment=2))
        assert await visit.hear_named("kept") == {"kept": [("192.0.2.1", 1)]}
        assert (await visit.hear("remember")).name == "settings"
        first.close()
        assert await visit.hear_named("gone") == {"address": "192.0.2.1"}


async def test_readers_here_and_there_share_the_capacity(fake: FakeDataplane) -> None:
    request = b"POST /sockjs/0/%s/xhr HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    async with control_plane(fake, capacity=2) as attached:
        await attached.visit.send_events(counters(readers__websocket=1))
        assert (await attached.serve(request % b"a")).status == 200
        assert (await attached.visit.hear_named("settings"))["capacity"] == 1
        assert (await attached.serve(request % b"b")).status == 503
        assert attached.core.reader_count == 2


async def test_without_a_data_plane_it_isnt_ready(fake: FakeDataplane) -> None:
    async with control_plane(fake) as attached:
        attached.box.tick()
        await until(lambda: attached.core.readiness().ready)
        attached.visit.leave()
        attached.visit = await fake.visited()
        assert attached.core.readiness().waiting_for == ("dataplane",)
        await attached.visit.greet(attachment=2)
        await until(lambda: attached.core.readiness().ready)


async def left_by(visit: Visit, seq: int) -> list[LogSnapshot]:
    """Return the state that the control plane leaves, once it has seen number ``seq`` of a log."""
    while True:
        command = await visit.hear()
        lefts = []
        if command.name == "remember":
            lefts = [*decode_logs(command.fields["blob"]).logs]
        if any(last >= seq for left in lefts for _, last in left.seen):
            return lefts


async def bodies_published(visit: Visit, count: int) -> list[Any]:
    pushes = [(await visit.hear_named("publish"))["message"]["push"] for _ in range(count)]
    return [json.loads(push)["body"] for push in pushes]


async def test_the_next_control_plane_publishes_what_the_first_one_missed(
    fake: FakeDataplane,
) -> None:
    store = MemoryStore(TABLE)
    async with control_plane(fake, store=store) as first:
        await first.box.route(first.box.envelope(body="seen"))
        assert await bodies_published(first.visit, 1) == ["seen"]
        lefts = await left_by(first.visit, 1)
        missed = [first.box.envelope(body=body) for body in ("missed", "too")]
    await store.write(missed)
    await settle(store, missed[-1])
    blob = encode_logs(LogsSnapshot(tuple(lefts), EPOCH), MAX_BLOB)
    async with control_plane(fake, attachment=2, blob=blob, store=store) as second:
        assert await bodies_published(second.visit, 2) == ["missed", "too"]
        known = second.core.hub.logs.find(log_of(missed[0]))
        assert known is not None
        assert (known.start, known.mark, known.missing()) == (0, 3, [])


@pytest.mark.parametrize("knew", [["another"], []], ids=["another log", "none"])
async def test_of_a_log_that_the_first_one_didnt_know_the_next_one_publishes_everything(
    fake: FakeDataplane, knew: list[str]
) -> None:
    store = MemoryStore(TABLE)
    made = [routed(n) for n in (1, 2)]
    await store.write(made)
    await settle(store, made[-1])
    lefts = tuple(left_of(Log("oregon", name, EPOCH), 9) for name in knew)
    blob = encode_logs(LogsSnapshot(lefts, EPOCH), MAX_BLOB)
    async with control_plane(fake, attachment=2, blob=blob, store=store) as second:
        bodies = await bodies_published(second.visit, 2)
        assert bodies == [{"headline": 1}, {"headline": 2}]


async def test_what_the_first_one_published_last_the_next_one_doesnt_publish_again(
    fake: FakeDataplane,
) -> None:
    store = MemoryStore(TABLE)
    made = [routed(n) for n in (1, 2, 3)]
    await store.write(made)
    await settle(store, made[-1])
    left = LogsSnapshot((left_of(log_of(made[0]), 1),), EPOCH)
    # The first control plane had time to publish the third one, but not to leave that in its state.
    blob = encode_logs(left, MAX_BLOB) + encode_given(made[2])
    async with control_plane(fake, attachment=2, blob=blob, store=store) as second:
        assert await bodies_published(second.visit, 1) == [{"headline": 2}]
        known = second.core.hub.logs.find(log_of(made[0]))
        assert known is not None
        assert (known.mark, known.missing()) == (3, [])


async def test_what_is_settled_when_the_first_control_plane_comes_is_past(
    fake: FakeDataplane,
) -> None:
    store = MemoryStore(TABLE)
    old = [routed(n) for n in (1, 2)]
    await store.write(old)
    await settle(store, old[-1])
    async with control_plane(fake, store=store, numbers=itertools.count(3)) as attached:
        attached.box.publish(body="new")
        assert await bodies_published(attached.visit, 1) == ["new"]
        (left,) = await left_by(attached.visit, 3)
        assert (left.start, left.seen, left.low) == (2, ((1, 3),), 2)


async def test_marks_are_left_behind_what_they_speak_of(fake: FakeDataplane) -> None:
    async with control_plane(fake) as attached:
        sent = attached.box.publish()
        names: list[str] = []
        lefts: list[LogSnapshot] = []
        while not lefts:
            command = await attached.visit.hear()
            names.append(command.name)
            if command.name == "remember":
                lefts = [*decode_logs(command.fields["blob"]).logs]
        assert "publish" in names
        assert lefts == [
            LogSnapshot(
                log=log_of(sent), start=0, seen=((1, 1),), skipped=(), low=0, ended=None, voids=(),
                whole_ms=ms_of_id(sent.id),
            )
        ]  # fmt: skip


class LateStore(MemoryStore):
    """A store whose directory can't be read until ``there`` is set."""

    def __init__(self) -> None:
        super().__init__(TABLE)
        self.there = asyncio.Event()

    async def log_days(self, *, at_home: bool = False) -> list[tuple[str, int]]:
        await self.there.wait()
        return await super().log_days(at_home=at_home)


async def test_until_it_is_known_where_logs_begin_nothing_is_left_and_nothing_is_heard(
    fake: FakeDataplane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway.run.app, "START_SECONDS", 0.05)
    store = LateStore()
    old = routed(4)
    await settle(store, old)
    async with control_plane(fake, store=store) as attached:
        assert attached.core.readiness().waiting_for == ("feed", "logs")
        await attached.visit.send_events(verbs(b'{"action":"ping"}'))
        assert (await attached.visit.hear("gone", "kept", "mark", "stamp")).name == "reply"
        store.there.set()
        assert await left_by(attached.visit, 4) == [left_of(log_of(old), 4)]
        attached.box.tick(seq=4, low=4)
        await until(lambda: attached.core.readiness().ready)


async def test_one_that_finds_what_another_has_left_doesnt_wait_for_the_directory(
    fake: FakeDataplane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway.run.app, "START_SECONDS", 0.05)
    blob = encode_logs(
        LogsSnapshot((left_of(Log("oregon", "oregon-router-1", EPOCH), 4),), EPOCH), MAX_BLOB
    )
    async with control_plane(
        fake, store=LateStore(), blob=blob, attachment=2, numbers=itertools.count(5)
    ) as attached:
        attached.box.publish(body="at once")
        assert await bodies_published(attached.visit, 1) == ["at once"]


async def test_no_reader_comes_in_and_none_is_answered_until_the_directory_is_read(
    fake: FakeDataplane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway.run.app, "START_SECONDS", 0.05)
    store = LateStore()
    async with control_plane(fake, store=store, capacity=5) as attached:
        assert attached.settings["capacity"] == 0
        subscribe = b'{"action":"subscribe","topic":"news.a","ref":1}'
        await attached.visit.send_events(verbs(subscribe))
        refused = json.loads((await attached.visit.hear_named("reply"))["push"])
        assert (refused["code"], refused["temporary"], refused["ref"]) == (100, True, 1)
        over_http = await attached.serve(
            b"GET /events?topic=news.a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        assert (over_http.status, over_http.body) == (503, b"not now: starting")
        store.there.set()
        assert (await attached.visit.hear_named("settings"))["capacity"] == 5
        await attached.visit.send_events(verbs(subscribe))
        await attached.visit.hear_named("subscribe")


async def test_if_what_was_left_cant_be_read_readers_are_sent_elsewhere_and_resume(
    fake: FakeDataplane,
) -> None:
    fields = {"blob": b"of another release", "readers": 7}
    async with control_plane(fake, attachment=2, **fields) as attached:
        shed = attached.shed
        assert shed == {"reason": "rebalance", "count": 7, "retry_ms": 2_000}
        attached.box.publish(body="on")
        assert await bodies_published(attached.visit, 1) == ["on"]


def routed(number: int) -> Envelope:
    """Return number ``number`` of the box's router, routed just now."""
    return envelope(number, at=EPOCH + number - START_MS, epoch=EPOCH)


def left_of(log: Log, start: int) -> LogSnapshot:
    """Return the state of a log as a gateway leaves it that has heard nothing of the log."""
    seen = ((1, start),) if start else ()
    return LogSnapshot(log, start, seen, (), start, None, (), log.epoch)
