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


class HookedStore(MemoryStore):
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
class MailboxBox:
    """Mailboxes with their hub and store, and the messages published to all."""

    mailboxes: Mailboxes
    hub: Hub
    store: HookedStore
    published: list[Publication]
    away: list[StoreError]

    async def open(self, topic: str) -> Replay:
        return await self.mailboxes.answer_from_store(Question(topic, NOW))

    def receive(self, *envelopes: Envelope) -> None:
        for one in envelopes:
            self.hub.offer(one, NOW)


@contextlib.asynccontextmanager
async def a_box(**fields: Any) -> AsyncIterator[MailboxBox]:
    hub, store = Hub(TABLE, Logs(START_MS)), HookedStore()
    settings = GatewaySettings(name="box", region="oregon", **fields)
    published: list[Publication] = []
    tasks = Tasks()
    away: list[StoreError] = []
    archive = Archive(store, settings)
    archive.failed = away.append  # type: ignore[method-assign]
    mailboxes = Mailboxes(
        hub=hub,
        store=store,
        archive=archive,
        settings=settings,
        spawn=tasks.spawn,
        publish=published.append,
        now=lambda: NOW,
        clock=lambda: 0.0,
    )
    yield MailboxBox(mailboxes, hub, store, published, away)
    await tasks.close()


@pytest.fixture
async def box() -> AsyncIterator[MailboxBox]:
    async with a_box() as box:
        yield box


def letter(number: int, *, user: str = "42", at: int = 0, **fields: Any) -> Envelope:
    return envelope(number, at=at or number, topic=f"user.{user}", **fields)


def numbers(publications: Sequence[Publication]) -> list[int]:
    return [one.envelope.seq for one in publications]


async def test_the_devices_of_one_user_who_ask_together_cost_one_read(box: MailboxBox) -> None:
    await box.store.write([letter(1)])
    found = await asyncio.gather(*(box.open("user.42") for _ in range(3)))
    assert [numbers(one.publications) for one in found] == [[1]] * 3
    assert box.store.read == [["user.42"]]


async def test_who_waits_while_others_are_read_for_goes_into_the_next_trip() -> None:
    async with a_box(mailbox_reads=1, mailbox_batch=3) as box:
        topics = [f"user.{n}" for n in range(8)]
        await asyncio.gather(*map(box.open, topics))
        assert list(map(len, box.store.read)) == [3, 3, 2]
        assert [topic for batch in box.store.read for topic in batch] == topics


async def test_so_many_are_read_at_once_and_no_more() -> None:
    async with a_box(mailbox_reads=2, mailbox_batch=1) as box:
        at_once = most = 0

        async def count() -> None:
            nonlocal at_once, most
            at_once += 1
            most = max(most, at_once)
            await asyncio.sleep(0)
            at_once -= 1

        box.store.before = count
        await asyncio.gather(*(box.open(f"user.{n}") for n in range(9)))
        assert most == 2
        assert len(box.store.read) == 9


async def test_what_memory_has_lost_meanwhile_is_read_again(box: MailboxBox) -> None:
    late = [letter(n) for n in range(1, 6)]

    def all_come_during_the_first() -> None:
        if len(box.store.read) == 1:
            box.receive(*late)

    box.store.before = all_come_during_the_first
    reading = asyncio.create_task(box.open("user.42"))
    await asyncio.sleep(0)
    found = await reading
    # Memory keeps three, so only the store has the first two.
    assert len(box.store.read) == 2
    assert numbers(found.publications) == [3, 4, 5]
    await box.store.write(late)
    assert numbers((await box.open("user.42")).publications) == [1, 2, 3, 4, 5]


async def test_a_mailbox_that_grows_faster_than_it_can_be_read_isnt_given_out(
    box: MailboxBox,
) -> None:
    count = iter(range(1, 1_000))
    box.store.before = lambda: box.receive(*(letter(next(count)) for _ in range(5)))
    with pytest.raises(StoreUnavailable, match="as fast as it grows"):
        await box.open("user.42")
    assert len(box.store.read) == 3


async def test_what_is_news_to_the_gateway_is_published_to_everyone(box: MailboxBox) -> None:
    box.receive(letter(1))
    await box.store.write([letter(1), letter(2)])
    found = await box.open("user.42")
    assert numbers(found.publications) == [1, 2]
    assert numbers(box.published) == [2]
    assert box.hub.offer(letter(2), NOW) is None


