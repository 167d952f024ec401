"""Attaching, and the state that survives an attachment."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from descriptors import Descriptors
from envelopes import envelope
from fake_dataplane import (
    READER,
    FakeDataplane,
    Visit,
    counters,
    fake_dataplane,
    handover,
    published,
    refused,
    verbs,
)
from gateways import until

from gateway.native import commands
from gateway.native.events import (
    OTHER_VERSION,
    TAKEN_OVER,
    AttachedEvent,
    Event,
    HandoverEvent,
    RefusedEvent,
)
from gateway.native.plane import Plane, PlaneState
from gateway.process.settings import GatewaySettings
from gateway.wire.publication import Publication
from newsfabric.errors import ConfigError
from newsfabric.topics import TopicPolicy

TOLD = GatewaySettings(name="box-1", region="oregon", capacity=10, linger=0.1, drain_seconds=0.0)


class EventRecorder:
    """A handler that remembers all events."""

    def __init__(self) -> None:
        self.events: list[object] = []
        self._came = asyncio.Event()

    def _add(self, what: object) -> None:
        self.events.append(what)
        self._came.set()

    async def hear(self, *expected: object) -> None:
        async with asyncio.timeout(60):
            while len(self.events) < len(expected):
                self._came.clear()
                await self._came.wait()
        assert self.events == list(expected)
        self.events.clear()

    def on_event(self, event: Event, descriptor: int | None) -> None:
        match event:
            case AttachedEvent():
                self._add(("attached", event.attachment, event.blob))
            case HandoverEvent(address):
                assert descriptor is not None
                with socket.socket(fileno=descriptor) as connection:
                    self._add((connection.recv(10), address))
            case RefusedEvent(why):
                self._add(why)

    def on_verb(self, connection: bytes, auth: bytes, text: bytes) -> None:
        self._add((connection, text))


class Pair:
    """A plane with its handler, attached to a fake data plane."""

    def __init__(self, fake: FakeDataplane, plane: Plane, handler: EventRecorder) -> None:
        self.fake, self.plane, self.handler = fake, plane, handler
        self.visit: Visit

    async def attached(self, attachment: int = 1, blob: bytes = b"") -> None:
        self.visit = await self.fake.visited()
        await self.visit.greet(attachment=attachment, blob=blob)
        await self.handler.hear(("attached", attachment, blob))


def plane_at(
    control: Path,
    program: str | Path = "/nowhere",
    listener: EventRecorder | None = None,
    **settings: Any,
) -> Plane:
    plane = Plane(dataclasses.replace(TOLD, **settings), Path(program), control)
    listener = listener or EventRecorder()
    plane.on_event, plane.room.answer = listener.on_event, listener.on_verb
    return plane


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    path = tmp_path / "control"
    async with fake_dataplane(path) as fake:
        handler = EventRecorder()
        plane = plane_at(path, listener=handler, drain_seconds=5.0, drain_per_second=5)
        pair = Pair(fake, plane, handler)
        staying = asyncio.create_task(plane.stay_attached())
        await pair.attached(attachment=3, blob=b"marks")
        yield pair
        plane.close()
        await asyncio.wait_for(staying, 60)


def publication(number: int) -> Publication:
    return Publication(envelope(number), TopicPolicy(pattern="#"), None)


async def test_attaching_tells_the_settings_and_learns_port_and_pid(pair: Pair) -> None:
    assert (pair.plane.state, pair.plane.port, pair.plane.pid) == (PlaneState.ATTACHED, 8080, 99)


async def test_readers_verbs_are_passed_to_the_handler(pair: Pair) -> None:
    await pair.visit.send_events(verbs(b"{}", b"[]"))
    await pair.handler.hear((READER, b"{}"), (READER, b"[]"))


async def test_a_handed_over_socket_is_whole(pair: Pair) -> None:
    ours, theirs = socket.socketpair()
    theirs.send(b"GET /")
    pair.visit.hand_over(handover("192.0.2.1"), ours.fileno())
    await pair.handler.hear((b"GET /", "192.0.2.1"))
    ours.close()
    theirs.close()


async def test_how_many_may_be_handed_over_leaves_descriptors_for_the_rest(
    tmp_path: Path,
) -> None:
    with Descriptors.bounded():
        async with fake_dataplane(tmp_path / "control") as fake:
            plane = plane_at(fake.path)
            attaching = asyncio.create_task(plane.attach())
            visit = await fake.visited()
            assert (await visit.greet())["handovers"] == 128
            await asyncio.wait_for(attaching, 60)
            plane.close()


async def test_a_publication_is_done_when_its_fan_out_is_over(pair: Pair) -> None:
    done: list[int] = []
    for n in range(3):
        pair.plane.publish(publication(n), lambda n=n: done.append(n))  # type: ignore[misc]
    numbers = [(await pair.visit.hear_named("publish"))["number"] for _ in range(3)]
    await pair.visit.send_events(published(numbers[1]) + verbs(b"{}"))
    await pair.handler.hear((READER, b"{}"))
    assert done == [0, 1]


async def test_unfinished_publications_are_sent_again_after_the_settings(pair: Pair) -> None:
    done: list[int] = []
    for n in range(2):
        pair.plane.publish(publication(n), lambda n=n: done.append(n))  # type: ignore[misc]
    await pair.visit.send_events(published(1))
    pair.visit.leave()
    await until(lambda: pair.plane.state is PlaneState.AWAY)
    pair.plane.publish(publication(2), lambda: done.append(2))
    await pair.attached(attachment=4)
    again = [await pair.visit.hear_named("publish") for _ in range(2)]
    assert [command["number"] for command in again] == [2, 3]
    await pair.visit.send_events(published(3) + verbs(b"{}"))
    await pair.handler.hear((READER, b"{}"))
    assert done == [0, 1, 2]


async def test_answers_are_not_kept_for_another_attachment(pair: Pair) -> None:
    attachment = pair.plane.attachment
    pair.visit.leave()
    await until(lambda: pair.plane.state is PlaneState.AWAY)
    pair.plane.send(commands.reply(READER, b"{}"))
    await pair.attached(attachment=4)
    pair.plane.send(commands.count())
    assert (await pair.visit.hear()).name == "count"
    assert pair.plane.attachment == attachment + 1


async def test_garbage_from_the_data_plane_ends_the_attachment_and_another_begins(
    pair: Pair,
) -> None:
    await pair.visit.send_events(bytes(4))
    await pair.attached(attachment=4)


async def test_who_is_replaced_stays_away_and_finishes_nothing(pair: Pair) -> None:
    done: list[int] = []
    pair.plane.publish(publication(1), lambda: done.append(1))
    await pair.visit.send_events(refused("replaced"))
    await pair.handler.hear("replaced")
    pair.visit.leave()
    pair.plane.publish(publication(2), lambda: done.append(2))
    pair.plane.close()
    assert (pair.plane.state, done) == (PlaneState.GONE, [])


async def test_when_another_data_plane_has_our_readers_it_is_attached_to(pair: Pair) -> None:
    done: list[int] = []
    pair.plane.publish(publication(1), lambda: done.append(1))
    await pair.visit.send_events(refused("taken_over"))
    pair.visit.leave()
    await until(lambda: pair.plane.state is PlaneState.AWAY)
    await pair.attached(attachment=4, blob=b"marks")
    number = (await pair.visit.hear_named("publish"))["number"]
    await pair.visit.send_events(published(number) + verbs(b"{}"))
    await pair.handler.hear((READER, b"{}"))
    assert (pair.plane.state, done) == (PlaneState.ATTACHED, [1])


async def test_one_that_has_handed_its_readers_over_is_left_before_its_end(pair: Pair) -> None:
    await pair.visit.send_events(refused(TAKEN_OVER))
    await pair.attached(attachment=4)
    assert pair.plane.state is PlaneState.ATTACHED


async def test_one_that_freezes_when_it_has_handed_its_readers_over_is_left(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another control plane has started it, so this one can't wait for its end."""
    monkeypatch.setattr("gateway.native.plane.END_SECONDS", 0.01)
    program = program_of(tmp_path, "echo serving", "exec sleep 60")
    monkeypatch.setattr(pair.plane._child, "_program", program)
    taking = asyncio.create_task(pair.plane.take_over())
    visit = await pair.fake.visited()
    newer = pair.plane._child._process
    assert newer is not None
    await visit.greet(pid=newer.pid)
    assert await asyncio.wait_for(taking, 60) == newer.pid
    newer.kill()
    newer.wait()


