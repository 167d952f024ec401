"""Commands on a world that died: each reports the reason of its wait, and ends."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner, Result
from worlds import PORTS

from localfabric.world.finding import world_of
from localfabric.world.layout import WorldLayout
from localfabric.world.options import WorldOptions
from localfabric.world.processes import process_id
from localfabric.world.state import Notes, make_folder, read_running
from newsfabric.errors import NewsfabricError
from newsfabric.messages.control import Receipt
from newsfabric.topology import mask
from operations.cli import cli, replay, wait_limit
from operations.cli.recording import RecordedLine, ReplayCounts
from operations.cli.wait_limit import HINT, WaitLimit, hint_about, wait_limited
from operations.worlds import WorldPlaces

pytestmark = pytest.mark.sockets

SELF = process_id(os.getpid())
# Ports after those of the worlds that run meanwhile.
OPTIONS = WorldOptions(port_base=PORTS + 2_100)
LIMIT = "0.6"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait_limit, "PRINT_AFTER", 0.1)


@pytest.fixture
def gone(tmp_path: Path) -> WorldLayout:
    """Return a world that was ready, and of which only Erlang's port mapper is left."""
    state = tmp_path / "world"
    make_folder(state, Notes(options=OPTIONS, processes={"epmd": SELF}, keeper=None, ready=True))
    layout = read_running(state)[0]
    layout.paths.topics.write_text('[[topic]]\npattern = "news.world"\n', encoding="utf-8")
    return layout


@pytest.fixture
def silent(gone: WorldLayout) -> Iterator[WorldLayout]:
    """Yield a world in which all ports accept connections and never reply, as after SIGSTOP."""
    ports = {
        int(url.rsplit(":", 1)[1].split("/")[0])
        for region in gone.regions
        for url in (
            *(broker.amqp_url for broker in (*region.client, *region.core)),
            *(broker.management_url for broker in region.core),
            region.endpoints_url,
        )
    }
    with contextlib.ExitStack() as stack:
        for port in ports:
            stack.enter_context(socket.create_server(("127.0.0.1", port)))
        yield gone


def run(layout: WorldLayout, *arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments, "--state", str(layout.paths.state)])


def hint(layout: WorldLayout) -> str:
    """Return the hint of a command that was given ``--state``."""
    given = f" --state {layout.paths.state}"
    return HINT.replace("status`", f"status{given}`").replace("up`", f"up{given}`")


def day(folder: Path) -> str:
    file = folder / "day.jsonl"
    file.write_text('{"at": 0, "topic": "news.world", "body": 1}\n' * 3)
    return str(file)


