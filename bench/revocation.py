"""The time from the revocation of a user until the last gateway has closed the connection.

The time of the command's own process (Python, its imports) isn't included: it is not the fabric's.
"""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any, Final

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from bench.rows import BenchRow
from bench.world import newsfabric
from localfabric.world.state import read_running
from newsfabric.settings import Credentials
from operations.cli.revoke import revoke_in_all

USERS: Final = 10
LIMIT: Final = 2.0
_PATIENCE: Final = 10.0


def measure(status: dict[str, Any]) -> BenchRow:
    """Return the longest of :data:`USERS` revocations, each with a device in every region."""
    state = Path(status["state"])
    urls = [region["gateways"][0]["websocket_url"] for region in status["regions"]]
    users = [f"bench-revoked-{n}" for n in range(USERS)]
    tokens = [newsfabric(state, "token", user).strip() for user in users]
    longest = asyncio.run(_longest(state, urls, dict(zip(users, tokens, strict=True))))
    figure = "a user is revoked: the last gateway of both regions has closed, worst of 10"
    return BenchRow(figure, longest, "s", at_most=LIMIT, digits=2)


async def _longest(state: Path, urls: list[str], tokens: dict[str, str]) -> float:
    fabric = read_running(state)[0].fabric()
    longest = 0.0
    for user, token in tokens.items():
        devices = [await _logged_in(url, token) for url in urls]
        began = time.monotonic()
        closed = [asyncio.create_task(_closed_at(device)) for device in devices]
        await revoke_in_all(fabric, user, Credentials(), _PATIENCE)
        longest = max(longest, *[at - began for at in await asyncio.gather(*closed)])
    return longest


async def _logged_in(url: str, token: str) -> ClientConnection:
    device = await connect(url, subprotocols=[Subprotocol("newsfabric"), Subprotocol(token)])
    push = json.loads(await asyncio.wait_for(device.recv(), _PATIENCE))
    assert push["type"] == "logged_in", push
    return device


async def _closed_at(device: ClientConnection) -> float:
    """Return the time at which the gateway closed ``device``; TimeoutError if it doesn't."""
    async with asyncio.timeout(_PATIENCE):
        try:
            while True:
                await device.recv()
        except ConnectionClosed:
            return time.monotonic()
