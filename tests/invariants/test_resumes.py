"""L4 of docs/design/0028: a reader that gets ``recovered: true`` has, or gets, all that is past
here.

A record of everything ever routed, two gateways that each know a part of it, and readers that move
from one to the other. Hub, memory, logs, positions and the resumes are the real ones. Memory is
small, stores of other regions lack rows, some can't be asked, and void numbers may have rows.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import time
from collections.abc import Coroutine, Iterable
from typing import Any, cast

from envelopes import START_MS, envelope
from hypothesis import given, register_random, settings
from hypothesis import strategies as st
from quick_time import run
from unit_share import examples

from gateway.logs.logs import Logs
from gateway.memory.hub import Hub, HubLimits
from gateway.past.archive import Archive
from gateway.past.resume import Resumes
from gateway.past.rewind import Rewinds
from gateway.process.settings import GatewaySettings
from gateway.wire.position import decode
from newsfabric import backoff
from newsfabric.errors import StoreUnavailable
from newsfabric.messages.envelope import MAX_MS, Envelope, id_of, ms_of_id
from newsfabric.store import Store
from newsfabric.store.logs import DirectoryRow, Log
from newsfabric.topics import TopicPolicy, TopicTable

register_random(backoff._SHARED)

HOUR = 3_600_000
TOPIC, OTHER = "news.a", "news.b"
REGIONS = ("oregon", "dublin", "tokyo")
NOW = START_MS / 1000 + 600.0
Place = tuple[Log, int]


@dataclasses.dataclass
class Written:
    """A log: its messages, its void numbers (some have rows), its low, its end."""

    log: Log
    low: int
    ended: int | None
    messages: dict[int, Envelope]
    voids: tuple[int, ...]
    late_rows: dict[int, Envelope]

    def row(self, low: int, *, ended: bool) -> DirectoryRow:
        """Return the directory's row of the log: settled up to ``low``, or ended."""
        if not ended or self.ended is None:
            return DirectoryRow(self.log, 2 + low, low)
        voids = tuple((n, n) for n in self.voids)
        return DirectoryRow(self.log, 1_000, low, self.ended, voids)


