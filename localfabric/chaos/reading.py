"""Readers of a chaos run, and the lines in which they report events.

They work like the readers' library: fetch the endpoints, connect, subscribe from the position of
each topic, drop repeats by identity, and reconnect after a pause. If a gateway can't resume a
topic, they rewind it and read its history. Some readers stay, some reconnect now and then, some
roam between regions, some leave early and come back at the end, in another region. They use
WebSocket, SockJS, and event streams, which resume from the last event's id. Readers with a login
are in ``devices``; the process of all is ``crowd``.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import time
from collections.abc import Sequence
from typing import Any, Final, TextIO

from localfabric.chaos.delivery_record import (
    ABSENT,
    Arrival,
    DeliveryRecord,
    ReaderProfile,
    RecordedConnection,
    ReportedGap,
    Sort,
)
from localfabric.chaos.rereading import read_history
from newsfabric.backoff import Backoff
from newsfabric.errors import Disconnected
from newsfabric.messages.envelope import identity_of_id
from newsfabric.reader import Endpoint, Endpoints, Push, Transport, connect, fetch_endpoints
from newsfabric.reader import Reader as NewsReader

_FLUSH_EVERY: Final = 0.25
# Of twelve readers six stay, three reconnect, two roam, one is absent.
_HABITS: Final = (
    "staying", ABSENT, "staying", "roaming", "staying", "reconnecting",
    "staying", "reconnecting", "staying", "roaming", "staying", "reconnecting",
)  # fmt: skip
# The rewind of a reader that was away, if it can't be resumed. It counts back from the gateway's
# answer, which on a busy machine was once 18 s after the request.
_REWIND: Final = "5m"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReaderPlan:
    """A reader's topics and habits. ``regions``: endpoints' URLs, the reader's home first.

    ``stays`` is the mean duration (s) of a connection; None: until it breaks. ``away`` is the mean
    pause (s) after it. A ``token`` logs the reader in. ``rewind`` is its request when it
    reconnects, used if resuming isn't possible.
    """

    name: str
    habit: str
    topics: tuple[str, ...]
    regions: tuple[str, ...]
    transport: Transport
    stays: float | None
    away: float = 0.0
    rewind: str = _REWIND
    token: str | None = dataclasses.field(default=None, repr=False)

    def reader(self) -> ReaderProfile:
        """Return the reader's profile for the record."""
        return ReaderProfile(
            name=self.name,
            habit=self.habit,
            topics=frozenset(self.topics),
            goes_away=self.away > 0 or self.habit == ABSENT,
        )


def make_plans(
    topics: Sequence[str], endpoints: Sequence[str], *, count: int, seed: int, minutes: float
) -> list[ReaderPlan]:
    """Make ``count`` readers with two topics each, for a run of ``minutes``.

    Half stay, a quarter reconnect, a sixth roam, the rest is absent.
    """
    rng = random.Random(seed)  # noqa: S311 - repeatable, not secret
    plans = []
    for n in range(count):
        habit = _HABITS[n % len(_HABITS)]
        # At random: so readers of each habit are at home in each region.
        home = rng.randrange(len(endpoints))
        # The first six of each 36 readers use event streams: all habits are among them.
        transport: Transport = "sockjs" if n % 5 == 0 else "websocket"
        if n // 6 % 6 == 0:
            transport = "sse"
        plans.append(
            ReaderPlan(
                name=f"{habit}-{n}",
                habit=habit,
                topics=tuple(rng.sample(topics, 2)),
                regions=tuple(endpoints[home:]) + tuple(endpoints[:home]),
                transport=transport,
                stays=None if habit == "staying" else rng.uniform(8.0, 30.0),
                rewind=f"{int(minutes) + 5}m" if habit == ABSENT else _REWIND,
            )
        )
    return plans


