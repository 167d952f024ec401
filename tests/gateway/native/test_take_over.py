"""A newer data plane takes over from an older one: no reader notices. On the real program."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import itertools
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from dataplanes import plane_of
from gateways import Box, until
from places import RouterPlace

from gateway.native.program import find_program
from newsfabric.errors import SetupError

try:
    find_program()
except SetupError as exc:
    pytest.skip(str(exc), allow_module_level=True)

TOPIC = "news.breaking"


async def take_over(box: Box) -> dict[str, Any]:
    """Request a take-over as an operator does."""
    answer = await box.request("POST", "/take-over", port=box.gateway.admin_port)
    assert answer.status == 200
    found: dict[str, Any] = answer.json()
    return found


@pytest.fixture
async def box(tmp_path: Path) -> AsyncIterator[tuple[RouterPlace, Box]]:
    place = RouterPlace(tmp_path)
    async with place.control_plane(threads=2, deflate_bytes=64) as box:
        yield place, box


async def test_readers_hear_each_message_once_and_in_order_through_several(
    box: tuple[RouterPlace, Box],
) -> None:
    place, one = box
    async with contextlib.AsyncExitStack() as stack:
        raw = await stack.enter_async_context(one.reader(TOPIC))
        sockjs = await stack.enter_async_context(one.opened())
        await sockjs.upgrade("/sockjs/0/x/websocket")
        assert (await sockjs.read_frame())[1] == b"o"
        say = json.dumps([json.dumps({"action": "subscribe", "topic": TOPIC})]).encode()
        sockjs.send_frame(0x81, say)
        assert b"subscribed" in (await sockjs.read_frame())[1]
        deflating = await stack.enter_async_context(one.opened())
        await deflating.upgrade(**{"Sec-WebSocket-Extensions": "permessage-deflate"})
        deflating.send_verb(action="subscribe", topic=TOPIC)
        await deflating.read_frame()

        saying = True

        async def publish() -> int:
            for number in itertools.count():
                if not saying:
                    return number
                await place.send_message(one, {"number": number, "filling": "x" * 300})
                await asyncio.sleep(0.002)
            raise AssertionError

        publishing = asyncio.create_task(publish())
        before = plane_of(one.gateway.core).pid
        for _ in range(3):
            after = (await take_over(one))["dataplane_pid"]
            assert (after != before, plane_of(one.gateway.core).pid) == (True, after)
            before = after
        saying = False
        count = await publishing
        assert count > 0
        assert [body["number"] for body in await raw.hear_bodies(count)] == list(range(count))
        for number in range(count):
            (text,) = json.loads((await sockjs.read_frame())[1][1:])
            assert json.loads(text)["body"]["number"] == number
            first, _ = await deflating.read_frame()
            assert first == 0xC1
        await raw.is_up_to_date()
        assert one.gateway.core.reader_count == 3


async def test_requests_that_come_meanwhile_are_served_or_asked_to_come_again(
    box: tuple[RouterPlace, Box],
) -> None:
    _, one = box
    asking, answers = True, collections.Counter[int]()

    async def ask() -> None:
        while asking:
            answers[(await one.request("GET", "/sockjs/info")).status] += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(ask())
        for _ in range(3):
            await take_over(one)
        asking = False
    assert set(answers) <= {200, 503}
    assert answers[200] > 0


async def test_a_half_sent_verb_is_answered_afterwards(box: tuple[RouterPlace, Box]) -> None:
    _, one = box
    async with one.opened() as reader, one.opened() as waiting:
        await reader.upgrade()
        waiting.send(b"GET /websocket HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n")
        verb = json.dumps({"action": "ping", "ref": "é"}, ensure_ascii=False).encode()
        middle = verb.index(b"\xc3") + 1
        # RFC 6455 section 5.4: fragments; the cut is in a character.
        reader.send_frame(0x01, verb[:middle])
        await take_over(one)
        reader.send_frame(0x80, verb[middle:])
        push = json.loads((await reader.read_frame())[1])
        assert (push["type"], push["ref"]) == ("pong", "é")
        waiting.send(
            b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        assert (await waiting.read(12)) == b"HTTP/1.1 101"


async def test_a_message_that_stays_unfinished_is_closed_all_the_same(tmp_path: Path) -> None:
    place = RouterPlace(tmp_path, unfinished_seconds=1.0)
    async with place.control_plane(threads=2) as box, box.opened() as reader:
        await reader.upgrade()
        reader.send_frame(0x01, b"{")
        reader.send_frame(0x89, b"")
        assert await reader.read_frame() == (0x8A, b"")
        await take_over(box)
        pushes = await reader.read_pushes()
        assert [(push["type"], push["code"]) for push in pushes] == [("disconnect", 1008)]


async def test_one_that_fails_is_reported_and_changes_nothing(
    box: tuple[RouterPlace, Box], monkeypatch: pytest.MonkeyPatch
) -> None:
    place, one = box
    plane = plane_of(one.gateway.core)
    async with one.reader(TOPIC) as reader:
        for program, why in (("/bin/false", "printed nothing"), ("/bin/echo", "--take-over")):
            monkeypatch.setattr(plane._child, "_program", Path(program))
            answer = await one.request("POST", "/take-over", port=one.gateway.admin_port)
            assert answer.status == 409
            assert why in answer.json()["error"]
        await place.send_message(one, "still here")
        assert await reader.hear_bodies(1) == ["still here"]


async def test_one_that_an_operator_starts_by_hand_is_found(box: tuple[RouterPlace, Box]) -> None:
    place, one = box
    plane = plane_of(one.gateway.core)
    async with one.reader(TOPIC) as reader:
        attachment, before = plane.attachment, plane.pid
        command = [str(find_program()), "--take-over", "--control", str(place.socket)]
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert await process.stdout.readline() == b"serving\n"
        await until(lambda: plane.attachment > attachment)
        assert (plane.pid, plane.pid != before) == (process.pid, True)
        await place.send_message(one, "found")
        assert await reader.hear_bodies(1) == ["found"]
        # It ends with the drain.
        os.kill(process.pid, signal.SIGTERM)
        assert (await reader.hear_close())[0] == 1012
        assert await asyncio.wait_for(process.wait(), 30) == 0


async def test_a_control_plane_that_dies_meanwhile_is_followed_by_another(tmp_path: Path) -> None:
    place = RouterPlace(tmp_path)
    async with contextlib.AsyncExitStack() as stack:
        async with place.control_plane(threads=2, deflate_bytes=64) as first:
            reader = await stack.enter_async_context(first.reader(TOPIC))
            await place.send_message(first, 0)
            assert await reader.hear_bodies(1) == [0]
            taking = asyncio.create_task(plane_of(first.gateway.core).take_over())
            await asyncio.sleep(0)
            plane_of(first.gateway.core).close()
            taking.cancel()
            await asyncio.wait([taking])
            await place.lose(first, 1)
        async with place.control_plane(threads=2, deflate_bytes=64) as second:
            assert await reader.hear_bodies(1) == [1]
            await place.send_message(second, 2)
            assert await reader.hear_bodies(1) == [2]
        assert (await reader.hear_close())[0] == 1012


async def test_without_a_data_plane_there_is_nothing_to_take_over(
    box: tuple[RouterPlace, Box], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, one = box
    monkeypatch.setattr(plane_of(one.gateway.core), "_taking_over", True)
    answer = await one.request("POST", "/take-over", port=one.gateway.admin_port)
    assert answer.status == 409
