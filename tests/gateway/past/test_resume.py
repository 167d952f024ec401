"""The messages of a reader that resumes: from memory, and from the regions whose logs it lacks."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import pytest
from envelopes import START_MS, envelope

from gateway.logs.logs import Logs
from gateway.memory.hub import Hub
from gateway.past.archive import Archive
from gateway.past.paging import page
from gateway.past.replay import Replay
from gateway.past.resume import Resumes
from gateway.past.rewind import Rewinds
from gateway.process.settings import GatewaySettings
from gateway.process.tasks import Tasks
from gateway.wire.position import UNKNOWN, Listed, Position, copy_of, decode, encode, log_hash
from gateway.wire.protocol import Gap
from newsfabric.errors import StoreError, StoreUnavailable
from newsfabric.messages.envelope import MAX_MS, Envelope
from newsfabric.store.logs import DirectoryRow, Log
from newsfabric.store.memory import MemoryStore
from newsfabric.topics import TopicPolicy, TopicTable

TABLE = TopicTable([TopicPolicy(pattern="live.*", keep=20, topic_class="gold", ttl=7200.0)])
TOPIC = "live.blog"
# The routers began ten minutes ago.
NOW = START_MS / 1000 + 600
OREGON = Log("oregon", "oregon-router-1", START_MS)
DUBLIN = Log("dublin", "dublin-router-1", START_MS)


@dataclasses.dataclass(frozen=True)
class StoreReadCall:
    """A read of the store: its topic, its region, and its reach in seconds."""

    topic: str
    region: str | None
    seconds: float


class RegionalStore(MemoryStore):
    """A store of all regions; each read waits for ``released`` after it has found its rows."""

    def __init__(self) -> None:
        super().__init__(TABLE, now_ms=lambda: int(NOW * 1000))
        self.reads: list[StoreReadCall] = []
        self.asked = asyncio.Event()
        self.released = asyncio.Event()
        self.released.set()
        self.error: StoreError | None = None

    async def since(
        self,
        topic: str,
        *,
        from_ms: int,
        to_ms: int = MAX_MS + 1,
        limit: int,
        region: str | None = None,
    ) -> list[Envelope]:
        self.reads.append(StoreReadCall(topic, region, round(NOW - from_ms / 1000, 1)))
        found = await super().since(topic, from_ms=from_ms, to_ms=to_ms, limit=limit)
        self.asked.set()
        await self.released.wait()
        if self.error is not None:
            raise self.error
        return [one for one in found if region in (None, one.origin)]


class ResumingBox:
    """A gateway that began when Oregon had routed 90 messages and Dublin 9, none of them kept."""

    def __init__(self) -> None:
        self.logs = Logs(int(NOW * 1000))
        self.logs.begin([DirectoryRow(OREGON, low=90), DirectoryRow(DUBLIN, low=9)], now=NOW)
        self.hub = Hub(TABLE, self.logs)
        self.store = RegionalStore()
        self.tasks = Tasks()
        settings = GatewaySettings(name="box", region="oregon", resume_bytes=1 << 20)
        archive, spawn = Archive(self.store, settings), self.tasks.spawn
        rewinds = Rewinds(hub=self.hub, archive=archive, settings=settings, spawn=spawn)
        self.resumes = Resumes(
            hub=self.hub,
            archive=archive,
            rewinds=rewinds,
            settings=settings,
            spawn=spawn,
            now=lambda: NOW,
        )

    def comes(self, *envelopes: Envelope) -> None:
        for one in envelopes:
            copy = copy_of(one)
            self.logs.note_report(copy.log, copy.seq, copy.seq, sent_ms=copy.routed_ms, now=NOW)
            self.hub.offer(one, NOW)


@pytest.fixture
async def box() -> AsyncIterator[ResumingBox]:
    box = ResumingBox()
    yield box
    await box.tasks.close()


def oregon(number: int, **fields: Any) -> Envelope:
    """Return number ``number`` of Oregon: a hundred in ten minutes."""
    return envelope(number, **{"at": number * 6_000, "topic": TOPIC, **fields})


def dublin(seq: int, number: int, **fields: Any) -> Envelope:
    """Return number ``seq`` of Dublin: a copy of Oregon's ``number``, or a message of its own."""
    place = {"origin": DUBLIN.region, "router": DUBLIN.router, "seq": seq}
    return oregon(number, **{**place, **fields})