class EventWriter:
    """Lines of tab-separated words: time, event, reader, connection, details."""

    def __init__(self, out: TextIO, run: str) -> None:
        self._out = out
        self.run = run

    def write(self, *words: object) -> None:
        """Write one line, stamped with seconds since the epoch."""
        now = f"{time.time():.4f}"
        self._out.write("\t".join((now, *map(str, words))) + "\n")

    async def flush(self) -> None:
        """Flush the lines now and then, for ever."""
        while True:
            self._out.flush()
            await asyncio.sleep(_FLUSH_EVERY)


def read_line(line: str, record: DeliveryRecord, began: float) -> None:
    """Enter a line of an :class:`EventWriter` into ``record``, whose times count from ``began``."""
    stamp, what, reader, connection, *rest = line.rstrip("\n").split("\t")
    at = float(stamp) - began
    if what in ("new", "repeat", "double"):
        sort: Sort = what  # type: ignore[assignment]
        record.arrived(Arrival(reader, int(connection), int(rest[0]), at, sort))
    elif what == "reread":
        record.reread(reader, int(rest[0]), at)
    elif what == "connected":
        record.connected(reader, RecordedConnection(int(connection), at, rest[0]))
    elif what == "recovered":
        topic, asked = rest
        record.recovered(reader, topic, asked=float(asked) - began, at=at)
    elif what == "ended":
        record.disconnected(reader, at)
    elif what == "gap":
        topic, reason = rest
        record.gap(ReportedGap(reader, int(connection), topic, at, reason))
    elif what == "dismiss":
        record.dismissed(int(rest[0]))
    elif what == "dismissed":
        record.dismissal_seen(int(rest[0]))


