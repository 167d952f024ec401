"""``newsfabric-crowd`` against a frontdesk and a gateway that are made up here, and misbehave."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import json
import shutil
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from worlds import ROOT

from bench.programs import Program, started
from loadtest.records import BODY_FIELD, Census, census

pytestmark = [pytest.mark.cargo, pytest.mark.timeout(900)]

TOPIC = "news.breaking"
PATIENCE = 120.0
SECOND = 1_000_000_000
#: Fields of a report that are current values; all others count since the last report.
NOW = {"present", "wanted", "arrived", "left", "holes"}


@pytest.fixture(scope="module")
def program() -> Path:
    if shutil.which("cargo") is None:
        pytest.skip("cargo is missing")
    words = ["cargo", "build", "--quiet", "--locked", "--package", "newsfabric-fanout"]
    subprocess.run([*words, "--bin", "newsfabric-crowd"], check=True, cwd=ROOT)
    return ROOT / "target" / "debug" / "newsfabric-crowd"


class PushingFabric:
    """A frontdesk and a gateway on one port, which pushes messages when the test says so."""

    def __init__(self) -> None:
        self.readers: list[ServerConnection] = []
        #: Each ``subscribe`` that was received, in order.
        self.asked: list[dict[str, Any]] = []
        #: An address that the frontdesk answers with instead of this gateway.
        self.leads_to: str | None = None
        #: The time (ns) at which each message was sent first, whether a reader got it or not.
        self.sent: dict[int, int] = {}
        self._server: Server

    @property
    def port(self) -> int:
        port: int = next(iter(self._server.sockets)).getsockname()[1]
        return port

    @classmethod
    @contextlib.asynccontextmanager
    async def running(cls) -> AsyncIterator[PushingFabric]:
        fabric = cls()
        async with serve(
            fabric._serve, "127.0.0.1", 0, process_request=fabric._answer, compression=None
        ) as server:
            fabric._server = server
            yield fabric

    def publish(self, n: int) -> int:
        """Publish message ``n`` unless it is; no reader gets it yet. Return the time, in ns."""
        return self.sent.setdefault(n, time.time_ns())

    async def push(self, n: int, *, ident: int | None = None, held_up: float = 0.0) -> None:
        """Push message ``n`` to all readers, under its own identity or under ``ident``.

        It was due ``held_up`` seconds before its publisher could send it.
        """
        sent = self.publish(n)
        body = {BODY_FIELD: "p1", "n": n, "sent_ns": sent, "due_ns": sent - round(held_up * SECOND)}
        push = {
            "type": "message",
            "topic": TOPIC,
            "id": f"01942f3c-5d6e-7000-8000-{n if ident is None else ident:012x}",
            "position": f"P{n}",
        }
        # A gateway inserts the publisher's bytes, and these may contain spaces.
        head = json.dumps(push, separators=(",", ":"))
        for reader in list(self.readers):
            # A reader that was cut off may still be listed.
            with contextlib.suppress(ConnectionClosed):
                await reader.send(f'{head[:-1]},"body":{json.dumps(body)}}}')

    async def write(self, raw: bytes) -> None:
        """Send these bytes to all readers, valid or not."""
        for reader in self.readers:
            reader.transport.write(raw)

    async def cut(self) -> None:
        """End all connections without a close frame."""
        for reader in self.readers:
            reader.transport.abort()
        self.readers.clear()

    async def _answer(self, connection: ServerConnection, request: Request) -> Response | None:
        if request.path != "/endpoints.json":
            return None
        url = self.leads_to or f"ws://127.0.0.1:{self.port}/websocket"
        offer = {"gateways": [{"websocket_url": url, "weight": 1.0}], "retry_ms": 100}
        return connection.respond(200, json.dumps(offer, separators=(",", ":")))

    async def _serve(self, connection: ServerConnection) -> None:
        verb = json.loads(await connection.recv())
        self.asked.append(verb)
        push = {"type": "subscribed", "topic": verb["topic"], "recovered": "position" in verb}
        await connection.send(json.dumps(push | {"position": "P"}, separators=(",", ":")))
        self.readers.append(connection)
        await connection.wait_closed()
        with contextlib.suppress(ValueError):
            self.readers.remove(connection)


class CrowdProgram(Program):
    """The program, and the sums of its reports."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        super().__init__(process)
        self.process = process
        self._sums: collections.Counter[str] = collections.Counter()
        self.report: dict[str, Any] = {}
        #: The number of reports of each delay (µs) from publishing to reading.
        self.delays: collections.Counter[int] = collections.Counter()

    @classmethod
    @contextlib.asynccontextmanager
    async def running(cls, program: Path, fabric: PushingFabric) -> AsyncIterator[CrowdProgram]:
        words = ["--frontdesks", f"http://127.0.0.1:{fabric.port}", "--topics", TOPIC]
        async with started([str(program), *words]) as process:
            yield cls(process)

    async def has(self, **counts: int) -> None:
        """Wait until the reports so far add up to ``counts``; fields in NOW are current values."""
        async with asyncio.timeout(PATIENCE):
            while True:
                self.report = await self.send_command("report")
                numbers = {k: v for k, v in self.report.items() if isinstance(v, int)}
                self._sums.update(numbers)
                self.delays.update(dict(self.report["receive"]["counts"]))
                found = self._sums | {name: numbers[name] for name in NOW}
                if all(found[name] == count for name, count in counts.items()):
                    return
                over = {name: found[name] for name in counts if found[name] > counts[name]}
                assert not over.keys() - NOW, f"{over} instead of {counts}"
                await asyncio.sleep(0.02)

    async def census(self, fabric: PushingFabric, *, owed_until: float = 60.0) -> Census:
        """Return the census of all readers. All messages from the first on are owed to each, even
        to a late one, until ``owed_until`` seconds from now."""
        until = time.time_ns() + round(owed_until * SECOND)
        owed = {"kind": "crowd", "since": {TOPIC: 1}, "until": until}
        entries = [entry | owed for entry in (await self.send_command("records"))["entries"]]
        sent = {TOPIC: sorted(map(list, fabric.sent.items()))}
        return census(entries, [{"name": "p1", "sent": sent, "unreceipted": 0}])


