"""A reader's login survives all that happens to the gateway's processes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from dataplanes import plane_of
from gateways import Box, Reader, until
from places import RouterPlace
from signing import AUDIENCE, ISSUER, keys_file, token

from gateway.native.program import find_program
from gateway.process.settings import TokenSettings
from newsfabric.errors import SetupError
from newsfabric.messages.control import revocation
from newsfabric.topics import REVOKED

try:
    find_program()
except SetupError as exc:
    pytest.skip(str(exc), allow_module_level=True)


@pytest.fixture
def place(tmp_path: Path) -> RouterPlace:
    token_settings = TokenSettings(
        keys=keys_file(tmp_path), audience=AUDIENCE, issuer=ISSUER, cookie="session"
    )
    return RouterPlace(tmp_path, tokens=token_settings)


@contextlib.asynccontextmanager
async def logged_in(box: Box, user: str = "42", **claims: Any) -> AsyncIterator[Reader]:
    async with box.reader() as reader:
        push = await reader.answer_to(action="login", token=token(user, **claims))
        assert push["type"] == "logged_in", push
        yield reader


def die(box: Box) -> None:
    """Leave the data plane silently, as a killed process does."""
    plane_of(box.gateway.core).close()


async def test_a_login_outlives_control_planes_and_data_planes(place: RouterPlace) -> None:
    async with contextlib.AsyncExitStack() as stack:
        async with place.control_plane() as first:
            reader = await stack.enter_async_context(logged_in(first, topics=["desk.#"]))
            stranger = await stack.enter_async_context(first.reader())
            for _ in range(2):
                answer = await first.request("POST", "/take-over", port=first.gateway.admin_port)
                assert answer.status == 200
            await reader.subscribe("user.42")
            die(first)
        second = await stack.enter_async_context(place.control_plane())
        await reader.subscribe("desk.plans")
        assert (await reader.answer_to(action="subscribe", topic="user.7"))["code"] == 103
        assert (await stranger.answer_to(action="subscribe", topic="user.42"))["code"] == 101
        push = await reader.answer_to(action="refresh", token=token("42"))
        assert (push["type"], push["user"]) == ("refreshed", "42")
        second.publish("user.42", {"n": 1})
        assert await reader.hear_bodies(1) == [{"n": 1}]


async def test_bad_tokens_are_counted_through_control_planes(place: RouterPlace) -> None:
    async with contextlib.AsyncExitStack() as stack:
        async with place.control_plane() as first:
            reader = await stack.enter_async_context(first.reader())
            for _ in range(3):
                assert (await reader.answer_to(action="login", token="x"))["code"] == 101
            die(first)
        await stack.enter_async_context(place.control_plane())
        assert (await reader.answer_to(action="login", token="x"))["code"] == 101
        await reader.send_verb(action="login", token="x")
        code, pushes = await reader.hear_close()
        assert (code, [push["code"] for push in pushes]) == (4001, [101, 4001])


async def test_a_login_without_a_control_plane_waits_for_the_next(place: RouterPlace) -> None:
    async with contextlib.AsyncExitStack() as stack:
        async with place.control_plane() as first:
            reader = await stack.enter_async_context(first.reader())
            die(first)
            await reader.send_verb(action="login", token=token("42"))
            await reader.send_verb(action="subscribe", topic="user.42")
        await stack.enter_async_context(place.control_plane())
        assert [(await reader.hear())["type"] for _ in range(2)] == ["logged_in", "subscribed"]


async def test_a_token_runs_out_also_without_a_control_plane(place: RouterPlace) -> None:
    async with contextlib.AsyncExitStack() as stack:
        async with place.control_plane() as first:
            # It expired 4.5 s ago: with the leeway of 5 s the login ends soon.
            reader = await stack.enter_async_context(logged_in(first, exp=time.time() - 4.5))
            die(first)
        assert (await reader.hear_close())[0] == 4202
        await stack.enter_async_context(place.control_plane())


async def test_who_was_revoked_while_nobody_looked_is_sent_away_by_the_next(
    place: RouterPlace,
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        async with place.control_plane() as first:
            reader = await stack.enter_async_context(logged_in(first, "42"))
            other = await stack.enter_async_context(logged_in(first, "7"))
            die(first)
            body = revocation("42", int(time.time() * 1000)).body
            await place.store.write([first.envelope(REVOKED, body)])
        second = await stack.enter_async_context(place.control_plane())
        code, pushes = await reader.hear_close()
        assert (code, pushes[-1]["reconnect"]) == (4001, False)
        await other.is_up_to_date()
        core = second.gateway.core
        await until(lambda: len(core.authenticator.revocations) == 1)
