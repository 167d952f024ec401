"""Readers of a fleet, and one who publishes for them: ``fleet run python -m tests.fleet.crowd``.

Prints ``ready`` when all readers are connected and subscribed. Publishes over HTTP until its
standard input ends, and then prints one line of JSON: how many messages each reader should have
got, how many readers were disconnected, and how many messages were lost and doubled, summed over
all readers.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import json
import random
import sys

from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest

from newsfabric.errors import Disconnected
from newsfabric.reader import Gateway, Reader, connect, fetch_endpoints

TOPIC = "news.breaking"
_AT_ONCE = 20
_SETTLE_SECONDS = 10.0
_RETRY_SECONDS = 0.5
_PATIENCE_SECONDS = 60.0


@dataclasses.dataclass
class Seat:
    """A reader and what it got: how often each number came."""

    got: collections.Counter[int]
    disconnected: str | None = None


async def _sit(seat: Seat, reader: Reader) -> None:
    try:
        async with reader:
            async for push in reader:
                if push.is_message:
                    seat.got[push.fields["body"]["number"]] += 1
    except Disconnected as exc:
        seat.disconnected = str(exc)


async def _take_seat(gateway: Gateway, gate: asyncio.Semaphore) -> Reader:
    async with gate:
        reader = await connect(gateway, "websocket")
        await reader.subscribe(TOPIC)
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while (await anext(reader)).type != "subscribed":
                pass
        return reader


async def _publish(url: str, key: str, number: int) -> None:
    """Send it until it is routed; sent again under its id, it is routed once."""
    message = {"topic": TOPIC, "body": {"number": number}, "message_id": f"crowd-{number}"}
    headers = {"X-API-Key": key, "Content-Type": "application/json"}
    request = HTTPRequest(url, method="POST", headers=headers, body=json.dumps(message))
    async with asyncio.timeout(_PATIENCE_SECONDS):
        while True:
            try:
                await AsyncHTTPClient().fetch(request)
            except (OSError, HTTPClientError):
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                return


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def run(frontdesk: str, key: str, readers: int, per_second: float) -> None:
    """Seat ``readers``, publish until standard input ends, and print what came of it."""
    gateways = (await fetch_endpoints(f"{frontdesk}/endpoints.json")).gateways
    gate = asyncio.Semaphore(_AT_ONCE)
    first = random.randrange(10**9)
    taken = await asyncio.gather(
        *(_take_seat(gateways[each % len(gateways)], gate) for each in range(readers))
    )
    seats = [Seat(collections.Counter()) for _ in taken]
    sitting = [
        asyncio.create_task(_sit(seat, reader)) for seat, reader in zip(seats, taken, strict=True)
    ]
    _say("ready")
    end = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    sent: list[asyncio.Task[None]] = []
    while not end.done():
        number = first + len(sent)
        sent.append(asyncio.create_task(_publish(f"{frontdesk}/publish", key, number)))
        await asyncio.sleep(1 / per_second)
    await asyncio.gather(*sent)
    await asyncio.sleep(_SETTLE_SECONDS)
    wanted = range(first, first + len(sent))
    report = {
        "readers": len(seats),
        "messages": len(wanted),
        "disconnected": sum(seat.disconnected is not None for seat in seats),
        "lost": sum(seat.got[number] == 0 for seat in seats for number in wanted),
        "doubled": sum(max(0, seat.got[number] - 1) for seat in seats for number in wanted),
        "why": sorted({seat.disconnected for seat in seats if seat.disconnected})[:5],
    }
    _say(json.dumps(report))
    for task in sitting:
        task.cancel()
    await asyncio.gather(*sitting, return_exceptions=True)


if __name__ == "__main__":
    _frontdesk, _key, _readers, _per_second = sys.argv[1:]
    asyncio.run(run(_frontdesk, _key, int(_readers), float(_per_second)))
