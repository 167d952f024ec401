"""Individual messages in a real fabric: kept, read on one device, and shown as read on others."""

from __future__ import annotations

import contextlib
import json
import statistics
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect
from worlds import World

pytestmark = [pytest.mark.world, pytest.mark.timeout(420)]

PATIENCE = 60.0


class LoggedInReader:
    """A reader that is logged in."""

    def __init__(self, connection: ClientConnection, user: str) -> None:
        self._connection = connection
        self.topic = f"user.{user}"

    def send_verb(self, **verb: Any) -> None:
        self._connection.send(json.dumps(verb))

    def hear(self, *types: str) -> dict[str, Any]:
        """Return the next push of one of ``types``."""
        while True:
            push: dict[str, Any] = json.loads(self._connection.recv(PATIENCE))
            if push["type"] in types:
                return push
            assert push["type"] != "error", push

    def open_mailbox(self) -> list[dict[str, Any]]:
        self.send_verb(action="subscribe", topic=self.topic)
        assert self.hear("subscribed")["recovered"] is True
        self.send_verb(action="ping")
        kept = []
        while (push := self.hear("message", "acked", "read", "pong"))["type"] != "pong":
            kept.append(push)
        return kept

    def mark(self, kind: str, id_: str) -> None:
        self.send_verb(action=kind, topic=self.topic, id=id_)


@contextlib.contextmanager
def device(world: World, region: str, user: str, *options: str) -> Iterator[LoggedInReader]:
    issued = world.run("token", user, *options)
    assert issued.returncode == 0, issued.stderr
    url = world.region(region)["gateways"][0]["websocket_url"]
    with connect(url) as connection:
        found = LoggedInReader(connection, user)
        found.send_verb(action="login", token=issued.stdout.strip())
        assert found.hear("logged_in")["user"] == user
        yield found


def write_to(world: World, user: str, text: str, region: str = "oregon") -> str:
    """Publish an individual message; return its message id."""
    message_id = f"bill-{uuid.uuid4()}"
    done = world.run(
        *("publish", f"user.{user}", json.dumps({"text": text}), "--region", region),
        *("--app-id", "billing", "--message-id", message_id),
    )
    assert done.returncode == 0, done.stderr
    return message_id


def new_user() -> str:
    return f"u-{uuid.uuid4()}"


def same(one: str, other: str) -> bool:
    """Return whether two ids are of one message."""
    return one[14:] == other[14:]


def test_what_came_while_the_user_was_away_is_dismissed_on_one_device_and_gone_on_all(
    world: World,
) -> None:
    user = new_user()
    message_ids = [
        write_to(world, user, f"letter {n}", region)
        for n, region in enumerate(("oregon", "dublin", "oregon"))
    ]
    with (
        device(world, "oregon", user) as phone,
        device(world, "dublin", user) as page,
        device(world, "dublin", new_user()) as stranger,
        device(world, "oregon", "billing-desk", "--topics", "marks.billing") as tool,
    ):
        tool.send_verb(action="subscribe", topic="marks.billing")
        tool.hear("subscribed")
        assert stranger.open_mailbox() == []
        for each in (phone, page):
            kept = each.open_mailbox()
            assert [push["body"]["text"] for push in kept] == ["letter 0", "letter 1", "letter 2"]
        letter = kept[1]
        phone.mark("dismiss", letter["id"])
        assert phone.hear("marked")["mark"] == "dismiss"
        assert same(page.hear("dismissed")["id"], letter["id"])
        note = tool.hear("message")["body"]
        assert (note["user"], note["message_id"], note["mark"]) == (user, message_ids[1], "dismiss")
    for region in ("oregon", "dublin"):
        with device(world, region, user) as again:
            kept = again.open_mailbox()
            assert [push["body"]["text"] for push in kept] == ["letter 0", "letter 2"]


def test_a_device_in_the_other_region_hears_soon(world: World) -> None:
    user = new_user()
    with device(world, "oregon", user) as phone, device(world, "dublin", user) as page:
        phone.open_mailbox()
        page.open_mailbox()
        waits = []
        for n in range(5):
            write_to(world, user, f"letter {n}")
            id_ = phone.hear("message")["id"]
            page.hear("message")
            began = time.monotonic()
            phone.mark("read", id_)
            assert same(page.hear("read")["id"], id_)
            waits.append(time.monotonic() - began)
        # A second is promised, and measured by `bench mailbox`. Other tests run beside this one.
        assert statistics.median(waits) < 10.0, waits


def test_marks_go_on_when_a_mailbox_service_is_killed(world: World) -> None:
    user = new_user()
    write_to(world, user, "a letter")
    with device(world, "oregon", user) as phone, device(world, "dublin", user) as page:
        (letter,) = phone.open_mailbox()
        page.open_mailbox()
        killed = world.run("chaos", "kill", "oregon-mailbox-1")
        assert killed.returncode == 0, killed.stderr
        try:
            phone.mark("read", letter["id"])
            assert same(page.hear("read")["id"], letter["id"])
        finally:
            healed = world.run("chaos", "heal", "oregon-mailbox-1")
            assert healed.returncode == 0, healed.stderr