def token(*, oregon: int, dublin: int = 9, ago: float = 0.0) -> str:
    """Return the position of a reader with these marks that lacks nothing older than ``ago`` s."""
    now_ms = int(NOW * 1000)
    whole_ms = now_ms - int(ago * 1000)
    listed = {
        log_hash(OREGON): Listed(oregon, whole_ms),
        log_hash(DUBLIN): Listed(dublin, whole_ms),
    }
    return encode(Position(now_ms, listed))


def seqs(replay: Replay) -> list[int]:
    return [one.envelope.seq for one in replay.publications]


# Memory and regions.


async def test_who_lacks_only_what_memory_has_costs_no_read(box: ResumingBox) -> None:
    box.comes(*(oregon(n) for n in range(91, 96)))
    replay = await box.resumes.missed(TOPIC, token(oregon=92))
    assert (seqs(replay), replay.gap) == ([93, 94, 95], None)
    assert (await box.resumes.missed(TOPIC, token(oregon=95))).publications == []
    assert box.store.reads == []


async def test_what_memory_lacks_is_read_in_the_region_that_wrote_it(box: ResumingBox) -> None:
    await box.store.write([oregon(89), dublin(8, 501), dublin(9, 502)])
    box.comes(oregon(91))
    replay = await box.resumes.missed(TOPIC, token(oregon=90, dublin=8, ago=100))
    # 130 s, rounded up to one of a few ages: one minute, and steps of a quarter more.
    assert box.store.reads == [StoreReadCall(TOPIC, "dublin", 146.5)]
    assert [one.envelope.origin for one in replay.publications] == ["dublin", "oregon"]
    assert (seqs(replay), replay.gap) == ([9, 91], None)


async def test_each_region_that_has_something_is_read_once(box: ResumingBox) -> None:
    await box.store.write([oregon(89), oregon(90), dublin(9, 502, at=535_000)])
    replay = await box.resumes.missed(TOPIC, token(oregon=89, dublin=8, ago=40))
    assert {read.region for read in box.store.reads} == {"oregon", "dublin"}
    assert len(box.store.reads) == 2
    # In order of id.
    assert (seqs(replay), replay.gap) == ([9, 90], None)
    again = await box.resumes.missed(TOPIC, token(oregon=88, dublin=9, ago=10))
    assert (seqs(again), len(box.store.reads)) == ([89, 90], 2)


async def test_what_memory_has_lost_is_read(box: ResumingBox) -> None:
    sent = [oregon(n) for n in range(91, 114)]
    box.comes(*sent[:20])
    at = token(oregon=90, ago=10)
    assert seqs(await box.resumes.missed(TOPIC, at)) == [*range(91, 111)]
    assert box.store.reads == []
    box.comes(*sent[20:])
    await box.store.write(sent)
    replay = await box.resumes.missed(TOPIC, at)
    assert (seqs(replay), replay.gap) == ([*range(91, 114)], None)
    assert [read.region for read in box.store.reads] == ["oregon"]


async def test_what_was_read_is_of_use_until_memory_has_lost_what_came_since(
    box: ResumingBox,
) -> None:
    sent = [oregon(n) for n in range(90, 132)]
    await box.store.write(sent)
    at = token(oregon=89, ago=10)
    box.comes(*sent[1:21])
    # Memory keeps 20. It may lose 91 to 110, which arrived before the read; then it loses 111.
    for last, reads in ((110, 1), (130, 1), (131, 2)):
        box.comes(*(one for one in sent if one.seq <= last))
        replay = await box.resumes.missed(TOPIC, at)
        assert (seqs(replay), replay.gap) == ([*range(90, last + 1)], None)
        assert len(box.store.reads) == reads


