"""Readers of a box whose broker is dead are sent to a box that still gets messages."""

from __future__ import annotations

import asyncio
import json

import pytest
import websockets
from worlds import World

pytestmark = [pytest.mark.world, pytest.mark.timeout(420)]

# Ten seconds without a feed, two to drain, and time for a busy machine.
PATIENCE = 40.0


async def _goodbye(url: str, world: World, broker: str) -> dict[str, object]:
    """Return the push that a reader at ``url`` gets after ``broker`` was killed."""
    async with websockets.connect(url) as reader:
        await reader.send('{"action":"subscribe","topic":"news.breaking"}')
        assert json.loads(await reader.recv())["type"] == "subscribed"
        killed = await asyncio.to_thread(world.run, "chaos", "kill", broker)
        assert killed.returncode == 0, killed.stderr
        async with asyncio.timeout(PATIENCE):
            while (push := json.loads(await reader.recv()))["type"] != "disconnect":
                pass
    found: dict[str, object] = push
    return found


async def test_a_reader_is_sent_away_and_the_box_is_ready_again_when_it_is_fed(
    world: World,
) -> None:
    (gateway,) = world.region("oregon")["gateways"]
    try:
        push = await _goodbye(gateway["websocket_url"], world, "oregon-retail-1")
        assert (push["code"], push["reconnect"]) == (4200, True)
    finally:
        await asyncio.to_thread(world.mend)