async def test_what_is_lost_or_doubled_is_counted_and_what_comes_again_after_a_cut_is_a_repeat(
    program: Path,
) -> None:
    async with PushingFabric.running() as fabric, CrowdProgram.running(program, fabric) as crowd:
        await crowd.send_command("readers 3 1000")
        await crowd.has(present=3)
        for n in (0, 1, 1):
            await fabric.push(n)
        await crowd.has(messages=9, doubled=3, holes=0)
        fabric.publish(2)
        await fabric.push(3)
        await crowd.has(messages=12, holes=3)
        await fabric.cut()
        await crowd.has(broken=3, returned=3, present=3)
        assert [verb.get("position") for verb in fabric.asked] == [None] * 3 + ["P3"] * 3
        for n in (3, 4):
            await fabric.push(n)
        await crowd.has(messages=18, repeats=3, doubled=3, gaps=0, holes=3, strange=0)
        found = await crowd.census(fabric)
    assert (found.readers, found.owed, found.lost) == (3, 15, 3)
    assert (found.doubled, found.repeats, found.gaps, found.outside) == (3, 3, 0, 0)


async def test_a_repeat_under_another_identity_is_doubled(program: Path) -> None:
    async with PushingFabric.running() as fabric, CrowdProgram.running(program, fabric) as crowd:
        await crowd.send_command("readers 1 1000")
        await crowd.has(present=1)
        await fabric.push(0)
        await crowd.has(messages=1)
        await fabric.cut()
        await crowd.has(returned=1, present=1)
        await fabric.push(0, ident=7)
        await crowd.has(messages=2, doubled=1, repeats=0)


async def test_a_storm_cuts_all_at_once_and_all_come_back_from_where_they_were(
    program: Path,
) -> None:
    async with PushingFabric.running() as fabric, CrowdProgram.running(program, fabric) as crowd:
        await crowd.send_command("readers 40 1000")
        await crowd.has(present=40)
        await fabric.push(0)
        await crowd.has(messages=40)
        assert await crowd.send_command("storm") == {"cut": 40}
        await crowd.has(returned=40, present=40, broken=0, gaps=0)
        assert {verb["position"] for verb in fabric.asked[40:]} == {"P0"}
        await fabric.push(1)
        await crowd.has(messages=80, doubled=0, repeats=0, holes=0)