async def test_what_was_routed_a_moment_ago_is_given_though_the_store_lacks_it_by_any_clock(
    box: MailboxBox,
) -> None:
    # Its router's clock is six minutes behind ours.
    new = letter(1, at=-300_000)
    box.hub.logs.note_report(log_of(new), 1, 0, sent_ms=START_MS - 300_000, now=0.0)
    box.receive(new)
    found = await box.open("user.42")
    assert numbers(found.publications) == [1]


async def test_what_is_unseen_and_older_than_two_minutes_goes_to_who_asks_at_once(
    box: MailboxBox,
) -> None:
    """Another copy of it may have been given so long ago that it is forgotten."""
    late, young = letter(1, at=-60_001), letter(2, at=-60_000)
    await box.store.write([late, young])
    found = await box.open("user.42")
    assert numbers(found.publications) == [1, 2]
    assert numbers(box.published) == [2]
    # After the look-up of its copies it is given to all devices: to the asking one a second time.
    assert found.has_unpublished
    assert not box.hub.was_published(late)
    assert box.hub.offer(late, NOW) is not None
    assert not (await box.open("user.42")).has_unpublished


async def test_a_row_whose_number_is_void_is_not_given(box: MailboxBox) -> None:
    """The row's message arrives under the number that another router gave it."""
    void, other = letter(1, at=-60_000), letter(2, at=-59_000)
    box.hub.logs.note_report(log_of(void), 2, 2, sent_ms=START_MS, now=0.0)
    box.hub.logs.skip(log_of(void), 1, 1)
    await box.store.write([void, other])
    found = await box.open("user.42")
    assert numbers(found.publications) == [2]
    again = letter(1, router="oregon-router-2")
    assert box.hub.offer(again, NOW) is not None


async def test_of_a_message_whose_newest_copy_ended_void_another_copy_counts(
    box: MailboxBox,
) -> None:
    """A router with a clock that was ahead died; another one routed its message again."""
    void = letter(1, at=-600_000, router="oregon-router-2", message_id="m")
    again = letter(1, at=-601_000, router="oregon-router-3", message_id="m")
    box.hub.logs.learn(DirectoryRow(log_of(void), 2, 0, 1, ((1, 1),)), now=0.0)
    box.hub.logs.mark_seen(log_of(again), 1)
    await box.store.write([void, again, letter(2, at=-599_000)])
    await box.store.mark([UserMark(topic="user.42", id=void.id, kind="read", at_ms=START_MS)])
    found = await box.open("user.42")
    sent = [(one.envelope.router, one.mark is not None) for one in found.publications]
    assert sent == [
        ("oregon-router-3", False),
        ("oregon-router-3", True),
        ("oregon-router-1", False),
    ]


async def test_the_devices_of_one_user_who_ask_together_look_for_another_copy_once(
    box: MailboxBox, monkeypatch: pytest.MonkeyPatch
) -> None:
    void = letter(1, at=-600_000, router="oregon-router-2", message_id="m")
    again = letter(1, at=-601_000, router="oregon-router-3", message_id="m")
    box.hub.logs.learn(DirectoryRow(log_of(void), 2, 0, 1, ((1, 1),)), now=0.0)
    box.hub.logs.mark_seen(log_of(again), 1)
    await box.store.write([void, again])
    looked: list[str] = []
    since = box.store.since

    async def noted(topic: str, **limits: Any) -> list[Envelope]:
        looked.append(topic)
        return await since(topic, **limits)

    monkeypatch.setattr(box.store, "since", noted)
    found = await asyncio.gather(*(box.open("user.42") for _ in range(3)))
    given = [[one.envelope.router for one in replay.publications] for replay in found]
    assert given == [["oregon-router-3"]] * 3
    assert looked == ["user.42"]


async def test_what_was_past_when_the_gateway_began_is_no_news(box: MailboxBox) -> None:
    box.hub.logs.begin([DirectoryRow(Log("oregon", "oregon-router-1", START_MS), low=2)], now=0.0)
    await box.store.write([letter(1), letter(2), letter(3)])
    found = await box.open("user.42")
    assert numbers(found.publications) == [1, 2, 3]
    assert numbers(box.published) == [3]
    # A copy by another router is dropped.
    assert box.hub.offer(letter(1, router="oregon-router-2"), NOW) is None