async def test_a_row_that_isnt_past_here_is_not_given(box: ResumingBox) -> None:
    # Number 92 may be half of a number, or be beyond the end of its log.
    await box.store.write([oregon(90), oregon(91), oregon(92)])
    box.comes(oregon(91))
    replay = await box.resumes.missed(TOPIC, token(oregon=89, ago=20))
    assert (seqs(replay), replay.gap) == ([90, 91], None)
    box.comes(oregon(92))
    assert seqs(await box.resumes.missed(TOPIC, token(oregon=89, ago=20))) == [90, 91, 92]


async def test_a_message_of_which_the_reader_has_another_copy_isnt_given(box: ResumingBox) -> None:
    await box.store.write([oregon(89), oregon(90), dublin(8, 89), dublin(9, 90)])
    # It has Dublin's copy of 89, and lacks both copies of 90.
    replay = await box.resumes.missed(TOPIC, token(oregon=88, dublin=8, ago=70))
    assert [one.envelope.message_id for one in replay.publications] == ["message-90"]
    assert replay.gap is None


async def test_a_log_that_the_position_doesnt_list_is_read_from_where_it_began(
    box: ResumingBox,
) -> None:
    await box.store.write([oregon(1), oregon(90)])
    young = encode(Position(int(NOW * 1000), {log_hash(DUBLIN): Listed(9, START_MS)}))
    replay = await box.resumes.missed(TOPIC, young)
    assert (seqs(replay), replay.gap) == ([1, 90], None)
    # 630 s, rounded up.
    assert box.store.reads == [StoreReadCall(TOPIC, "oregon", 698.5)]


# Shared reads.


async def test_readers_whose_positions_differ_in_age_all_learn_that_nothing_is_missing(
    box: ResumingBox,
) -> None:
    sent = [oregon(number) for number in range(1, 101)]
    await box.store.write(sent)
    box.comes(*sent[90:])
    box.store.released.clear()
    first = asyncio.create_task(box.resumes.missed(TOPIC, token(oregon=88, ago=8)))
    await box.store.asked.wait()
    # A read that begins later and reaches further back.
    box.store.asked.clear()
    second = asyncio.create_task(box.resumes.missed(TOPIC, token(oregon=85, ago=500)))
    await box.store.asked.wait()
    box.store.released.set()
    for replay, seen in ((await first, 88), (await second, 85)):
        assert replay.gap is None
        assert seqs(replay) == [*range(seen + 1, 101)]


async def test_what_is_read_again_further_back_is_used_while_another_region_is_waited_for(
    box: ResumingBox,
) -> None:
    await box.store.write([oregon(n) for n in range(85, 91)])
    assert seqs(await box.resumes.missed(TOPIC, token(oregon=89, ago=10))) == [90]
    # The reader that waits for Dublin finds Oregon already read.
    dublins = box.store.released = asyncio.Event()
    box.store.asked.clear()
    misses_both = token(oregon=89, dublin=8, ago=10)
    waits = asyncio.create_task(box.resumes.missed(TOPIC, misses_both))
    await box.store.asked.wait()
    box.store.released = asyncio.Event()
    box.store.released.set()
    for ago in (100, 200, 400, 800, 1_600, 3_200):
        replay = await box.resumes.missed(TOPIC, token(oregon=84, ago=ago))
        assert (seqs(replay), replay.gap) == ([*range(85, 91)], None)
        held = [one_read.region for one_read in box.hub.memory(TOPIC).store_reads]
        assert sorted(held) == ["dublin", "oregon"]
    assert [read.region for read in box.store.reads] == ["oregon", "dublin"] + 6 * ["oregon"]
    dublins.set()
    replay = await waits
    assert (seqs(replay), replay.gap) == ([90], None)


