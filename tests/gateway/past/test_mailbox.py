"""Reads of mailboxes: many at a time, again where memory has lost something, within bounds."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any

import pytest
from envelopes import START_MS, envelope

from gateway.logs.logs import Logs
from gateway.memory.hub import Hub
from gateway.past.archive import Archive
from gateway.past.mailbox import Mailboxes
from gateway.past.replay import Question, Replay
from gateway.process.settings import GatewaySettings
from gateway.process.tasks import Tasks
from gateway.wire.position import log_of
from gateway.wire.publication import Publication
from newsfabric.errors import StoreError, StoreUnavailable
from newsfabric.messages.envelope import Envelope
from newsfabric.messages.mailbox import ANNOUNCEMENT, KeptMessage, UserMark
from newsfabric.store.logs import DirectoryRow, Log
from newsfabric.store.memory import MemoryStore
from newsfabric.topics import TopicPolicy, TopicTable

# 2025-01-01T00:01:00Z
NOW = 1_735_689_660.0
TABLE = TopicTable([TopicPolicy(pattern="user.*", access="owner", keep=3)])


class Store(MemoryStore):
    """A store that calls ``before`` with each read's topics, and fails with ``error`` if set."""

    def __init__(self) -> None:
        super().__init__(TABLE, now_ms=lambda: int(NOW * 1000))
        self.read: list[Sequence[str]] = []
        self.error: Exception | None = None
        self.before: Callable[[], Coroutine[Any, Any, None] | None] = lambda: None

    async def mailboxes(self, topics: Sequence[str], *, limit: int) -> list[list[KeptMessage]]:
        self.read.append(topics)
        found = await super().mailboxes(topics, limit=limit)
        await asyncio.sleep(0)
        if (waiting := self.before()) is not None:
            await waiting
        if self.error is not None:
            raise self.error
        return found


@dataclasses.dataclass
class Room:
    """Mailboxes with their hub and store, and the messages published to all."""

    mailboxes: Mailboxes
    hub: Hub
    store: Store
    published: list[Publication]
    away: list[StoreError]

    async def open(self, topic: str) -> Replay:
        return await self.mailboxes.answer_from_store(Question(topic, NOW))

    def arrives(self, *envelopes: Envelope) -> None:
        for one in envelopes:
            self.hub.offer(one, NOW)


@contextlib.asynccontextmanager
async def a_room(**settings: Any) -> AsyncIterator[Room]:
    hub, store = Hub(TABLE, Logs(START_MS)), Store()
    told = GatewaySettings(name="box", region="oregon", **settings)
    published: list[Publication] = []
    tasks = Tasks()
    away: list[StoreError] = []
    archive = Archive(store, told)
    archive.failed = away.append  # type: ignore[method-assign]
    mailboxes = Mailboxes(
        hub=hub,
        store=store,
        archive=archive,
        settings=told,
        spawn=tasks.spawn,
        publish=published.append,
        now=lambda: NOW,
        clock=lambda: 0.0,
    )
    yield Room(mailboxes, hub, store, published, away)
    await tasks.close()


@pytest.fixture
async def room() -> AsyncIterator[Room]:
    async with a_room() as room:
        yield room


def letter(number: int, *, user: str = "42", at: int = 0, **fields: Any) -> Envelope:
    return envelope(number, at=at or number, topic=f"user.{user}", **fields)


def numbers(publications: Sequence[Publication]) -> list[int]:
    return [one.envelope.seq for one in publications]


async def test_the_devices_of_one_user_who_ask_together_cost_one_read(room: Room) -> None:
    await room.store.write([letter(1)])
    found = await asyncio.gather(*(room.open("user.42") for _ in range(3)))
    assert [numbers(one.publications) for one in found] == [[1]] * 3
    assert room.store.read == [["user.42"]]


async def test_who_waits_while_others_are_read_for_goes_into_the_next_trip() -> None:
    async with a_room(mailbox_reads=1, mailbox_batch=3) as room:
        topics = [f"user.{n}" for n in range(8)]
        await asyncio.gather(*map(room.open, topics))
        assert list(map(len, room.store.read)) == [3, 3, 2]
        assert [topic for batch in room.store.read for topic in batch] == topics


async def test_so_many_are_read_at_once_and_no_more() -> None:
    async with a_room(mailbox_reads=2, mailbox_batch=1) as room:
        at_once = most = 0

        async def count() -> None:
            nonlocal at_once, most
            at_once += 1
            most = max(most, at_once)
            await asyncio.sleep(0)
            at_once -= 1

        room.store.before = count
        await asyncio.gather(*(room.open(f"user.{n}") for n in range(9)))
        assert most == 2
        assert len(room.store.read) == 9