class ChaosReader:
    """A reader for the whole run. An absent reader comes back when it is ``called``."""

    def __init__(
        self, plan: ReaderPlan, log: EventWriter, rng: random.Random, called: asyncio.Event
    ) -> None:
        self._plan = plan
        self._stays = plan.stays
        self._log = log
        self._rng = rng
        self._called = called
        self._connection = 0
        self._asked = 0.0
        self._positions: dict[str, str] = {}
        self._seen: set[int] = set()
        self._here: set[int] = set()
        self._was_here = False
        self._turn = 0
        # Topics with possibly missing messages, and the positions after which these are.
        self._missed: dict[str, str] = {}
        self._misses = asyncio.Event()
        self.subscribed = asyncio.Event()

    async def run(self) -> None:
        """Read until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._read())
            group.create_task(self._read_what_was_missed())

    async def _read(self) -> None:
        backoff = Backoff(base=0.2, cap=2.0, reset_after=5.0)
        loop = asyncio.get_running_loop()
        while True:
            try:
                await self._connect(backoff)
            except Disconnected as exc:
                self._write("closed", exc)
                # No gateway here: the next region's endpoints are in endpoints.json as alternates.
                self._turn += self._plan.habit == "roaming" or exc.code in (1006, 1013)
                await asyncio.sleep(backoff.failed(loop.time(), self._rng))
            except TimeoutError:
                # The connection has lasted long enough.
                self._turn += self._plan.habit in ("roaming", ABSENT)
                await self._stay_away()

    async def _read_what_was_missed(self) -> None:
        while True:
            await self._misses.wait()
            self._misses.clear()
            while self._missed:
                topic, position = self._missed.popitem()
                async for messages in read_history(self._plan.regions, topic, position, self._rng):
                    for message in messages:
                        self._reread(message)

    def _reread(self, message: dict[str, Any]) -> None:
        """Count a message of the history, unless a connection has delivered it."""
        n = self._number(message.get("body"))
        identity = identity_of_id(str(message["id"]))
        if n is not None and identity not in self._seen:
            self._seen.add(identity)
            self._write("reread", n)

    async def _stay_away(self) -> None:
        if self._plan.habit == ABSENT:
            await self._called.wait()
            self._stays = None
        await asyncio.sleep(self._plan.away * self._rng.uniform(0.5, 1.5))

    async def _connect(self, backoff: Backoff) -> None:
        plan = self._plan
        async with asyncio.timeout(15.0):
            gateway = _pick(await fetch_endpoints(self._region()), self._rng)
            reader = await connect(gateway, plan.transport)
        self._connection += 1
        self._here.clear()
        async with reader:
            self._asked = time.time()
            await self._ask(reader)
            self._write("connected", gateway.websocket_url)
            stays = None if self._stays is None else self._stays * self._rng.uniform(0.5, 1.5)
            try:
                async with asyncio.timeout(stays):
                    while True:
                        self._on_push(await self._next(reader))
                        backoff.succeeded(asyncio.get_running_loop().time())
            finally:
                self._was_here = True
                self._write("ended")

    async def _ask(self, reader: NewsReader) -> None:
        rewind = self._plan.rewind if self._was_here else None
        for topic in self._plan.topics:
            await reader.subscribe(topic, rewind=rewind, position=self._positions.get(topic))

    async def _next(self, reader: NewsReader) -> Push:
        try:
            return await anext(reader)
        except Disconnected:
            # All events received were taken, so the last id is right, whichever event brought it.
            self._goes_on_after(reader.last_id)
            raise

    def _goes_on_after(self, last_id: str | None) -> None:
        """Set the position of all topics to the one id of an event stream."""
        if last_id is not None:
            self._positions = dict.fromkeys(self._plan.topics, last_id)

    def _region(self) -> str:
        regions = self._plan.regions
        if self._plan.habit != "roaming" and self._turn % 3 == 0:
            return regions[0]
        return regions[self._turn % len(regions)]

    def _on_push(self, push: Push) -> None:
        if push.is_message:
            self._message(push)
        elif push.type == "subscribed":
            self._subscribed(push)
        elif push.type == "error":
            self._write("error", push.text)
            raise Disconnected(1013, str(push.fields.get("reason")))
        if self._plan.transport == "sse":
            self._goes_on_after(push.last_id)
            return
        # Messages of a rewind may be older than the position of `subscribed`.
        complete = push.is_message or not self._was_here or push.fields.get("recovered")
        if push.position is not None and complete:
            self._positions[push.topic] = push.position

    def _subscribed(self, push: Push) -> None:
        if self._was_here and push.fields.get("recovered"):
            self._write("recovered", push.topic, f"{self._asked:.4f}")
        elif self._was_here:
            had_one = push.topic in self._positions
            reason = push.fields.get("reason", "unknown") if had_one else "no position yet"
            self._write("gap", push.topic, reason)
            if had_one and self._plan.token is None:
                # A position that waits already reaches further back.
                self._missed.setdefault(push.topic, self._positions[push.topic])
                self._misses.set()
        self._write("subscribed", push.topic)
        self.subscribed.set()

    def _message(self, push: Push) -> Sort | None:
        """Count the message, and return the delivery's kind; None if it isn't of this run."""
        n = self._number(push.fields.get("body"))
        if n is None:
            return None
        identity = identity_of_id(str(push.fields["id"]))
        sort: Sort = "new"
        if identity in self._here:
            sort = "double"
        elif identity in self._seen:
            sort = "repeat"
        self._here.add(identity)
        self._seen.add(identity)
        self._write(sort, n)
        return sort

    def _number(self, body: Any) -> int | None:
        """Return the message's number in this run; None if it isn't of this run."""
        if not isinstance(body, dict) or body.get("run") != self._log.run:
            return None
        return int(body["n"])

    def _write(self, what: str, *words: object) -> None:
        self._log.write(what, self._plan.name, self._connection, *words)


def _pick(endpoints: Endpoints, rng: random.Random) -> Endpoint:
    if not endpoints.gateways:
        raise Disconnected(1013, f"no gateway in {endpoints.region} is ready")
    return endpoints.choose(rng)
