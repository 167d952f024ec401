"""Users of a whole world: logged in, and locked out everywhere at once."""

from __future__ import annotations

import contextlib
import json
import stat
import time
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol
from worlds import World

pytestmark = [pytest.mark.world, pytest.mark.timeout(420)]


def token(world: World, user: str, *options: str) -> str:
    done = world.run("token", user, *options)
    assert done.returncode == 0, done.stderr
    assert "this world alone" in done.stderr
    return done.stdout.strip()


def websockets_of(world: World) -> list[str]:
    """Return the WebSocket URL of a gateway in each region."""
    regions = world.status()["regions"]
    assert len(regions) == 2
    return [region["gateways"][0]["websocket_url"] for region in regions]


def opened(url: str, with_token: str) -> ClientConnection:
    return connect(url, subprotocols=[Subprotocol("newsfabric"), Subprotocol(with_token)])


def hear(connection: ClientConnection) -> dict[str, Any]:
    push: dict[str, Any] = json.loads(connection.recv(10))
    return push


def answer_to(connection: ClientConnection, **verb: Any) -> dict[str, Any]:
    connection.send(json.dumps(verb))
    return hear(connection)


def test_a_user_gets_its_own_messages_in_every_region(world: World) -> None:
    mine = token(world, "e2e-reader")
    first, second = (opened(url, mine) for url in websockets_of(world))
    with first, second:
        for device in (first, second):
            assert hear(device)["user"] == "e2e-reader"
            assert (
                answer_to(device, action="subscribe", topic="user.e2e-reader")["type"]
                == "subscribed"
            )
            refused = answer_to(device, action="subscribe", topic="user.somebody")
            assert (refused["type"], refused["code"]) == ("error", 103)
        assert world.run("publish", "user.e2e-reader", '{"n": 1}').returncode == 0
        assert hear(first)["body"] == hear(second)["body"] == {"n": 1}


def test_the_key_of_the_world_is_its_owners_alone(world: World) -> None:
    assert stat.S_IMODE((world.state / "token-key.pem").stat().st_mode) == 0o600


def test_a_revoked_user_is_out_in_every_region(world: World) -> None:
    old, other = token(world, "e2e-revoked"), token(world, "e2e-other")
    urls = websockets_of(world)
    with contextlib.ExitStack() as stack:
        readers = [stack.enter_context(opened(url, old)) for url in urls]
        others = [stack.enter_context(opened(url, other)) for url in urls]
        for reader in readers + others:
            assert hear(reader)["type"] == "logged_in"
        revoke_and_watch(world, readers)
        for reader in others:
            assert answer_to(reader, action="ping")["type"] == "pong"
    for url in urls:
        with opened(url, old) as again:
            push = hear(again)
            assert (push["code"], push["reason"]) == (101, "the token was revoked")
    # A token issued in a later second is accepted.
    time.sleep(1.1)
    with opened(urls[0], token(world, "e2e-revoked")) as back:
        assert hear(back)["type"] == "logged_in"


def revoke_and_watch(world: World, readers: list[ClientConnection]) -> None:
    revoke = world.start("revoke", "e2e-revoked")
    for reader in readers:
        assert (push := hear(reader))["type"] == "disconnect", push
        assert (push["code"], push["reconnect"]) == (4001, False)
        with pytest.raises(ConnectionClosed) as closed:
            reader.recv(10)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4001
    out, err = revoke.communicate(timeout=20)
    assert (revoke.returncode, out) == (0, "e2e-revoked is revoked\n"), err


@pytest.mark.parametrize("user", ["", "a b", "*", "x" * 65])
def test_what_is_no_user_is_an_error_in_one_line(world: World, user: str) -> None:
    for command in ("token", "revoke"):
        done = world.run(command, user)
        assert (done.returncode, done.stdout) == (1, "")
        assert len(done.stderr.strip().splitlines()[-1:]) == 1
        assert "no user's id" in done.stderr


def test_publishers_cant_revoke(world: World) -> None:
    done = world.run("publish", "_fabric.revoked", '{"user": "e2e-other", "at": 1}')
    assert done.returncode == 1
    assert "topic_not_allowed" in done.stderr