async def test_room_is_reported_when_it_changes(pair: Pair) -> None:
    for room in (9, 9, 8):
        pair.plane.resize(room)
    assert [(await pair.visit.hear_named("settings"))["capacity"] for _ in "ab"] == [9, 8]


async def test_fresh_counters_are_asked_for(pair: Pair) -> None:
    counting = asyncio.create_task(pair.plane.refresh_counters())
    await pair.visit.hear_named("count")
    assert not counting.done()
    await pair.visit.send_events(counters(accepts=5))
    await asyncio.wait_for(counting, 60)
    assert pair.plane.totals.get("accepts") == 5


async def test_the_counters_of_another_data_plane_begin_at_zero(pair: Pair) -> None:
    await pair.visit.send_events(counters(accepts=5) + verbs(b"{}"))
    await pair.handler.hear((READER, b"{}"))
    for pid, accepts in ((99, 5), (100, 0)):
        pair.visit.leave()
        await until(lambda: pair.plane.state is PlaneState.AWAY)
        pair.visit = await pair.fake.visited()
        await pair.visit.greet(pid=pid)
        await until(lambda: pair.plane.state is PlaneState.ATTACHED)
        assert (pair.plane.pid, pair.plane.totals.get("accepts")) == (pid, accepts)


async def test_a_drain_ends_with_the_data_plane(pair: Pair) -> None:
    done: list[int] = []
    draining = asyncio.create_task(pair.plane.drain())
    # Before anything else is sent: until then the data plane lets readers in.
    assert await pair.visit.hear_named("drain") == {"spread_ms": 5_000, "per_second": 5}
    await pair.visit.hear_named("count")
    await pair.visit.send_events(counters())
    # Readers that weren't sent away yet still get published messages.
    pair.plane.publish(publication(1), lambda: done.append(1))
    await pair.visit.hear_named("publish")
    assert not draining.done()
    pair.visit.leave()
    await asyncio.wait_for(draining, 60)
    assert (pair.plane.state, done) == (PlaneState.GONE, [1])
    await pair.plane.drain()