class Record:
    """The record of all messages ever routed."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self.logs = [self._log(n) for n in range(dice.randrange(1, 6))]
        # Rows of which a region's store has no copy, though another region wrote them.
        self._lacking = {
            (region, place)
            for region in REGIONS
            for place, _ in self._rows()
            if dice.random() < 0.5
        }
        self.unreachable: set[str] = set()

    def _log(self, n: int) -> Written:
        dice = self._dice
        region = dice.choice(REGIONS)
        epoch = START_MS + dice.choice([0, 0, 1_000, -2 * HOUR, -7 * HOUR])
        log = Log(region, f"{region}-router-{n}", epoch)
        last = dice.randrange(12)
        low = dice.randrange(last + 1)
        ends = dice.random() < 0.5
        messages: dict[int, Envelope] = {}
        voids: list[int] = []
        late_rows: dict[int, Envelope] = {}
        numbers = dice.sample(range(16), last)
        for seq, message in enumerate(numbers, 1):
            made = self._envelope(log, seq, message)
            if seq > low and ends and seq < last and dice.random() < 0.5:
                voids.append(seq)
                if dice.random() < 0.8:
                    late_rows[seq] = made
            else:
                messages[seq] = made
        return Written(log, low, last if ends else None, messages, tuple(voids), late_rows)

    def _envelope(self, log: Log, seq: int, message: int) -> Envelope:
        at = log.epoch - START_MS + seq * 20_000 + self._dice.randrange(1_000)
        made = envelope(
            seq,
            message_id=f"m-{message}",
            topic=OTHER if message % 4 == 0 else TOPIC,
            origin=log.region,
            router=log.router,
            epoch=log.epoch,
        )
        return dataclasses.replace(made, id=id_of(START_MS + at, made.identity))

    def _rows(self) -> Iterable[tuple[Place, Envelope]]:
        for one in self.logs:
            for seq, made in {**one.messages, **one.late_rows}.items():
                yield (one.log, seq), made

    def copies(self) -> dict[int, list[Place]]:
        """Return the numbers of each message of the topic, by identity."""
        found: dict[int, list[Place]] = {}
        for one in self.logs:
            for seq, made in one.messages.items():
                if made.topic == TOPIC:
                    found.setdefault(made.identity, []).append((one.log, seq))
        return found

    async def since(
        self,
        topic: str,
        *,
        from_ms: int,
        to_ms: int = MAX_MS + 1,
        limit: int,
        region: str | None = None,
    ) -> list[Envelope]:
        if region in self.unreachable:
            raise StoreUnavailable("away")
        await asyncio.sleep(0.01)
        found = [
            made
            for (log, seq), made in self._rows()
            if made.topic == topic
            and from_ms <= ms_of_id(made.id) < to_ms
            and (log.region == region or (region, (log, seq)) not in self._lacking)
        ]
        return sorted(found, key=lambda one: one.id)[-limit:]


class LateGateway:
    """A gateway that knew some logs at its start, and has received a part of all messages since."""

    def __init__(self, record: Record, dice: random.Random, *, keep: int, topics: int) -> None:
        self._record, self._dice = record, dice
        self.logs = Logs(int(NOW * 1000))
        # Every gateway knows the row of a log that began over six hours ago.
        listed = [
            one for one in record.logs if one.log.epoch < START_MS - 6 * HOUR or dice.random() < 0.8
        ]
        rows = [one.row(dice.randrange(one.low + 1), ended=dice.random() < 0.3) for one in listed]
        self.logs.begin(rows, now=NOW)
        table = TopicTable([TopicPolicy(pattern="news.*", keep=keep, ttl=86_400.0)])
        self.hub = Hub(table, self.logs, HubLimits(topics=topics), clock=lambda: time.monotonic())
        #: Whether it reads rows of void numbers before it knows that they are void.
        self.reads_voids = dice.random() < 0.5
        #: Identities of the messages that its readers were given.
        self.given: set[int] = set()

    def hears(self, share: float) -> None:
        """Receive messages, low and rows of the directory, in any order."""
        dice = self._dice
        rows = [
            (one, seq) for one in self._record.logs for seq in {**one.messages, **one.late_rows}
        ]
        for one, seq in dice.sample(rows, int(len(rows) * share)):
            made = one.messages.get(seq) or one.late_rows[seq]
            low = min(one.low, seq - 1, dice.randrange(12))
            at_ms = ms_of_id(made.id)
            if seq in one.messages:
                self.logs.note_report(one.log, seq, low, sent_ms=at_ms, now=NOW)
            if seq in one.late_rows and not self.reads_voids:
                continue
            if self.hub.offer(made, NOW) is not None:
                self.given.add(made.identity)
            if seq in one.late_rows:
                next(known for known in self.logs if known.log == one.log).note_may_end_void(seq)
            if dice.random() < 0.1:
                ended = one.ended is not None and dice.random() < 0.5
                self.logs.learn(one.row(one.low, ended=ended), now=NOW)

    def ticked(self) -> None:
        for one in self._record.logs:
            if self._dice.random() < 0.5 and one.ended is None:
                last = max([*one.messages, one.low])
                self.logs.note_report(one.log, last, one.low, sent_ms=int(NOW * 1000), now=NOW)

    def position(self) -> str:
        return self.logs.listing.token(int(NOW * 1000))


@dataclasses.dataclass
class ResumeReply:
    """The reply to a reader with a position, and its errors: messages lost, or given again."""

    recovered: bool
    lost: set[int]
    again: list[int]


class MovingReaders:
    """Readers that move from one gateway to another."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self.record = Record(dice)
        self.there = LateGateway(self.record, dice, keep=50, topics=20)
        keep, topics = dice.choice([1, 2, 4, 50]), dice.choice([1, 20])
        self.here = LateGateway(self.record, dice, keep=keep, topics=topics)
        rows = dice.choice([3, 1_000, 1_000])
        settings = GatewaySettings(name="box", region="oregon", resume_rows=rows)
        self._tasks: set[asyncio.Task[None]] = set()
        archive = Archive(cast("Store", self.record), settings)
        self._resumes = Resumes(
            hub=self.here.hub,
            archive=archive,
            rewinds=Rewinds(
                hub=self.here.hub, archive=archive, settings=settings, spawn=self._spawn
            ),
            settings=settings,
            spawn=self._spawn,
            now=lambda: time.time(),
            clock=lambda: time.monotonic(),
        )

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        return task

    async def comes(self) -> ResumeReply:
        """Let a reader move here; this gateway receives more messages before it replies."""
        dice, here = self._dice, self.here
        # A gateway may give the same token for 1 s, whatever is settled meanwhile.
        await asyncio.sleep(1.0)
        for gateway in (self.there, here):
            gateway.hears(dice.random() / 2)
            gateway.ticked()
        self.record.unreachable = {region for region in REGIONS if dice.random() < 0.15}
        if dice.random() < 0.2:
            stored = await self.record.since(TOPIC, from_ms=0, limit=100)
            here.hub.seed(TOPIC, stored, [], complete=False, now=NOW)
        token, had = self.there.position(), set(self.there.given)
        answer = asyncio.create_task(self._answer(token, had))
        await asyncio.sleep(dice.choice([0.0, 0.005, 0.02]))
        here.hears(dice.random() / 3)
        return await answer

    async def _answer(self, token: str, had: set[int]) -> ResumeReply:
        replay = await self._resumes.missed(TOPIC, token)
        found = [one.envelope.identity for one in replay.publications]
        again = [identity for identity in found if found.count(identity) > 1]
        position, logs = decode(token), self.here.logs
        for one in replay.publications:
            covered = (copy for copy in one.copies if position.covers(copy.log, copy.seq))
            if any(logs.cannot_end_void(copy.log, copy.seq) for copy in covered):
                again.append(one.envelope.identity)
        lost = {
            identity
            for identity, places in self.record.copies().items()
            if any(logs.was_given(*place) for place in places)
            and not any(position.covers(*place) for place in places)
        }
        return ResumeReply(replay.gap is None, lost - had - set(found), again)