@pytest.mark.parametrize("world", ["gone", "silent"])
def test_a_replay_says_what_it_waits_for_and_gives_up(
    world: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    layout = request.getfixturevalue(world)
    result = run(layout, "replay", day(tmp_path), "--timeout", LIMIT)
    assert (result.exit_code, result.stdout) == (1, "")
    waiting, *_, error = result.stderr.splitlines()
    broker = layout.region(None).client[0].amqp_url
    assert waiting.startswith(f"waiting for a receipt from {broker}")
    assert error.startswith(f"error: gave up waiting for a receipt from {broker}")
    assert error.endswith(f"after {LIMIT} s: {hint(layout)}")


def test_a_replay_that_gives_up_says_with_which_command_to_go_on(
    gone: WorldLayout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    receipt = Receipt(status="routed", region="oregon", router="r", topic="news.world")

    async def stuck(
        lines: Sequence[RecordedLine], *_: object, counts: ReplayCounts, **given: Any
    ) -> None:
        """Confirm the first and the third message, and not the second."""
        counts.count(counts.begun_at, receipt)
        counts.count(counts.begun_at + 2, receipt)
        given["wait"].began()
        await asyncio.Event().wait()

    monkeypatch.setattr(replay, "play", stuck)
    monkeypatch.setattr(replay, "world_to_publish_to", lambda *_: broken(gone))
    file = tmp_path / "a day.jsonl"
    file.write_text('{"at": 0, "topic": "news.world", "body": 1}\n' * 9)
    words = ("replay", str(file), "--timeout", LIMIT, "--speed", "0", "--region", "dublin")
    result = run(gone, *words, "--start-at", "4", "--id-suffix", "5e1f")
    given = f" --state {gone.paths.state}"
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1].endswith(
        f"oregon-client-1 is dead or stopped: `newsfabric chaos heal{given}` starts what is. "
        f"2 of 6 are answered, all before 5: go on with `newsfabric replay '{file}' --speed 0 "
        f"--region dublin --start-at 5 --id-suffix 5e1f{given}`"
    )


def broken(layout: WorldLayout) -> WorldPlaces:
    """Return a world in which one broker is dead; the others aren't asked."""
    return dataclasses.replace(world_of(layout), unwell=lambda: ["oregon-client-1"])


def test_a_replay_cant_begin_behind_its_end(gone: WorldLayout, tmp_path: Path) -> None:
    result = run(gone, "replay", day(tmp_path), "--start-at", "4")
    assert result.exit_code == 1
    assert result.stderr.endswith("day.jsonl has 3 messages: there is no number 4\n")


@pytest.mark.parametrize(
    ("unwell", "error"),
    [
        ([], HINT),
        (["a"], "a is dead or stopped: `newsfabric chaos heal` starts what is"),
        (
            list("abcde"),
            "a, b, c and 2 more are dead or stopped: `newsfabric chaos heal` starts what is",
        ),
    ],
)
def test_what_can_be_healed_is_named(gone: WorldLayout, unwell: list[str], error: str) -> None:
    world = dataclasses.replace(world_of(gone), unwell=lambda: unwell)
    assert hint_about(world) == error


@pytest.mark.parametrize("world", ["gone", "silent"])
def test_a_publication_says_what_it_waits_for_and_gives_up(
    world: str, request: pytest.FixtureRequest
) -> None:
    layout = request.getfixturevalue(world)
    result = run(layout, "publish", "news.world", "1", "--timeout", LIMIT, "--message-id", "m-1")
    assert (result.exit_code, result.stdout) == (1, "")
    waiting, error = result.stderr.splitlines()
    broker = layout.region(None).client[0].amqp_url
    assert waiting.startswith("waiting for a receipt from ")
    text = f"error: nothing was sent: no broker took it within {LIMIT} s, of {mask(broker)}"
    assert error.startswith(text)
    assert error.endswith(hint(layout))


@pytest.mark.parametrize("options", [("--timeout", LIMIT), ("--timeout", LIMIT, "--count", "1")])
def test_a_tail_says_what_it_waits_for_and_gives_up(
    gone: WorldLayout, options: tuple[str, ...]
) -> None:
    result = run(gone, "tail", "news.world", *options)
    assert (result.exit_code, result.stdout) == (1, "")
    waiting, error = result.stderr.splitlines()
    assert waiting.startswith("waiting for a gateway (")
    assert error.startswith("error: gave up waiting for a gateway (")
    assert error.endswith(f"after {LIMIT} s: {hint(gone)}")


@pytest.mark.parametrize("options", [("--timeout", LIMIT), ()])
def test_a_tail_in_a_region_without_a_box_says_how_to_have_one(
    gone: WorldLayout, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    monkeypatch.setattr("operations.cli.tail.GIVE_UP_AFTER", 0.5)
    whole = world_of(gone)
    others = tuple(p for p in whole.processes if (p.kind, p.region) != ("gateway", "dublin"))
    world = dataclasses.replace(whole, processes=others)
    monkeypatch.setattr("operations.cli.tail.running_world", lambda _state: world)
    result = run(gone, "tail", "news.world", "--region", "dublin", *options)
    assert result.exit_code == 1
    given = f" --state {gone.paths.state}"
    text = f": dublin has no box: `newsfabric scale dublin 1{given}` starts one"
    assert result.stderr.splitlines()[-1].endswith(text)
    assert run(gone, "tail", "news.world", *options).stderr.endswith(f"{hint(gone)}\n")


def test_a_tail_of_a_frontdesk_that_says_nothing_gives_up(silent: WorldLayout) -> None:
    # In a separate process, with which the rest of Tornado's cancelled request ends.
    words = ("tail", "news.world", "--timeout", "2.5", "--state", str(silent.paths.state))
    result = subprocess.run(
        [sys.executable, "-m", "operations.cli", *words], capture_output=True, text=True, timeout=60
    )
    assert (result.returncode, result.stdout) == (1, "")
    url = silent.region(None).endpoints_url
    assert result.stderr.splitlines() == [
        f"waiting for a gateway ({url})",
        f"error: gave up waiting for a gateway ({url}) after 2.5 s: {hint(silent)}",
    ]


def test_a_tail_without_a_timeout_doesnt_wait_for_ever_for_a_gateway(
    gone: WorldLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("operations.cli.tail.GIVE_UP_AFTER", 0.5)
    result = run(gone, "tail", "news.world")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1].endswith(f"after 0.5 s: {hint(gone)}")


@pytest.mark.parametrize("world", ["gone", "silent"])
def test_a_revocation_says_what_it_waits_for_and_gives_up(
    world: str, request: pytest.FixtureRequest
) -> None:
    layout = request.getfixturevalue(world)
    result = run(layout, "revoke", "42", "--timeout", LIMIT)
    assert (result.exit_code, result.stdout) == (1, "")
    waiting, error = result.stderr.splitlines()
    assert waiting == "waiting for the routers of oregon, dublin"
    assert error.startswith("error: 42 isn't revoked: oregon: ")
    assert error.endswith(hint(layout))


@pytest.mark.parametrize("command", [("rejected",), ("trace", "story-17")])
def test_what_asks_a_world_that_went_away_ends_with_one_line(
    gone: WorldLayout, command: tuple[str, ...]
) -> None:
    result = run(gone, *command)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "\nerror: " in f"\n{result.stderr}"


class Limit:
    """The timeout of a command: it runs or it doesn't."""

    def __init__(self) -> None:
        self.over = False
        self.running: list[bool] = []

    def reschedule(self, when: float | None) -> None:
        assert not self.over
        self.running.append(when is not None)

    def expired(self) -> bool:
        return self.over


async def test_the_time_runs_while_something_is_under_way_and_anew_with_each_answer() -> None:
    limit = Limit()
    waiting = WaitLimit(cast(asyncio.Timeout, limit), lambda: "waiting", 30.0, lambda _text: None)
    waiting.began()
    waiting.began()
    assert limit.running == [False, True]
    waiting.ended()
    assert limit.running[2:] == [False, True]
    # No request is pending: the next message may be due in an hour.
    waiting.ended()
    assert limit.running[4:] == [False]
    waiting.began()
    assert limit.running[5:] == [False, True]
    # A request that the timeout cancels ends, too.
    limit.over = True
    waiting.ended()
    waiting.rest()


async def test_it_gives_up_when_nothing_comes() -> None:
    async def nothing_comes() -> None:
        async with wait_limited(lambda: "waiting", 0.2, print_line=lambda _text: None) as waiting:
            waiting.began()
            await asyncio.Event().wait()

    with pytest.raises(NewsfabricError, match=r"gave up waiting after 0\.2 s"):
        await nothing_comes()


async def test_an_error_of_its_own_stays_what_it_is() -> None:
    async def fails() -> None:
        async with wait_limited(lambda: "waiting", 60.0) as waiting:
            waiting.began()
            raise TimeoutError

    with pytest.raises(TimeoutError):
        await fails()
