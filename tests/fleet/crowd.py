"""Readers of a fleet, and a publisher: ``fleet run python -m tests.fleet.crowd``.

Arguments name a region's frontdesk, or several. Readers ask the first one where to connect, and
each takes messages while those before it don't. The program prints ``ready`` when all readers are
connected and subscribed. It publishes over HTTP, or over AMQP where ``CROWD_AMQP_URLS`` lists the
regions' client nodes, until its standard input ends. Then it prints one line of JSON: the messages
published, the deliveries owed to its readers, the readers disconnected, and the deliveries lost and
doubled. Over AMQP also the regions in which messages were routed.

Readers and messages may be spread over several topics: 2,000 readers of 50 messages a second on one
topic would be 100,000 deliveries a second, which this process can't take.

With several frontdesks, disconnected readers reconnect: they ask one frontdesk after the other, and
go on from their position, as the readers' library does. It drops known identities, so a message is
doubled if it arrived under two. The report has the seconds from the first disconnect to the last,
and the disconnects of the fullest second.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import itertools
import json
import os
import random
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest

from fleet import access
from newsfabric.errors import Disconnected
from newsfabric.messages.envelope import identity_of_id
from newsfabric.publish import AsyncPublisher
from newsfabric.reader import Endpoint, Reader, connect, fetch_endpoints

TOPIC = "news.breaking"
_AT_ONCE = 20
_SETTLE_SECONDS = 10.0
# The backlog of a region without a broker arrives at once, and this one process takes its time.
_NO_MORE_AFTER_SECONDS = 60.0
_RETRY_SECONDS = 0.5
# A region's only broker is replaced, with its machine, within this time.
_PATIENCE_SECONDS = 600.0


@dataclasses.dataclass
class Seat:
    """A reader of ``topic``: the identities under which each number arrived, with repeats.

    ``left`` is the time when it was disconnected, in seconds; ``position`` is where it goes on.
    """

    topic: str
    got: collections.defaultdict[int, list[int]]
    disconnected: str | None = None
    position: str | None = None
    left: list[float] = dataclasses.field(default_factory=list)


def topic_of(number: int, topics: int) -> str:
    """Return the topic of a reader or message: they are spread evenly by their numbers."""
    which = number % topics
    return f"news.crowd-{which}" if which else TOPIC


async def _sit(seat: Seat, reader: Reader) -> None:
    """Take messages until the reader is disconnected."""
    try:
        async with reader:
            async for push in reader:
                seat.position = push.position or seat.position
                if push.is_message:
                    identity = identity_of_id(str(push.fields["id"]))
                    seat.got[push.fields["body"]["number"]].append(identity)
    except Disconnected as exc:
        seat.disconnected = str(exc)
        seat.left.append(time.monotonic())


async def _sit_again_and_again(seat: Seat, reader: Reader, frontdesks: Sequence[str]) -> None:
    """Take messages and reconnect until cancelled."""
    while True:
        await _sit(seat, reader)
        reader = await _come_again(seat, frontdesks)


async def _come_again(seat: Seat, frontdesks: Sequence[str]) -> Reader:
    while True:
        await asyncio.sleep(random.uniform(0, 2 * _RETRY_SECONDS))
        for frontdesk in frontdesks:
            try:
                endpoints = await fetch_endpoints(f"{frontdesk}/endpoints.json")
                if endpoints.gateways:
                    return await _subscribed(endpoints.choose(random.Random()), seat)
            except (OSError, Disconnected, TimeoutError):
                continue


async def _take_seat(seat: Seat, gateway: Endpoint, slots: asyncio.Semaphore) -> Reader:
    async with slots:
        return await _subscribed(gateway, seat)


async def _subscribed(gateway: Endpoint, seat: Seat) -> Reader:
    async with asyncio.timeout(_PATIENCE_SECONDS):
        reader = await connect(gateway, "websocket")
        await reader.subscribe(seat.topic, position=seat.position)
        while (push := await anext(reader)).type != "subscribed":
            pass
        # Replayed messages are older than this one.
        seat.position = seat.position or push.position
        return reader


@dataclasses.dataclass
class ByHttp:
    """A publisher that sends a message to one frontdesk after the other until it is routed."""

    frontdesks: Sequence[str]
    key: str

    async def publish(self, topic: str, number: int) -> None:
        """Publish; a message that is sent again under its id is routed once."""
        message = {"topic": topic, "body": {"number": number}, "message_id": f"crowd-{number}"}
        headers = {"X-API-Key": self.key, "Content-Type": "application/json"}
        async with asyncio.timeout(_PATIENCE_SECONDS):
            for frontdesk in itertools.cycle(self.frontdesks):
                url = f"{frontdesk}/publish"
                request = HTTPRequest(url, method="POST", headers=headers, body=json.dumps(message))
                try:
                    await AsyncHTTPClient().fetch(request)
                except (OSError, HTTPClientError):
                    await asyncio.sleep(_RETRY_SECONDS)
                else:
                    return

    def report(self) -> dict[str, Any]:
        return {}


@dataclasses.dataclass
class ByAmqp:
    """The Python library, which sends a message again, and elsewhere, until it has a receipt."""

    publisher: AsyncPublisher
    regions: set[str | None] = dataclasses.field(default_factory=set)

    async def publish(self, topic: str, number: int) -> None:
        published = await self.publisher.publish(
            topic, {"number": number}, message_id=f"crowd-{number}"
        )
        self.regions.add(published.region)

    def report(self) -> dict[str, Any]:
        return {"routed_in": sorted(map(str, self.regions))}


@contextlib.asynccontextmanager
async def _publisher(frontdesks: Sequence[str], key: str) -> AsyncIterator[ByHttp | ByAmqp]:
    if regions := os.environ.get("CROWD_AMQP_URLS"):
        settings = {"app_id": access.PUBLISHER, "timeout": _PATIENCE_SECONDS}
        async with await AsyncPublisher.open(regions.split(), **settings) as publisher:
            yield ByAmqp(publisher)
    else:
        yield ByHttp(frontdesks, key)


def _leaving(times: Sequence[float]) -> dict[str, float]:
    """Return the spread of the disconnects, over whole seconds from the first one on."""
    if not times:
        return {}
    began = min(times)
    seconds = collections.Counter(int(at - began) for at in times)
    lasted = max(1.0, max(times) - began)
    return {
        "left": len(times),
        "left_in_seconds": round(lasted, 1),
        "fullest_second": max(seconds.values()),
    }


def _print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def _settled(missing: Callable[[], int]) -> None:
    """Wait until nothing is missing, or the number hasn't fallen for a minute."""
    least, at = missing(), time.monotonic()
    while least and time.monotonic() - at < _NO_MORE_AFTER_SECONDS:
        await asyncio.sleep(1.0)
        if (now := missing()) < least:
            least, at = now, time.monotonic()


