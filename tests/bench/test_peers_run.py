"""Peers from the project's own environment, with a crowd that is compiled for the test."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

from bench import peers
from bench.peers.catalogue import Peer
from bench.peers.play import FLOOR, Plan, Under, play, rounds
from bench.peers.servers import MERCURE, lines_to, mercure
from bench.programs import build

pytestmark = [
    pytest.mark.slow,
    pytest.mark.cargo,
    pytest.mark.timeout(1200),
    pytest.mark.xdist_group("bench"),
]

PROGRAMS = Path(peers.__file__).with_name("programs")
HUB = Peer(
    "mercure",
    lambda _: mercure([sys.executable, str(Path(__file__).with_name("hub.py"))]),
    lambda: None,
    path=f"{MERCURE}?topic=%t",
    events=True,
)
SMALL = Plan(readers=40, topics=4, messages=3, seconds=0.3)
SOCKJS = {"path": "/sockjs/000/bench/websocket", "say": '["%t"]\n[""]'}


@pytest.fixture(scope="module", autouse=True)
def _programs() -> None:
    build()


def peer(program: str, **spoken: str) -> Peer:
    command = [sys.executable, str(PROGRAMS / program)]
    return Peer(
        "a peer", lambda deflates: lines_to(command, deflates=deflates), lambda: None, **spoken
    )


@pytest.mark.parametrize(
    ("program", "spoken"), [("tornado_server.py", {}), ("sockjs_tornado_server.py", SOCKJS)]
)
async def test_every_reader_of_a_peer_gets_the_messages_of_its_topic(
    program: str, spoken: dict[str, str]
) -> None:
    found = await play(peer(program, **spoken), SMALL)
    assert found.missing == 0
    assert found.cpu_us > 0
    assert found.p50_ms is not None
    assert 0 < found.p50_ms < 60_000


@pytest.mark.parametrize("under", [Under.STALLED, Under.STORM])
@pytest.mark.parametrize(
    ("program", "spoken"), [("tornado_server.py", {}), ("sockjs_tornado_server.py", SOCKJS)]
)
async def test_who_reads_and_stays_misses_nothing(
    program: str, spoken: dict[str, str], under: Under
) -> None:
    plan = dataclasses.replace(SMALL, under=under)
    found = await play(peer(program, **spoken), plan)
    assert found.missing == 0
    assert (found.bytes_stalled is None) == (under is Under.STORM)


@pytest.mark.parametrize("under", [Under.NOTHING, Under.STALLED, Under.STORM])
async def test_every_reader_of_a_hub_gets_the_events_of_its_topic(under: Under) -> None:
    found = await play(HUB, dataclasses.replace(SMALL, size=16_384, under=under))
    assert found.missing == 0
    assert found.cpu_us > 0
    assert found.p50_ms is not None
    assert 0 < found.p50_ms < 60_000


async def test_an_event_that_answers_is_no_message() -> None:
    answering = dataclasses.replace(HUB, path=f"{HUB.path}&answer=1", answers=1)
    found = await play(answering, SMALL)
    assert found.missing == 0


async def test_what_comes_compressed_is_understood_with_a_context_too() -> None:
    # Tornado keeps its compression context, whatever a reader asks for.
    plan = dataclasses.replace(SMALL, size=1024, under=Under.DEFLATE)
    found = await play(peer("tornado_server.py"), plan)
    assert found.missing == 0
    assert found.p50_ms is not None
    assert 0 < found.p50_ms < 60_000


async def test_a_peer_that_compresses_nothing_is_reported() -> None:
    plan = dataclasses.replace(SMALL, under=Under.DEFLATE)
    with pytest.raises(ValueError, match="no message came compressed"):
        await play(peer("sockjs_tornado_server.py", **SOCKJS), plan)


async def test_a_peer_that_fails_is_left_out_and_the_others_go_on() -> None:
    fails = Peer("fails", lambda _: lines_to(["false"]), lambda: None)
    works = dataclasses.replace(peer("tornado_server.py"), name="works")
    found, failed = await rounds([fails, works], SMALL, 2, lambda line: None)
    assert {name: len(runs) for name, runs in found.items()} == {FLOOR: 2, "works": 2}
    assert [*failed] == ["fails"]