async def test_what_is_older_than_the_window_takes_no_room_in_it(box: MailboxBox) -> None:
    # A number of a router that has ended since.
    old = letter(1, at=-7_200_000, epoch=1)
    await box.store.write([old, letter(2)])
    found = await box.open("user.42")
    assert numbers(found.publications) == [1, 2]
    assert len(box.hub.seen) == 1


async def test_a_mark_that_came_lately_counts_though_the_store_hasnt_got_it(
    box: MailboxBox,
) -> None:
    letters = [letter(n) for n in (1, 2)]
    await box.store.write(letters)

    def announced(seq: int, marked: Envelope, kind: Any) -> Envelope:
        mark = UserMark(topic="user.42", id=marked.id, kind=kind, at_ms=int(NOW * 1000))
        body = b'{"id":"%s","mark":"%s","at":%d}' % (mark.id.encode(), kind.encode(), mark.at_ms)
        return letter(seq, type=ANNOUNCEMENT, body=body)

    box.receive(*letters, announced(3, letters[0], "dismiss"), announced(4, letters[1], "read"))
    found = await box.open("user.42")
    assert numbers(found.publications) == [2, 4]
    assert found.gap is None
    assert [one.position is None for one in found.publications] == [True, False]


@pytest.mark.parametrize("error", [StoreUnavailable("away"), TimeoutError()])
async def test_a_store_that_fails_fails_all_who_wait_for_it_and_nobody_after(
    box: MailboxBox, error: Exception
) -> None:
    box.store.error = error
    asked = [box.open(f"user.{n % 2}") for n in range(4)]
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(one, StoreUnavailable) for one in found)
    assert len(box.away) == len(box.store.read) == 1
    box.store.error = None
    assert (await box.open("user.1")).gap is None


async def test_a_store_that_doesnt_answer_is_given_up() -> None:
    async with a_box(store_timeout=0.01) as box:
        box.store.before = lambda: asyncio.sleep(60)
        with pytest.raises(StoreUnavailable, match="doesn't answer"):
            await box.open("user.42")


async def test_so_many_may_wait_and_no_more() -> None:
    async with a_box(mailbox_reads=1, mailbox_batch=1, mailboxes_waiting=2) as box:
        asked = [asyncio.create_task(box.open(f"user.{n}")) for n in range(4)]
        found = await asyncio.gather(*asked, return_exceptions=True)
        refused = [one for one in found if isinstance(one, StoreUnavailable)]
        assert len(refused) == 2
        assert "2 mailboxes wait" in str(refused[0])


async def test_one_who_leaves_takes_nothing_from_the_others(box: MailboxBox) -> None:
    await box.store.write([letter(1)])
    first = asyncio.create_task(box.open("user.42"))
    second = asyncio.create_task(box.open("user.42"))
    await asyncio.sleep(0)
    first.cancel()
    assert numbers((await second).publications) == [1]


async def test_a_corrupt_mailbox_costs_no_other_user_anything(box: MailboxBox) -> None:
    await box.store.write([letter(n, user=str(n)) for n in range(1, 6)])

    def fail_for_user_3() -> None:
        corrupt = "user.3" in box.store.read[-1]
        box.store.error = StoreError("garbage") if corrupt else None

    box.store.before = fail_for_user_3
    asked = [box.open(f"user.{n}") for n in range(1, 6)]
    *others, last = await asyncio.gather(*asked[:2], *asked[3:], asked[2], return_exceptions=True)
    assert isinstance(last, StoreError)
    for n, replay in zip((1, 2, 4, 5), others, strict=True):
        assert isinstance(replay, Replay)
        assert numbers(replay.publications) == [n]
    # The store itself is healthy.
    assert box.away == []


async def test_what_grows_too_fast_doesnt_make_the_store_rest(box: MailboxBox) -> None:
    count = iter(range(1, 1_000))
    box.store.before = lambda: box.receive(*(letter(next(count)) for _ in range(5)))
    with pytest.raises(StoreUnavailable):
        await box.open("user.42")
    assert box.away == []


async def test_a_store_that_goes_away_while_a_batch_is_read_apart_is_asked_no_more(
    box: MailboxBox,
) -> None:
    def go_away() -> None:
        first = len(box.store.read) == 1
        box.store.error = StoreError("garbage") if first else StoreUnavailable("away")

    box.store.before = go_away
    asked = (box.open(f"user.{n}") for n in range(5))
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(one, StoreUnavailable) for one in found)
    assert [len(topics) for topics in box.store.read] == [5, 1]
    assert len(box.away) == 1