async def test_a_crowd_that_comes_back_together_costs_one_read(box: ResumingBox) -> None:
    await box.store.write([oregon(n) for n in range(80, 91)])
    box.store.released.clear()
    asked = [
        asyncio.create_task(box.resumes.missed(TOPIC, token(oregon=80 + n, ago=90 + n)))
        for n in range(10)
    ]
    await box.store.asked.wait()
    box.store.released.set()
    for n, replay in enumerate(await asyncio.gather(*asked)):
        assert (seqs(replay), replay.gap) == ([*range(81 + n, 91)], None)
    assert len(box.store.reads) == 1


async def test_late_copies_of_what_memory_has_lost_cost_no_more_reads(box: ResumingBox) -> None:
    sent = [oregon(n) for n in range(90, 132)]
    await box.store.write(sent)
    box.comes(*sent[1:])
    at = token(oregon=89, ago=10)
    assert seqs(await box.resumes.missed(TOPIC, at)) == [*range(90, 132)]
    for late in range(10):
        # Dublin was cut off: its copies of 91 to 100, which memory lost, arrive now.
        box.comes(dublin(10 + late, 91 + late))
        replay = await box.resumes.missed(TOPIC, at)
        assert (seqs(replay), replay.gap) == ([*range(90, 132)], None)
    assert [read.region for read in box.store.reads] == ["oregon", "dublin"]
    # A reader that has such a copy has the message.
    has_one = await box.resumes.missed(TOPIC, token(oregon=89, dublin=10, ago=10))
    assert seqs(has_one) == [90, *range(92, 132)]


async def test_late_copies_cost_no_read_however_many_there_are_of_what_was_read(
    box: ResumingBox,
) -> None:
    sent = [oregon(n, at=500_000 + n) for n in range(90, 1_300)]
    late = [dublin(10 + n, 91 + n, at=500_000 + n) for n in range(1_101)]
    await box.store.write([*sent, *late])
    box.comes(*sent[1:])
    assert (await box.resumes.missed(TOPIC, token(oregon=89, ago=90))).gap is None
    # Then Dublin is read, and one more copy arrives.
    box.comes(*late[:-1])
    has_oregons = token(oregon=1_299, dublin=9, ago=90)
    assert (await box.resumes.missed(TOPIC, has_oregons)).gap is None
    box.comes(late[-1])
    box.store.reads.clear()
    assert (await box.resumes.missed(TOPIC, has_oregons)).gap is None
    # The late copy wasn't among the rows read from Dublin. Those from Oregon have its message.
    assert box.store.reads == []


async def test_a_late_copy_of_what_was_not_read_is_read(box: ResumingBox) -> None:
    # Of Dublin's messages, 10 was read when it arrived, and 11 was missing.
    await box.store.write([dublin(10, 95)])
    box.comes(dublin(10, 95), *(oregon(n) for n in range(96, 120)))
    at = token(oregon=130, dublin=9, ago=10)
    assert [one.envelope.origin for one in (await box.resumes.missed(TOPIC, at)).publications] == [
        "dublin"
    ]
    assert [read.region for read in box.store.reads] == ["dublin"]
    # It is a copy of a message that memory has lost and that no read has found.
    await box.store.write([dublin(11, 97)])
    box.comes(dublin(11, 97))
    replay = await box.resumes.missed(TOPIC, at)
    assert replay.gap is None
    assert [read.region for read in box.store.reads] == ["dublin", "dublin"]


