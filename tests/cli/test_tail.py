"""What `newsfabric tail` prints, from a gateway on a stub broker."""

import asyncio
import types
from pathlib import Path

import pytest
from frontdesks import Frontdesk
from gateways import opened_box

from newsfabric.cli import tail


async def test_a_tail_of_one_message_shows_the_newest_on_a_topic_with_many_keys(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    desk = Frontdesk()
    region = types.SimpleNamespace(endpoints_url=desk.url)
    layout = types.SimpleNamespace(region=lambda _name: region)
    monkeypatch.setattr(tail, "world_to_read", lambda _state, _say: layout)
    async with opened_box("tornado") as box, box.reader("news.latest") as first:
        desk.boxes = [box]
        for n in range(4):
            box.publish("news.latest", key=f"story-{n}", body={"headline": f"Story {n}"})
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
    await desk.close()
    (line,) = capsys.readouterr().out.splitlines()
    assert "Story 3" in line