async def run(
    frontdesks: Sequence[str], key: str, readers: int, per_second: float, topics: int
) -> None:
    """Connect ``readers``, publish until standard input ends, and print the result."""
    gateways = (await fetch_endpoints(f"{frontdesks[0]}/endpoints.json")).gateways
    slots = asyncio.Semaphore(_AT_ONCE)
    first = random.randrange(10**9)
    seats = [Seat(topic_of(each, topics), collections.defaultdict(list)) for each in range(readers)]
    taken = await asyncio.gather(
        *(
            _take_seat(seat, gateways[each % len(gateways)], slots)
            for each, seat in enumerate(seats)
        )
    )
    sitting = [
        asyncio.create_task(
            _sit(seat, reader)
            if len(frontdesks) == 1
            else _sit_again_and_again(seat, reader, frontdesks)
        )
        for seat, reader in zip(seats, taken, strict=True)
    ]
    async with _publisher(frontdesks, key) as publisher:
        _print_line("ready")
        end = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
        sent: list[asyncio.Task[None]] = []
        while not end.done():
            number = first + len(sent)
            sent.append(asyncio.create_task(publisher.publish(topic_of(number, topics), number)))
            await asyncio.sleep(1 / per_second)
        await asyncio.gather(*sent)
    numbers = range(first, first + len(sent))
    of_topic = collections.defaultdict(list)
    for number in numbers:
        of_topic[topic_of(number, topics)].append(number)
    await _settled(lambda: sum(not s.got[n] for s in seats for n in of_topic[s.topic]))
    # Duplicates may arrive late.
    await asyncio.sleep(_SETTLE_SECONDS)
    owed = [seat.got[number] for seat in seats for number in of_topic[seat.topic]]
    report = {
        "readers": len(seats),
        "messages": len(numbers),
        "owed": len(owed),
        "disconnected": sum(seat.disconnected is not None for seat in seats),
        "lost": sum(not got for got in owed),
        "doubled": sum(max(0, len(set(got) if len(frontdesks) > 1 else got) - 1) for got in owed),
        **_leaving([at for seat in seats for at in seat.left]),
        "why": sorted({seat.disconnected for seat in seats if seat.disconnected})[:5],
        **publisher.report(),
    }
    _print_line(json.dumps(report))
    for task in sitting:
        task.cancel()
    await asyncio.gather(*sitting, return_exceptions=True)


if __name__ == "__main__":
    _frontdesks, _key, _readers, _per_second, _topics = sys.argv[1:]
    asyncio.run(run(_frontdesks.split(","), _key, int(_readers), float(_per_second), int(_topics)))