async def test_who_has_a_late_copy_has_what_another_region_was_read_of_later(
    box: ResumingBox,
) -> None:
    # Dublin's 10 has arrived, a copy of 95, and memory loses it.
    await box.store.write([oregon(90), dublin(10, 95)])
    box.comes(dublin(10, 95), *(oregon(n) for n in range(96, 116)))
    # Oregon is read while its own copy of 95 isn't there yet.
    assert (await box.resumes.missed(TOPIC, token(oregon=89, dublin=10, ago=100))).gap is None
    box.comes(oregon(95))
    replay = await box.resumes.missed(TOPIC, token(oregon=115, dublin=9, ago=100))
    assert (seqs(replay), replay.gap) == ([], None)
    assert [read.region for read in box.store.reads] == ["oregon", "dublin"]


async def test_what_comes_while_the_store_is_read_is_neither_lost_nor_given_twice(
    box: ResumingBox,
) -> None:
    sent = [oregon(n) for n in range(88, 121)]
    await box.store.write(sent[:5])
    box.store.released.clear()
    asked = asyncio.create_task(box.resumes.missed(TOPIC, token(oregon=87, ago=40)))
    await box.store.asked.wait()
    # More than the topic keeps. 91 and 92 were in the store, and hadn't arrived.
    box.comes(*sent[3:])
    box.store.released.set()
    replay = await asked
    assert (seqs(replay), replay.gap) == ([*range(88, 121)], None)
    assert len(box.store.reads) == 1


async def test_what_was_too_much_to_read_is_reported(box: ResumingBox) -> None:
    large = b'"' + b"x" * 50_000 + b'"'
    await box.store.write([oregon(n, body=large) for n in range(41, 91)])
    replay = await box.resumes.missed(TOPIC, token(oregon=40, ago=600))
    assert replay.gap is Gap.TOO_MANY
    # The newest that fit into one MiB.
    assert seqs(replay) == [*range(71, 91)]


# Gaps are reported.


async def test_a_corrupt_message_of_the_store_is_a_gap_that_is_reported(
    box: ResumingBox,
) -> None:
    sent = [oregon(number) for number in range(81, 91)]
    sent[4] = dataclasses.replace(sent[4], body=b'{"cut off')
    await box.store.write(sent)
    replay = await box.resumes.missed(TOPIC, token(oregon=82, ago=100))
    assert replay.gap is Gap.STORE
    assert seqs(replay) == [83, 84, 86, 87, 88, 89, 90]