@given(seed=st.integers(0, 2**32))
@settings(max_examples=examples(250))
def test_l4_a_reader_whose_answer_is_that_nothing_is_missing_has_or_is_given_all_that_is_past(
    seed: int,
) -> None:
    async def history() -> None:
        readers = MovingReaders(random.Random(seed))
        for _ in range(4):
            answer = await readers.comes()
            assert answer.again == []
            if answer.recovered:
                assert answer.lost == set()

    run(history(), began=NOW)


def test_l4_most_readers_get_that_answer() -> None:
    """Otherwise the property above would prove nothing."""
    seen: list[bool] = []

    async def history(seed: int) -> None:
        seen.append((await MovingReaders(random.Random(seed)).comes()).recovered)

    for seed in range(60):
        run(history(seed), began=NOW)
    assert 30 < sum(seen) < 60


async def test_l4_who_has_a_void_copy_alone_is_given_the_other_one_that_is_past() -> None:
    """The void number's row was read before the gateway knew that the number is void."""
    past, dead = (
        Log("oregon", "oregon-router-1", START_MS),
        Log("dublin", "dublin-router-1", START_MS),
    )
    fields: dict[str, Any] = {"message_id": "m-1", "topic": TOPIC, "at": 590_000}
    copy = envelope(1, **fields)
    void = envelope(1, origin=dead.region, router=dead.router, **fields)
    record = Record(random.Random(0))
    record.logs = [
        Written(past, 1, None, {1: copy}, (), {}),
        Written(dead, 0, 1, {}, (1,), {1: void}),
    ]
    # The first gateway knows that the log has ended, and lacks the other copy.
    there = Logs(int(NOW * 1000))
    there.begin([DirectoryRow(past)], now=NOW)
    there.learn(DirectoryRow(dead, 2, 0, 1, ((1, 1),)), now=NOW)
    # At the second gateway that copy is past, and the void row was read.
    here = Logs(int(NOW * 1000))
    here.begin([DirectoryRow(past, 2, 1), DirectoryRow(dead)], now=NOW)
    hub = Hub(TopicTable([TopicPolicy(pattern="news.*", keep=4, ttl=86_400.0)]), here)
    next(known for known in here if known.log == dead).note_may_end_void(1)
    assert hub.offer(void, NOW) is not None
    settings = GatewaySettings(name="box", region="oregon")
    archive = Archive(cast("Store", record), settings)
    resumes = Resumes(
        hub=hub,
        archive=archive,
        rewinds=Rewinds(hub=hub, archive=archive, settings=settings, spawn=asyncio.create_task),
        settings=settings,
        spawn=asyncio.create_task,
        now=lambda: NOW,
    )
    replay = await resumes.missed(TOPIC, there.listing.token(int(NOW * 1000)))
    assert replay.gap is None
    assert [one.envelope.message_id for one in replay.publications] == ["m-1"]


