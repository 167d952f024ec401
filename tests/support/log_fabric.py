"""A gateway without listeners, between feeds, stores and routers that fail.

The gateway is the real one: core, feed, follower, hub. Around it are a feed that loses,
duplicates and delays, and stores that lag or don't answer. Routers write their logs by the rules
(numbering and closing are the real code) until they die at any point. Time is quick_time's.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import itertools
import time
from collections.abc import Collection, Iterator
from typing import Any, cast

import pytest
from envelopes import envelope
from quick_time import quick_loop

from gateway.core import core as gateway_core
from gateway.core.core import Core
from gateway.feed.feed import Feed
from gateway.logs.logs import LogsSnapshot
from gateway.memory.hub import Hub
from gateway.native.saved_logs import decode_logs, encode_logs
from gateway.process.settings import GatewaySettings
from gateway.wire.frames import Framing
from gateway.wire.position import copy_of
from gateway.wire.publication import Publication
from newsfabric.amqp.message import Delivery, Message
from newsfabric.closing import CloseReason
from newsfabric.errors import StoreUnavailable
from newsfabric.messages.control import Tick, encode_tick
from newsfabric.messages.envelope import MAX_MS, Envelope, encode, id_of, ms_of_id
from newsfabric.store import Store
from newsfabric.store.logs import DirectoryRow, Log, Number, NumberState
from newsfabric.topics import TopicPolicy, TopicTable
from wholesale.router.closing import EndSearch
from wholesale.router.numbering import Numbering

TOPIC = "news.a"
TABLE = TopicTable([TopicPolicy(pattern="news.*", keep=2, ttl=864_000.0)])
BEGAN = 1_735_689_600.0
HOME, AWAY = "oregon", "dublin"
# The limit of a log's unsettled numbers.
WINDOW = 4
# The most seconds between the numberings of two copies of one message.
APART = 700.0

Place = tuple[Log, int]


@dataclasses.dataclass
class Written:
    """A log in the state that its own region has."""

    log: Log
    numbering: Numbering = dataclasses.field(default_factory=lambda: Numbering(window=WINDOW))
    rows: dict[int, Number] = dataclasses.field(default_factory=dict)
    published: set[int] = dataclasses.field(default_factory=set)
    # The messages that aren't settled yet.
    under_way: dict[int, Envelope] = dataclasses.field(default_factory=dict)
    lives: bool = True

    def messages(self, row: DirectoryRow) -> Iterator[tuple[int, Envelope]]:
        """Yield the messages that count: all published ones, and all messages of an ended log."""
        voids = {n for first, last in row.voids for n in range(first, last + 1)}
        for seq, number in self.rows.items():
            within = row.ended is not None and seq <= row.ended and seq not in voids
            if number.envelope is not None and (seq in self.published or within):
                yield seq, number.envelope


class Stores:
    """The store as the gateway reads it: rows of its own region at once, others when replicated."""

    def __init__(self) -> None:
        self.logs: dict[Log, Written] = {}
        #: The directory: for each log its row as the log's own region has it.
        self.listed: dict[Log, DirectoryRow] = {}
        # The same rows as the gateway's region has them.
        self._listed_here: dict[Log, DirectoryRow] = {}
        self._here: set[Place] = set()
        self.is_cut = self.is_down = self.is_behind = False

    def replicate(self) -> None:
        """Copy the other region's rows to the gateway's, unless it is cut off or lags."""
        for log, row in self.listed.items():
            if log.region == HOME or not (self.is_cut or self.is_behind):
                self._listed_here[log] = row
                self._here.update((log, seq) for seq in self.logs[log].rows)

    def listed_here(self, log: Log) -> DirectoryRow | None:
        return self._listed_here.get(log)

    def settled_here(self) -> dict[Log, int]:
        """Return for each listed log the number up to which it is certainly settled."""
        rows = self._listed_here.items()
        return {log: row.low if row.ended is None else row.ended for log, row in rows}

    def check_reachable(self, region: str | None) -> None:
        if self.is_down or (region == AWAY and self.is_cut):
            raise StoreUnavailable("away")

    async def log_days(self, *, at_home: bool = False) -> list[tuple[str, int]]:
        self.check_reachable(None)
        return sorted({(log.region, log.day) for log in self._listed_here})

    async def directory(
        self, region: str, day: int, *, but: Collection[Log] = (), at_home: bool = False
    ) -> list[DirectoryRow]:
        self.check_reachable(None)
        rows = self._listed_here.values()
        return [r for r in rows if (r.log.region, r.log.day) == (region, day) and r.log not in but]

    async def numbers(
        self, log: Log, *, first: int, last: int, limit: int, at_home: bool = False
    ) -> list[Number]:
        self.check_reachable(log.region if at_home else None)
        known = self.logs.get(log)
        rows = sorted(known.rows.items()) if known is not None else []
        there = (n for seq, n in rows if first <= seq <= last and self._is_seen(log, seq, at_home))
        return list(itertools.islice(there, limit))

    async def since(
        self,
        topic: str,
        *,
        from_ms: int,
        to_ms: int = MAX_MS + 1,
        limit: int,
        region: str | None = None,
    ) -> list[Envelope]:
        self.check_reachable(region)
        found = [
            number.envelope
            for log, known in self.logs.items()
            for seq, number in known.rows.items()
            if number.envelope is not None
            and number.envelope.topic == topic
            and from_ms <= ms_of_id(number.envelope.id) < to_ms
            and (log.region == region or self._is_seen(log, seq, at_home=False))
        ]
        return sorted(found, key=lambda one: one.id)[-limit:]

    def _is_seen(self, log: Log, seq: int, at_home: bool) -> bool:
        return at_home or log.region == HOME or (log, seq) in self._here

    async def close(self) -> None:
        pass


class NotedHub(Hub):
    """A hub that records the numbers it was offered."""

    def __init__(self, offered: set[Place], *arguments: Any, **clock: Any) -> None:
        super().__init__(*arguments, **clock)
        self._offered = offered

    def offer(self, envelope: Envelope, now: float) -> Publication | None:
        place = copy_of(envelope)[:2]
        if not self.logs.is_done(*place):
            self._offered.add(place)
        return super().offer(envelope, now)

    def note_duplicate(self, envelope: Envelope) -> None:
        self._offered.add(copy_of(envelope)[:2])
        super().note_duplicate(envelope)


class StayingReader:
    """A reader that stays, and its messages; like a data plane it could drop those given before."""

    transport, framing = "websocket", Framing.RAW

    def __init__(self) -> None:
        self.got: dict[int, Core] = {}
        self.twice: list[int] = []
        self.core: Core | None = None

    def deliver(self, frame: bytes, publication: Publication) -> bool:
        identity = publication.envelope.identity
        assert self.core is not None
        if self.got.get(identity) is self.core:
            self.twice.append(identity)
        self.got.setdefault(identity, self.core)
        return True

    def close(self, reason: CloseReason) -> None:
        raise AssertionError(reason)


class LogFabric:
    """A gateway in HOME with all around it; each step may be called at any time."""

    def __init__(self) -> None:
        self.stores = Stores()
        self.offered: set[Place] = set()
        self.reader = StayingReader()
        self.core: Core | None = None
        self.feed: Feed | None = None
        self.left: bytes | None = None
        # For each log the number up to which it was settled when the gateway began.
        self.starts: dict[Log, int] = {}
        # Per message number: the time of its first routing, and the regions that routed it.
        self.routed_at: dict[int, float] = {}
        self.routed_in: dict[int, set[str]] = {}
        self.messages = itertools.count(1)
        #: Milliseconds by which a region's routers' clocks are ahead.
        self.ahead_ms = {HOME: 0, AWAY: 0}

    def clock_ms(self, region: str) -> int:
        """Return the present time by the clocks of ``region``'s routers."""
        return int((BEGAN + quick_loop().time()) * 1000) + self.ahead_ms[region]

    # Routers.

    def living(self, region: str) -> list[Written]:
        return [one for one in self.stores.logs.values() if one.lives and one.log.region == region]

    def starts_log(self, region: str) -> Written:
        name = f"{region}-router-{len(self.stores.logs)}"
        one = Written(Log(region, name, self.clock_ms(region)))
        self.stores.logs[one.log] = one
        self.stores.listed[one.log] = DirectoryRow(one.log)
        return one

    def route(self, one: Written, fate: str, way: tuple[float, ...], message: int) -> None:
        if one.numbering.room <= 0:
            return
        self.routed_at.setdefault(message, quick_loop().time())
        self.routed_in.setdefault(message, set()).add(one.log.region)
        low, seq = one.numbering.low, one.numbering.give()
        made = self._envelope(one.log, seq, message)
        if fate == "void":
            one.rows[seq] = Number(seq, NumberState.VOID)
            one.numbering.settle(seq)
            return
        one.under_way[seq] = made
        if fate == "half":
            one.rows[seq] = Number(seq, NumberState.HALF)
        if fate in ("half", "unwritten"):
            return
        one.rows[seq] = Number(seq, NumberState.MESSAGE, made)
        if fate == "unpublished":
            return
        self._publish(one, made, low, way)
        if fate == "routed":
            self._settle(one, seq)

    def _envelope(self, log: Log, seq: int, message: int) -> Envelope:
        made = envelope(
            seq,
            message_id=f"m-{message}",
            topic=TOPIC,
            origin=log.region,
            router=log.router,
            epoch=log.epoch,
        )
        return dataclasses.replace(made, id=id_of(self.clock_ms(log.region), made.identity))

    def _publish(self, one: Written, made: Envelope, low: int, way: tuple[float, ...]) -> None:
        one.published.add(made.seq)
        self._send(one.log, encode(made, low=low), way)

    def _settle(self, one: Written, seq: int) -> None:
        del one.under_way[seq]
        one.numbering.settle(seq)

    def resolve(self, one: Written) -> None:
        """Let the router finish: everything under way is stored, published and confirmed."""
        for seq, made in list(one.under_way.items()):
            one.rows[seq] = Number(seq, NumberState.MESSAGE, made)
            self._publish(one, made, one.numbering.low, ())
            self._settle(one, seq)

    def dies(self, one: Written) -> None:
        """End the router; the broker redelivers its unsettled messages, except old ones."""
        one.lives = False
        others = self.living(one.log.region) or [self.starts_log(one.log.region)]
        for made in list(one.under_way.values()):
            message = int((made.message_id or "").partition("-")[2])
            if quick_loop().time() - self.routed_at[message] <= APART:
                self.route(others[0], "routed", (), message)

    def late_rows(self, one: Written) -> None:
        """Store a dead router's unsettled messages late, after its end."""
        for seq, made in one.under_way.items():
            one.rows[seq] = Number(seq, NumberState.MESSAGE, made)

    def closes(self, one: Written) -> None:
        row = self.stores.listed[one.log]
        if one.lives or row.ended is not None:
            return
        search, rows = EndSearch(row, window=WINDOW), sorted(one.rows.items())
        while not search.found(n for seq, n in rows if search.next[0] <= seq <= search.next[1]):
            pass
        self.stores.listed[one.log] = search.ending

    def lists(self, one: Written, *, ended: bool = False) -> None:
        """Write the router's row; with ``ended`` the last one, if everything is settled."""
        row, numbering = self.stores.listed[one.log], one.numbering
        if not one.lives:
            return
        is_over = ended and numbering.low == numbering.last
        self.stores.listed[one.log] = dataclasses.replace(
            row,
            version=row.version + 1,
            low=numbering.low,
            ended=numbering.last if is_over else None,
        )
        one.lives = not is_over

    def tick(self, one: Written, way: tuple[float, ...]) -> None:
        if one.lives:
            tick = Tick(
                origin=one.log.region,
                router=one.log.router,
                epoch=one.log.epoch,
                seq=one.numbering.last,
                sent_ms=self.clock_ms(one.log.region),
                low=one.numbering.low,
            )
            self._send(one.log, encode_tick(tick), way)

    def _send(self, log: Log, message: Message, way: tuple[float, ...]) -> None:
        if log.region == AWAY and self.stores.is_cut:
            return
        for seconds in way:
            quick_loop().call_later(seconds, self._arrives, message)

    def _arrives(self, message: Message) -> None:
        if self.feed is not None:
            self.feed.on_delivery(Delivery(message, redelivered=False, tag=0, generation=0))

    # The gateway.

    async def begin(self, left: LogsSnapshot | None = None) -> None:
        settings = GatewaySettings(name="box", region=HOME)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(gateway_core, "Hub", functools.partial(NotedHub, self.offered))
            core = Core(settings, TABLE, cast("Store", self.stores))
        # The default clock was bound at import, before time was simulated.
        core.resumes.now = lambda: time.time()
        if left is None:
            # For the gateway, a listed log begins at the number up to which it is settled.
            self.starts = self.stores.settled_here()
        core.follower.begin(left)
        await core.follower.begun.wait()
        self.core = self.reader.core = core
        core.hub.topics.subscribe(TOPIC, self.reader)
        self.feed = core.feed

    async def leave(self) -> None:
        """Leave the control plane's state with the data plane."""
        assert self.core is not None
        left = self.core.hub.logs.snapshot()
        # The publications before it must be sent first.
        await asyncio.sleep(0.01)
        self.left = encode_logs(left, 1 << 20)

    async def restart(self) -> None:
        """Start another control plane from the state that was left."""
        await self.end()
        assert self.left is not None
        await self.begin(decode_logs(self.left))

    async def end(self) -> None:
        if self.core is not None:
            self.feed = None
            await self.core.close()

    # The rules to check.

    def passed_without_an_offer(self) -> list[Place]:
        """Return breaches of L2: messages that count, up to the mark, never offered to the hub."""
        assert self.core is not None
        return [
            (known.log, seq)
            for known in self.core.hub.logs
            for seq, _ in self.stores.logs[known.log].messages(self.stores.listed[known.log])
            if self.starts.get(known.log, 0) < seq <= known.mark
            and (known.log, seq) not in self.offered
        ]

    def never_given(self) -> set[str | None]:
        """Return breaches of L3: messages never given, with no copy past when the gateway began."""
        owed: dict[int, str | None] = {}
        past: set[int] = set()
        for log, one in self.stores.logs.items():
            for seq, made in one.messages(self.stores.listed[log]):
                owed[made.identity] = made.message_id
                if seq <= self.starts.get(log, 0):
                    past.add(made.identity)
        return {
            name for identity, name in owed.items() if identity not in {*self.reader.got, *past}
        }

    def concluded(self) -> list[Place | Log]:
        """Return breaches of L5: numbers taken for void, or logs for ended, without a row."""
        assert self.core is not None
        found: list[Place | Log] = []
        for known in self.core.hub.logs:
            row = self.stores.listed_here(known.log)
            rows = self.stores.logs[known.log].rows
            ended = known.extent.ended
            if ended is not None and (row is None or row.ended != ended):
                found.append(known.log)
            voids = {n for a, b in (row.voids if row else ()) for n in range(a, b + 1)}
            voids |= {seq for seq, number in rows.items() if number.state is NumberState.VOID}
            passed = (n for a, b in known.skipped for n in range(a, b + 1))
            found += [(known.log, seq) for seq in passed if seq not in voids]
        return found

    async def heal(self) -> None:
        """End all faults, settle or close all logs, and wait until nothing is missing."""
        stores = self.stores
        stores.is_cut = stores.is_down = stores.is_behind = False
        for one in list(stores.logs.values()):
            self.resolve(one) if one.lives else self.closes(one)
            self.lists(one, ended=True)
        stores.replicate()
        assert self.core is not None
        for _ in range(90):
            await asyncio.sleep(2.0)
            if not self.core.hub.logs.missing() and not self.never_given():
                break