async def test_what_memory_has_lost_meanwhile_is_read_again(room: Room) -> None:
    late = [letter(n) for n in range(1, 6)]

    def all_come_during_the_first() -> None:
        if len(room.store.read) == 1:
            room.arrives(*late)

    room.store.before = all_come_during_the_first
    reading = asyncio.create_task(room.open("user.42"))
    await asyncio.sleep(0)
    found = await reading
    # Memory keeps three, so only the store has the first two.
    assert len(room.store.read) == 2
    assert numbers(found.publications) == [3, 4, 5]
    await room.store.write(late)
    assert numbers((await room.open("user.42")).publications) == [1, 2, 3, 4, 5]


async def test_a_mailbox_that_grows_faster_than_it_can_be_read_isnt_given_out(room: Room) -> None:
    count = iter(range(1, 1_000))
    room.store.before = lambda: room.arrives(*(letter(next(count)) for _ in range(5)))
    with pytest.raises(StoreUnavailable, match="as fast as it grows"):
        await room.open("user.42")
    assert len(room.store.read) == 3


async def test_what_is_news_to_the_gateway_is_published_to_everyone(room: Room) -> None:
    room.arrives(letter(1))
    await room.store.write([letter(1), letter(2)])
    found = await room.open("user.42")
    assert numbers(found.publications) == [1, 2]
    assert numbers(room.published) == [2]
    assert room.hub.offer(letter(2), NOW) is None


async def test_what_was_routed_a_moment_ago_is_given_though_the_store_lacks_it_by_any_clock(
    room: Room,
) -> None:
    # Its router's clock is six minutes behind ours.
    new = letter(1, at=-300_000)
    room.hub.logs.heard(log_of(new), 1, 0, sent_ms=START_MS - 300_000, now=0.0)
    room.arrives(new)
    found = await room.open("user.42")
    assert numbers(found.publications) == [1]


async def test_what_is_unseen_and_older_than_two_minutes_goes_to_who_asks_at_once(
    room: Room,
) -> None:
    """Another copy of it may have been given so long ago that it is forgotten."""
    late, young = letter(1, at=-60_001), letter(2, at=-60_000)
    await room.store.write([late, young])
    found = await room.open("user.42")
    assert numbers(found.publications) == [1, 2]
    assert numbers(room.published) == [2]
    # After the look-up of its copies it is given to all devices: to the asking one a second time.
    assert found.has_unpublished
    assert not room.hub.knows(late)
    assert room.hub.offer(late, NOW) is not None
    assert not (await room.open("user.42")).has_unpublished


async def test_a_row_whose_number_is_void_is_not_given(room: Room) -> None:
    """The row's message arrives under the number that another router gave it."""
    void, other = letter(1, at=-60_000), letter(2, at=-59_000)
    room.hub.logs.heard(log_of(void), 2, 2, sent_ms=START_MS, now=0.0)
    room.hub.logs.skip(log_of(void), 1, 1)
    await room.store.write([void, other])
    found = await room.open("user.42")
    assert numbers(found.publications) == [2]
    again = letter(1, router="oregon-router-2")
    assert room.hub.offer(again, NOW) is not None


async def test_of_a_message_whose_newest_copy_ended_void_another_copy_counts(room: Room) -> None:
    """A router with a clock that was ahead died; another one routed its message again."""
    void = letter(1, at=-600_000, router="oregon-router-2", message_id="m")
    again = letter(1, at=-601_000, router="oregon-router-3", message_id="m")
    room.hub.logs.learn(DirectoryRow(log_of(void), 2, 0, 1, ((1, 1),)), now=0.0)
    room.hub.logs.saw(log_of(again), 1)
    await room.store.write([void, again, letter(2, at=-599_000)])
    await room.store.mark([UserMark(topic="user.42", id=void.id, kind="read", at_ms=START_MS)])
    found = await room.open("user.42")
    told = [(one.envelope.router, one.mark is not None) for one in found.publications]
    assert told == [
        ("oregon-router-3", False),
        ("oregon-router-3", True),
        ("oregon-router-1", False),
    ]