async def test_l4_a_copy_that_came_after_a_read_counts_when_its_message_is_forgotten() -> None:
    """The store's reply has the message under a void number only. Memory noted the other copy, then
    forgot both. Hypothesis found it: seed 42884393 of the property above."""
    dead, past = (
        Log("dublin", "dublin-router-1", START_MS),
        Log("dublin", "dublin-router-2", START_MS),
    )
    fields: dict[str, Any] = {"topic": TOPIC, "at": 590_000, "origin": "dublin"}
    void = envelope(1, router=dead.router, message_id="m-3", **fields)
    numbers = {
        seq: envelope(seq, router=past.router, message_id=f"m-{seq}", **fields)
        for seq in range(1, 6)
    }
    record = Record(random.Random(0))
    record.logs = [
        Written(dead, 0, 1, {}, (1,), {1: void}),
        Written(past, 5, None, numbers, (), {}),
    ]
    here = Logs(int(NOW * 1000))
    here.begin([DirectoryRow(dead), DirectoryRow(past)], now=NOW)
    hub = Hub(TopicTable([TopicPolicy(pattern="news.*", keep=2, ttl=86_400.0)]), here)
    settings = GatewaySettings(name="box", region="oregon")
    archive = Archive(cast("Store", record), settings)
    resumes = Resumes(
        hub=hub,
        archive=archive,
        rewinds=Rewinds(hub=hub, archive=archive, settings=settings, spawn=asyncio.create_task),
        settings=settings,
        spawn=asyncio.create_task,
        now=lambda: NOW,
    )
    there = Logs(int(NOW * 1000))
    there.begin([DirectoryRow(dead), DirectoryRow(past)], now=NOW)
    next(known for known in here if known.log == dead).note_may_end_void(1)
    for one in (numbers[1], numbers[2], void):
        assert hub.offer(one, NOW) is not None
    # Memory has forgotten number 1: the store is read.
    first = await resumes.missed(TOPIC, there.listing.token(int(NOW * 1000)))
    assert [one.envelope.message_id for one in first.publications] == ["m-1", "m-2", "m-3"]
    assert hub.offer(numbers[3], NOW) is None
    for seq in (4, 5):
        assert hub.offer(numbers[seq], NOW) is not None
    # The first gateway has both numbers, and knows that the log ``dead`` is closed.
    for seq in (1, 2):
        there.mark_seen(past, seq)
    there.learn(DirectoryRow(dead, 2, 0, 1, ((1, 1),)), now=NOW)
    second = await resumes.missed(TOPIC, there.listing.token(int(NOW * 1000)))
    assert second.gap is None
    assert [one.envelope.message_id for one in second.publications] == ["m-3", "m-4", "m-5"]