async def test_a_drain_goes_on_at_the_data_plane_that_takes_over_meanwhile(pair: Pair) -> None:
    draining = asyncio.create_task(pair.plane.drain())
    await pair.visit.hear_named("drain")
    await pair.visit.hear_named("count")
    await pair.visit.send_events(counters())
    for attachment in (4, 5):
        await pair.visit.send_events(refused(TAKEN_OVER))
        pair.visit.leave()
        await pair.attached(attachment)
        await pair.visit.hear_named("drain")
    assert not draining.done()
    pair.visit.leave()
    await asyncio.wait_for(draining, 60)
    assert pair.plane.state is PlaneState.GONE


async def test_who_is_replaced_in_a_drain_leaves_the_data_plane_alone(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []

    async def end() -> None:
        ended.append("ended")

    monkeypatch.setattr(pair.plane._child, "end", end)
    draining = asyncio.create_task(pair.plane.drain())
    await pair.visit.hear_named("drain")
    await pair.visit.hear_named("count")
    await pair.visit.send_events(counters() + refused("replaced"))
    pair.visit.leave()
    await asyncio.wait_for(draining, 60)
    assert (pair.plane.state, ended) == (PlaneState.GONE, [])


async def test_a_drain_waits_for_the_data_plane_that_is_about_to_take_over(pair: Pair) -> None:
    await pair.visit.send_events(refused(TAKEN_OVER))
    pair.visit.leave()
    await until(lambda: pair.plane.state is PlaneState.AWAY)
    draining = asyncio.create_task(pair.plane.drain())
    await pair.attached(4)
    await pair.visit.hear_named("drain")
    pair.visit.leave()
    await asyncio.wait_for(draining, 60)


async def test_one_that_hangs_up_before_it_answers_is_followed_by_another(tmp_path: Path) -> None:
    async with fake_dataplane(tmp_path / "control") as fake:
        plane = plane_at(tmp_path / "control")
        attaching = asyncio.create_task(plane.attach())
        for _ in range(2):
            visit = await fake.visited()
            await visit.hear_named("hello")
            visit.leave()
        visit = await fake.visited()
        await visit.greet()
        await asyncio.wait_for(attaching, 60)
        assert plane.state is PlaneState.ATTACHED
        plane.close()


async def test_a_program_that_ends_at_once_is_reported(tmp_path: Path) -> None:
    plane = plane_at(tmp_path / "control", "/bin/false")
    with pytest.raises(ConfigError, match="ended with code 1"):
        await plane.attach()


async def test_why_a_data_plane_refuses_us_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "control"
    async with fake_dataplane(path) as fake:
        plane = plane_at(path)
        attaching = asyncio.create_task(plane.attach())
        visit = await fake.visited()
        await visit.hear_named("hello")
        await visit.send_events(refused("no room"))
        visit.leave()
        with pytest.raises(ConfigError) as refusal:
            await asyncio.wait_for(attaching, 60)
        assert str(refusal.value) == f"the data plane at {path} refuses us: no room"
        plane.close()


def program_of(tmp_path: Path, *lines: str) -> Path:
    """Write a program with these ``lines``."""
    program = tmp_path / "program"
    program.write_text("\n".join(("#!/bin/sh", *lines)) + "\n")
    program.chmod(0o755)
    return program


async def attaching_to_another_version(fake: FakeDataplane, plane: Plane) -> asyncio.Task[None]:
    """Let ``plane`` attach to a data plane that speaks another version of the protocol."""
    attaching = asyncio.create_task(plane.attach())
    visit = await fake.visited()
    await visit.hear_named("hello")
    await visit.send_events(refused(OTHER_VERSION))
    visit.leave()
    return attaching


async def test_from_a_data_plane_of_another_version_our_own_takes_over(tmp_path: Path) -> None:
    path = tmp_path / "control"
    program = program_of(tmp_path, 'echo "$$ $@" > "$0.out"', "echo serving", "exec sleep 60")
    async with fake_dataplane(path) as fake:
        plane = plane_at(path, program)
        attaching = await attaching_to_another_version(fake, plane)
        visit = await fake.visited()
        pid, _, options = program.with_name("program.out").read_text().partition(" ")
        await visit.greet(pid=int(pid))
        await asyncio.wait_for(attaching, 60)
        assert options == f"--take-over --control {path}\n"
        assert (plane.state, plane.pid) == (PlaneState.ATTACHED, int(pid))
        visit.leave()
        await plane.drain()


async def test_if_our_own_cant_take_over_from_it_that_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "control"
    program = program_of(tmp_path, 'echo "failed: it is too old"')
    async with fake_dataplane(path) as fake:
        plane = plane_at(path, program)
        attaching = await attaching_to_another_version(fake, plane)
        with pytest.raises(ConfigError) as failure:
            await asyncio.wait_for(attaching, 60)
        assert str(failure.value) == "the new data plane didn't take over: it is too old"
        assert plane.state is PlaneState.AWAY
        plane.close()


async def test_a_data_plane_that_isnt_there_is_started(tmp_path: Path) -> None:
    program = program_of(tmp_path, 'echo "$@" > "$0.out"', "exec sleep 60")
    path = tmp_path / "control"
    # A socket that a killed data plane left.
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as dead:
        dead.bind(str(path))
    plane = plane_at(path, program)
    attaching = asyncio.create_task(plane.attach())
    async with asyncio.timeout(60):
        while not (output := program.with_name("program.out")).exists():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    async with fake_dataplane(path) as fake:
        visit = await fake.visited()
        await visit.greet()
        await asyncio.wait_for(attaching, 60)
        assert output.read_text() == f"--control {path} --host 127.0.0.1 --port 0\n"
        visit.leave()
        await plane.drain()