@pytest.mark.parametrize(
    "raw",
    [b"\x01\x02hi", b"\x81\x82\0\0\0\0hi", b"\xc1\x02hi", b"\x81\x7f" + bytes(5) + b"\xff" * 2**21],
    ids=["fragment", "masked", "compressed", "endless"],
)
async def test_who_is_sent_no_frame_of_a_gateway_counts_it_and_comes_back(
    program: Path, raw: bytes
) -> None:
    async with PushingFabric.running() as fabric, CrowdProgram.running(program, fabric) as crowd:
        await crowd.send_command("readers 1 1000")
        await crowd.has(present=1)
        await fabric.write(raw)
        await crowd.has(failed=1, returned=1, present=1)


@pytest.mark.parametrize(
    ("code", "reconnect", "comes_back"), [(1012, True, 1), (4001, True, 0), (1012, False, 0)]
)
async def test_who_is_sent_away_comes_back_unless_asked_not_to(
    program: Path, code: int, reconnect: bool, comes_back: int
) -> None:
    push = {"type": "disconnect", "code": code, "reconnect": reconnect, "retry_after_ms": 5}
    text = json.dumps(push, separators=(",", ":")).encode()
    async with PushingFabric.running() as fabric, CrowdProgram.running(program, fabric) as crowd:
        await crowd.send_command("readers 2 1000")
        await crowd.has(present=2)
        for reader in fabric.readers:
            await reader.send(text.decode())
        await crowd.has(
            moved=2, returned=2 * comes_back, stopped=2 - 2 * comes_back, present=2 * comes_back
        )


async def test_readers_go_when_fewer_are_wanted_and_what_they_had_stays_in_the_books(
    program: Path,
) -> None:
    async with PushingFabric.running() as fabric, CrowdProgram.running(program, fabric) as crowd:
        await crowd.send_command("readers 10 1000")
        await crowd.has(present=10)
        await fabric.push(0)
        await crowd.has(messages=10)
        await crowd.send_command("readers 4 1000")
        await crowd.has(present=4, left=6)
        fabric.publish(1)
        await fabric.push(2)
        await crowd.has(messages=14)
        found = await crowd.census(fabric)
    # Messages to readers that have left can't be waited for.
    assert (found.readers, found.owed, found.lost, found.late) == (10, 30, 4, 12)


async def test_a_delay_counts_from_when_a_message_was_to_be_published(program: Path) -> None:
    async with PushingFabric.running() as fabric, CrowdProgram.running(program, fabric) as crowd:
        await crowd.send_command("readers 5 1000")
        await crowd.has(present=5)
        await fabric.push(0, held_up=3600.0)
        await crowd.has(messages=5)
    # Longer delays count as an hour, in three digits. On a slow machine several reports have them.
    [(delay, often)] = crowd.delays.items()
    assert delay == pytest.approx(3.6e9, rel=0.001)
    assert often == 5
    receive = crowd.report["receive"]
    assert (receive["count"], receive["p50_us"]) == (receive["counts"][0][1], delay)


async def test_a_frontdesk_on_loopback_leads_nobody_elsewhere(program: Path) -> None:
    async with PushingFabric.running() as fabric, CrowdProgram.running(program, fabric) as crowd:
        fabric.leads_to = "ws://192.0.2.1:80/websocket"
        await crowd.send_command("readers 1 1000")
        while not crowd.report or not crowd.report["foreign"]:
            crowd.report = await crowd.send_command("report")
        assert crowd.report["present"] == 0


async def test_a_line_that_is_no_command_is_answered(program: Path) -> None:
    async with PushingFabric.running() as fabric, CrowdProgram.running(program, fabric) as crowd:
        assert "readers wants" in (await crowd.send_command("readers many 1"))["error"]
        assert (await crowd.send_command("sing"))["error"].startswith("the commands are")
        assert await crowd.send_command("end") == {}
        assert await crowd.process.wait() == 0


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("", "--frontdesks and --topics are needed; --help shows how"),
        ("--fast", 'no option "--fast"; --help shows them'),
        (
            "--frontdesks http://192.0.2.1 --topics a",
            "192.0.2.1 is not loopback: it needs --i-own-this-target",
        ),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(program: Path, words: str, error: str) -> None:
    done = subprocess.run([program, *words.split()], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"error: {error}\n")


def test_help_has_examples(program: Path) -> None:
    done = subprocess.run([program, "--help"], capture_output=True, text=True)
    assert done.returncode == 0
    assert "Examples:" in done.stdout
