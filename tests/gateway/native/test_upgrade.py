"""A control plane dies and another one starts: no reader notices. On the real data plane."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

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


def die(box: Box) -> None:
    """Leave the data plane silently, as a killed process does."""
    plane_of(box.gateway.core).close()


@pytest.fixture
def place(tmp_path: Path) -> RouterPlace:
    return RouterPlace(tmp_path)


async def test_readers_stay_and_hear_each_message_once(place: RouterPlace) -> None:
    async with contextlib.AsyncExitStack() as stack:
        async with place.control_plane() as first:
            reader = await stack.enter_async_context(first.reader("news.breaking"))
            await place.send_message(first, 0)
            assert await reader.hear_bodies(1) == [0]
            await place.send_message(first, 1)
            assert await reader.hear_bodies(1) == [1]
            die(first)
            # No gateway takes this one from the queue, and the next one is lost on its way.
            await place.send_message(first, 2)
            await place.lose(first, 3)
            await reader.send_verb(action="ping", ref="waiting")
        async with place.control_plane() as second:
            heard = [await reader.hear() for _ in range(3)]
            assert [push["ref"] for push in heard if push["type"] == "pong"] == ["waiting"]
            assert [push["body"] for push in heard if push["type"] == "message"] == [2, 3]
            await place.send_message(second, 4)
            assert await reader.hear_bodies(1) == [4]
            await reader.is_up_to_date()
        assert (await reader.hear_close())[0] == 1012


async def test_a_newer_control_plane_takes_over_from_a_living_one(place: RouterPlace) -> None:
    async with contextlib.AsyncExitStack() as stack:
        async with place.control_plane() as first:
            reader = await stack.enter_async_context(first.reader("news.breaking"))
            await place.send_message(first, 0)
            assert await reader.hear_bodies(1) == [0]
            second = await stack.enter_async_context(place.control_plane())
            await asyncio.wait_for(first.stop.wait(), 60)
        await place.send_message(second, 1)
        assert await reader.hear_bodies(1) == [1]
        await reader.is_up_to_date()


async def test_alone_for_too_long_the_data_plane_drains(place: RouterPlace) -> None:
    async with place.control_plane(alone_seconds=0.2) as box, box.reader() as reader:
        die(box)
        code, pushes = await reader.hear_close()
        assert (code, pushes[-1]["type"]) == (1012, "disconnect")


async def test_a_data_plane_that_dies_is_started_again_on_its_port(place: RouterPlace) -> None:
    async with place.control_plane() as box:
        async with box.reader() as reader:
            plane = plane_of(box.gateway.core)
            process = plane._child._process
            assert process is not None
            attachment = plane.attachment
            process.kill()
            code, _ = await reader.hear_close()
            assert code is None
        await until(lambda: plane.attachment > attachment)
        async with box.reader("news.breaking") as reader:
            await place.send_message(box, "again")
            assert await reader.hear_bodies(1) == ["again"]