async def test_the_devices_of_one_user_who_ask_together_look_for_another_copy_once(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    void = letter(1, at=-600_000, router="oregon-router-2", message_id="m")
    again = letter(1, at=-601_000, router="oregon-router-3", message_id="m")
    room.hub.logs.learn(DirectoryRow(log_of(void), 2, 0, 1, ((1, 1),)), now=0.0)
    room.hub.logs.saw(log_of(again), 1)
    await room.store.write([void, again])
    looked: list[str] = []
    since = room.store.since

    async def noted(topic: str, **limits: Any) -> list[Envelope]:
        looked.append(topic)
        return await since(topic, **limits)

    monkeypatch.setattr(room.store, "since", noted)
    found = await asyncio.gather(*(room.open("user.42") for _ in range(3)))
    given = [[one.envelope.router for one in replay.publications] for replay in found]
    assert given == [["oregon-router-3"]] * 3
    assert looked == ["user.42"]


async def test_what_was_past_when_the_gateway_began_is_no_news(room: Room) -> None:
    room.hub.logs.begin([DirectoryRow(Log("oregon", "oregon-router-1", START_MS), low=2)], now=0.0)
    await room.store.write([letter(1), letter(2), letter(3)])
    found = await room.open("user.42")
    assert numbers(found.publications) == [1, 2, 3]
    assert numbers(room.published) == [3]
    # A copy by another router is dropped.
    assert room.hub.offer(letter(1, router="oregon-router-2"), NOW) is None


async def test_what_is_older_than_the_window_takes_no_room_in_it(room: Room) -> None:
    # A number of a router that has ended since.
    old = letter(1, at=-7_200_000, epoch=1)
    await room.store.write([old, letter(2)])
    found = await room.open("user.42")
    assert numbers(found.publications) == [1, 2]
    assert len(room.hub.seen) == 1


async def test_a_mark_that_came_lately_counts_though_the_store_hasnt_got_it(room: Room) -> None:
    letters = [letter(n) for n in (1, 2)]
    await room.store.write(letters)

    def announced(seq: int, marked: Envelope, kind: Any) -> Envelope:
        mark = UserMark(topic="user.42", id=marked.id, kind=kind, at_ms=int(NOW * 1000))
        body = b'{"id":"%s","mark":"%s","at":%d}' % (mark.id.encode(), kind.encode(), mark.at_ms)
        return letter(seq, type=ANNOUNCEMENT, body=body)

    room.arrives(*letters, announced(3, letters[0], "dismiss"), announced(4, letters[1], "read"))
    found = await room.open("user.42")
    assert numbers(found.publications) == [2, 4]
    assert found.gap is None
    assert [one.position is None for one in found.publications] == [True, False]


@pytest.mark.parametrize("error", [StoreUnavailable("away"), TimeoutError()])
async def test_a_store_that_fails_fails_all_who_wait_for_it_and_nobody_after(
    room: Room, error: Exception
) -> None:
    room.store.error = error
    asked = [room.open(f"user.{n % 2}") for n in range(4)]
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(one, StoreUnavailable) for one in found)
    assert len(room.away) == len(room.store.read) == 1
    room.store.error = None
    assert (await room.open("user.1")).gap is None


async def test_a_store_that_doesnt_answer_is_given_up() -> None:
    async with a_room(store_timeout=0.01) as room:
        room.store.before = lambda: asyncio.sleep(60)
        with pytest.raises(StoreUnavailable, match="doesn't answer"):
            await room.open("user.42")


async def test_so_many_may_wait_and_no_more() -> None:
    async with a_room(mailbox_reads=1, mailbox_batch=1, mailboxes_waiting=2) as room:
        asked = [asyncio.create_task(room.open(f"user.{n}")) for n in range(4)]
        found = await asyncio.gather(*asked, return_exceptions=True)
        refused = [one for one in found if isinstance(one, StoreUnavailable)]
        assert len(refused) == 2
        assert "2 mailboxes wait" in str(refused[0])


async def test_one_who_leaves_takes_nothing_from_the_others(room: Room) -> None:
    await room.store.write([letter(1)])
    first = asyncio.create_task(room.open("user.42"))
    second = asyncio.create_task(room.open("user.42"))
    await asyncio.sleep(0)
    first.cancel()
    assert numbers((await second).publications) == [1]


async def test_a_spoilt_mailbox_costs_nobody_else_anything(room: Room) -> None:
    await room.store.write([letter(n, user=str(n)) for n in range(1, 6)])

    def spoil() -> None:
        spoilt = "user.3" in room.store.read[-1]
        room.store.error = StoreError("garbage") if spoilt else None

    room.store.before = spoil
    asked = [room.open(f"user.{n}") for n in range(1, 6)]
    *others, last = await asyncio.gather(*asked[:2], *asked[3:], asked[2], return_exceptions=True)
    assert isinstance(last, StoreError)
    for n, replay in zip((1, 2, 4, 5), others, strict=True):
        assert isinstance(replay, Replay)
        assert numbers(replay.publications) == [n]
    # The store itself is healthy.
    assert room.away == []


async def test_what_grows_too_fast_doesnt_make_the_store_rest(room: Room) -> None:
    count = iter(range(1, 1_000))
    room.store.before = lambda: room.arrives(*(letter(next(count)) for _ in range(5)))
    with pytest.raises(StoreUnavailable):
        await room.open("user.42")
    assert room.away == []


async def test_a_store_that_goes_away_while_a_batch_is_read_apart_is_asked_no_more(
    room: Room,
) -> None:
    def go_away() -> None:
        first = len(room.store.read) == 1
        room.store.error = StoreError("garbage") if first else StoreUnavailable("away")

    room.store.before = go_away
    asked = (room.open(f"user.{n}") for n in range(5))
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(one, StoreUnavailable) for one in found)
    assert [len(topics) for topics in room.store.read] == [5, 1]
    assert len(room.away) == 1