async def test_a_store_that_fails_is_a_gap_and_memory_is_given(
    box: ResumingBox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.past.resume._TRY_SECONDS", 0.0)
    monkeypatch.setattr("gateway.past.resume._AGAIN_SECONDS", 0.0)
    box.comes(oregon(91))
    box.store.error = StoreUnavailable("away")
    replay = await box.resumes.missed(TOPIC, token(oregon=89, ago=10))
    assert (seqs(replay), replay.gap) == ([91], Gap.STORE)
    # A reader that lacks none of the forgotten messages gets no gap.
    assert (await box.resumes.missed(TOPIC, token(oregon=90))).gap is None


@pytest.mark.parametrize(
    ("seconds", "gap"), [(-7_201, Gap.EXPIRED), (-7_199, None), (3_600, None), (3_601, Gap.EXPIRED)]
)
async def test_a_position_from_before_what_is_kept_or_from_the_future_is_no_position(
    box: ResumingBox, seconds: float, gap: Gap | None
) -> None:
    """A position from the future isn't ours, so nothing is known of its reader."""
    box.comes(oregon(91))
    time_ms = int((NOW + seconds) * 1000)
    listed = {log_hash(OREGON): Listed(90, time_ms), log_hash(DUBLIN): Listed(9, time_ms)}
    replay = await box.resumes.missed(TOPIC, encode(Position(time_ms, listed)))
    assert (seqs(replay), replay.gap) == ([91], gap)


async def test_a_position_that_says_nothing_is_a_gap_with_what_memory_has(box: ResumingBox) -> None:
    box.comes(oregon(91), oregon(92))
    replay = await box.resumes.missed(TOPIC, encode(UNKNOWN))
    assert (seqs(replay), replay.gap) == ([91, 92], Gap.EXPIRED)
    assert box.store.reads == []


# Pages.


def pages(box: ResumingBox, replay: Replay, after: str, limit: int) -> tuple[list[int], Position]:
    taken, position = page(replay, after, box.hub, limit=limit, most_bytes=1 << 20)
    return [one.envelope.seq for one in taken], decode(position)


async def test_pages_go_on_where_the_last_one_ended(box: ResumingBox) -> None:
    sent = [oregon(n) for n in range(86, 96)]
    await box.store.write(sent)
    box.comes(*sent[5:])
    at, got = token(oregon=87, ago=60), []
    while True:
        replay = await box.resumes.missed(TOPIC, at)
        assert replay.gap is None
        taken, at = page(replay, at, box.hub, limit=3, most_bytes=1 << 20)
        if not taken:
            break
        got.append([one.envelope.seq for one in taken])
    assert got == [[88, 89, 90], [91, 92, 93], [94, 95]]


async def test_a_page_is_in_the_order_of_routing_and_its_position_stands_behind_it(
    box: ResumingBox,
) -> None:
    box.comes(oregon(92), dublin(10, 501, at=543_000), oregon(91), oregon(93))
    after = token(oregon=90)
    replay = await box.resumes.missed(TOPIC, after)
    assert seqs(replay) == [92, 10, 91, 93]
    taken, position = pages(box, replay, after, 2)
    assert taken == [10, 91]
    covered = [position.covers(OREGON, n) for n in (91, 92)] + [position.covers(DUBLIN, 10)]
    assert covered == [True, False, True]
    # Later messages were routed at that time or after it.
    assert position.since_ms(OREGON) == START_MS + 92 * 6_000 - 30_000


async def test_a_page_is_larger_than_asked_if_a_routers_clock_was_set_back(
    box: ResumingBox,
) -> None:
    # 92 was routed before 91, so that no position stands between them in that order.
    box.comes(oregon(91, at=560_000), oregon(92, at=550_000), oregon(93, at=570_000))
    after = token(oregon=90)
    replay = await box.resumes.missed(TOPIC, after)
    assert pages(box, replay, after, 1)[0] == [92, 91]


async def test_no_page_passes_a_number_that_is_missing_here(box: ResumingBox) -> None:
    # Of Oregon 91 to 93 and 95 to 97 have arrived: 94 is missing.
    box.comes(*(oregon(n) for n in (91, 92, 93, 95, 96, 97)))
    after = token(oregon=93)
    replay = await box.resumes.missed(TOPIC, after)
    taken, position = pages(box, replay, after, 2)
    assert (taken, position.covers(OREGON, 93), position.covers(OREGON, 94)) == (
        [95, 96, 97],
        True,
        False,
    )
    box.comes(oregon(94))
    again = await box.resumes.missed(TOPIC, encode(position))
    assert sorted(seqs(again)) == [94, 95, 96, 97]


async def test_a_page_holds_so_many_bytes_and_one_message_at_least(box: ResumingBox) -> None:
    large = b'"' + b"x" * 5_000 + b'"'
    box.comes(*(oregon(n, body=large) for n in range(91, 96)))
    after = token(oregon=90)
    replay = await box.resumes.missed(TOPIC, after)
    weight = replay.publications[0].weight
    for most, count in ((1, 1), (2 * weight, 2), (3 * weight - 1, 2)):
        taken, _ = page(replay, after, box.hub, limit=100, most_bytes=most)
        assert len(taken) == count


async def test_the_position_of_the_last_page_is_that_of_the_gateway(box: ResumingBox) -> None:
    box.comes(oregon(91), dublin(10, 501, topic="live.other"))
    replay = await box.resumes.missed(TOPIC, token(oregon=90))
    taken, position = pages(box, replay, token(oregon=90), 1)
    assert taken == [91]
    assert {hash_: one.mark for hash_, one in position.listed.items()} == {
        log_hash(OREGON): 91,
        log_hash(DUBLIN): 10,
    }
