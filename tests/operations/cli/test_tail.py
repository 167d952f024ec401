"""The output of `newsfabric tail`, from a gateway on a stub broker."""

import asyncio
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest
from frontdesks import Frontdesk
from gateways import opened_box

from newsfabric.errors import NewsfabricError
from newsfabric.messages.envelope import identity_text
from operations.cli import tail


async def test_a_tail_of_one_message_shows_the_newest_on_a_topic_with_many_keys(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    frontdesk = Frontdesk()
    base = frontdesk.url.removesuffix("/endpoints.json")
    world = types.SimpleNamespace(frontdesk_urls=lambda _first: [base])
    monkeypatch.setattr(tail, "world_to_read", lambda _state, _say: world)
    async with opened_box("tornado") as box, box.reader("news.latest") as first:
        frontdesk.boxes = [box]
        sent = [
            box.publish("news.latest", key=f"story-{n}", body={"headline": f"Story {n}"})
            for n in range(4)
        ]
        await first.hear_bodies(4)
        await asyncio.to_thread(
            tail.run_tail,
            ["news.latest"],
            state=Path(),
            region=None,
            count=1,
            seconds=20.0,
            transport="websocket",
            rewind="1",
            as_json=False,
        )
    await frontdesk.close()
    printed = capsys.readouterr()
    (line,) = printed.out.splitlines()
    assert "Story 3" in line
    # The identity for `newsfabric trace`, at the end of the line and in a command to copy.
    identity = line.split()[-1]
    assert identity == identity_text(sent[3].identity)
    assert printed.err.splitlines()[-1] == f"its way: newsfabric trace {identity}"


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (
            "nwes.latest",
            "102: nwes.latest: unknown topic; `newsfabric topics match TOPIC` shows similar topics",
        ),
        (
            "user.42",
            "101: user.42: log in to read this topic; tail isn't logged in: it reads public topics "
            "alone",
        ),
    ],
)
async def test_who_is_refused_a_topic_learns_what_to_do(
    monkeypatch: pytest.MonkeyPatch, topic: str, error: str
) -> None:
    frontdesk = Frontdesk()
    base = frontdesk.url.removesuffix("/endpoints.json")
    world = types.SimpleNamespace(frontdesk_urls=lambda _first: [base])
    monkeypatch.setattr(tail, "world_to_read", lambda _state, _say: world)
    async with opened_box("tornado") as box:
        frontdesk.boxes = [box]
        with pytest.raises(NewsfabricError) as refused:
            await asyncio.to_thread(
                tail.run_tail,
                [topic],
                state=Path(),
                region=None,
                count=1,
                seconds=20.0,
                transport="websocket",
                rewind=None,
                as_json=False,
            )
    await frontdesk.close()
    assert str(refused.value) == error


def test_a_tail_knows_when_its_process_was_started() -> None:
    script = "import time; from operations.cli.tail import started_at; print(started_at())"
    before = time.time()
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    # The kernel counts in ticks, so a process may seem to be one tick older than it is.
    assert before - 0.02 <= float(done.stdout) <= time.time()
