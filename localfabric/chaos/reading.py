"""Readers of a chaos run, and the lines in which they say what happened to them.

They do what the readers' library does: fetch the endpoints, connect, subscribe from the position of
each topic (or with a rewind where that can't be served, and then read the history), drop repeats by
identity, and come again after a pause. Some stay, some reconnect now and then, some roam between
regions, some leave early and come back when all is over, in another region; over WebSocket, SockJS
and event streams, which go on from the last event's id. Those who are logged in are in ``devices``;
the process of them all is ``crowd``.
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
    Connection,
    DeliveryRecord,
    Gap,
    ReaderProfile,
    Sort,
)
from localfabric.chaos.rereading import read_history
from newsfabric.backoff import Backoff
from newsfabric.errors import Disconnected
from newsfabric.messages.envelope import identity_of_id
from newsfabric.reader import Endpoint, Endpoints, Push, Transport, connect, fetch_endpoints
from newsfabric.reader import Reader as NewsReader

_FLUSH_EVERY: Final = 0.25
# Of twelve six stay, three reconnect, two roam, one is absent.
_HABITS: Final = (
    "staying", ABSENT, "staying", "roaming", "staying", "reconnecting",
    "staying", "reconnecting", "staying", "roaming", "staying", "reconnecting",
)  # fmt: skip
# What a reader asks for who was away, where resuming can't be served. It counts back from when the
# gateway answers, which on a busy machine was once 18 s after the reader had asked.
_REWIND: Final = "5m"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Who reads what and how. ``regions``: endpoints' URLs, the reader's home first.

    ``stays`` is for how many seconds a connection is kept, about; None: as long as it lasts.
    ``away`` is for how many it then stays away, about. A ``token`` logs it in. ``rewind`` is what
    it asks for when it comes back, where resuming can't be served.
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
        """As the record knows it."""
        return ReaderProfile(
            name=self.name,
            habit=self.habit,
            topics=frozenset(self.topics),
            goes_away=self.away > 0 or self.habit == ABSENT,
        )


def make_plans(
    topics: Sequence[str], endpoints: Sequence[str], *, count: int, seed: int, minutes: float
) -> list[Plan]:
    """``count`` readers with two topics each, for a run of ``minutes``.

    Half stay, a quarter reconnect, a sixth roam, the rest is absent.
    """
    rng = random.Random(seed)  # noqa: S311 - repeatable, not secret
    plans = []
    for n in range(count):
        habit = _HABITS[n % len(_HABITS)]
        # Not by turns: each habit is at home in each region.
        home = rng.randrange(len(endpoints))
        # Of each 36 the first six, among whom are all habits.
        transport: Transport = "sockjs" if n % 5 == 0 else "websocket"
        if n // 6 % 6 == 0:
            transport = "sse"
        plans.append(
            Plan(
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
    """Lines of tab-separated words: what happened to which reader on which connection when."""

    def __init__(self, out: TextIO, run: str) -> None:
        self._out = out
        self.run = run

    def write(self, *words: object) -> None:
        """One line, stamped with seconds since the epoch."""
        now = f"{time.time():.4f}"
        self._out.write("\t".join((now, *map(str, words))) + "\n")

    async def flush(self) -> None:
        """Hand on what is written, for ever."""
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
        record.connected(reader, Connection(int(connection), at, rest[0]))
    elif what == "recovered":
        topic, asked = rest
        record.recovered(reader, topic, asked=float(asked) - began, at=at)
    elif what == "ended":
        record.disconnected(reader, at)
    elif what == "gap":
        topic, reason = rest
        record.gap(Gap(reader, int(connection), topic, at, reason))
    elif what == "dismiss":
        record.dismissed(int(rest[0]))
    elif what == "dismissed":
        record.dismissal_heard(int(rest[0]))


class ChaosReader:
    """One reader for as long as the run. One who is absent comes back when it is ``called``."""

    def __init__(
        self, plan: Plan, log: EventWriter, rng: random.Random, called: asyncio.Event
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
        # Topics of which something may be missing, after these positions.
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
                # Nobody here: the next region's endpoints are in endpoints.json as alternates.
                self._turn += self._plan.habit == "roaming" or exc.code in (1006, 1013)
                await asyncio.sleep(backoff.failed(loop.time(), self._rng))
            except TimeoutError:
                # It has stayed long enough.
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
        """Count what the history has, if no connection has brought it."""
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
                        self._take(await self._next(reader))
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
            # All that came was taken, so the last id is ours, whichever event brought it.
            self._goes_on_after(reader.last_id)
            raise

    def _goes_on_after(self, last_id: str | None) -> None:
        """An event stream has one id for all of its topics."""
        if last_id is not None:
            self._positions = dict.fromkeys(self._plan.topics, last_id)

    def _region(self) -> str:
        regions = self._plan.regions
        if self._plan.habit != "roaming" and self._turn % 3 == 0:
            return regions[0]
        return regions[self._turn % len(regions)]

    def _take(self, push: Push) -> None:
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
        # What a rewind brings may be older than the position that `subscribed` stands for.
        complete = push.is_message or not self._was_here or push.fields.get("recovered")
        if push.position is not None and complete:
            self._positions[push.topic] = push.position

    def _subscribed(self, push: Push) -> None:
        if self._was_here and push.fields.get("recovered"):
            self._write("recovered", push.topic, f"{self._asked:.4f}")
        elif self._was_here:
            had_one = push.topic in self._positions
            reason = push.fields.get("reason", "unsaid") if had_one else "no position yet"
            self._write("gap", push.topic, reason)
            if had_one and self._plan.token is None:
                # What waits already reaches further back.
                self._missed.setdefault(push.topic, self._positions[push.topic])
                self._misses.set()
        self._write("subscribed", push.topic)
        self.subscribed.set()

    def _message(self, push: Push) -> Sort | None:
        """Count it, and say what it was; None if it isn't of this run."""
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
        """The message's number in this run; None if it isn't of this run."""
        if not isinstance(body, dict) or body.get("run") != self._log.run:
            return None
        return int(body["n"])

    def _write(self, what: str, *words: object) -> None:
        self._log.write(what, self._plan.name, self._connection, *words)


def _pick(endpoints: Endpoints, rng: random.Random) -> Endpoint:
    if not endpoints.gateways:
        raise Disconnected(1013, f"no gateway in {endpoints.region} is ready")
    return endpoints.choose(rng)
