"""The contract of every store, checked on each of them.

The stores are listed in tests/support/stores.py; random histories are in test_contract_model.py.
Cassandra's TTLs use its own clock; readers decide by our clock which messages have expired.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from typing import Any

import pytest
from envelopes import START_MS, envelope
from stores import SHORT_TTL_MS, SHORTEST_MS, STORES, TOPICS, TTL_MS

from newsfabric.messages.envelope import MAX_MS, Envelope
from newsfabric.messages.mailbox import ANNOUNCEMENT, KeptMessage, MarkKind, UserMark
from newsfabric.store import Store
from newsfabric.store.logs import Log, Number, NumberState
from newsfabric.store.rules import clock_ms


async def all_of(store: Store, topic: str = "news.breaking") -> list[Envelope]:
    """Return every copy on ``topic``, in the order of ids."""
    return await store.since(topic, from_ms=0, limit=10_000)


async def number_of(store: Store, e: Envelope) -> Number:
    """Return the store's row for the number that ``e`` has in its log."""
    log = Log(e.origin, e.router, e.epoch)
    (found,) = await store.numbers(log, first=e.seq, last=e.seq, limit=10)
    return found


# write


FULL = envelope(
    1,
    body='{"headline": "Überraschung in Zürich \\u0000 日本"}'.encode(),
    path=("oregon-router-1@1735689600000", "dublin-retail-1@1735689600042"),
    key="live/2025-01-01 — election",
    version=2**53 - 1,
    app_id="cms",
    type="article",
    expires_ms=START_MS + TTL_MS,
    traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
)
BARE = envelope(2, message_id=None, path=(), body=b"0", seq=0, epoch=0)
# Text that isn't UTF-8 is rejected before the store; such bytes in a body aren't.
ODD_BODY = envelope(3, body=bytes(range(256)))


@pytest.mark.parametrize("written", [FULL, BARE, ODD_BODY], ids=["full", "bare", "odd body"])
async def test_an_envelope_comes_back_with_every_field_as_it_was(store, written):
    await store.write([written])
    assert await store.history(written.topic, limit=10) == [written]
    assert await all_of(store, written.topic) == [written]


async def test_an_empty_store_has_nothing(store):
    assert await store.history("news.breaking", limit=10) == []
    assert await store.latest("news.breaking", limit=10) == []
    assert await all_of(store) == []
    await store.check()


async def test_writing_nothing_is_allowed(store):
    await store.write([])
    assert await all_of(store) == []


async def test_writing_again_changes_nothing(store):
    written = envelope(1, key="story", version=1)
    await store.write([written, written])
    await store.write([written])
    assert await all_of(store) == [written]
    assert await store.history("news.breaking", limit=10) == [written]
    assert await store.latest("news.breaking", limit=10) == [written]


@pytest.mark.parametrize("opener", STORES, indirect=True)
async def test_what_claims_the_same_place_in_a_log_does_not_replace_the_first(store):
    # In Cassandra either row may stay: it has no cheap way to check before it writes.
    written = envelope(1, key="story", version=1)
    await store.write([written])
    await store.write([dataclasses.replace(written, body=b"{}")])
    assert await all_of(store) == [written]
    assert await store.history("news.breaking", limit=10) == [written]
    assert await store.latest("news.breaking", limit=10) == [written]


@pytest.mark.parametrize("count", [1, 127, 128, 129, 300])
async def test_a_batch_of_any_size_is_written_whole(store, count):
    batch = [envelope(n, at=n, key=f"story-{n}") for n in range(count)]
    await store.write(batch)
    assert await all_of(store) == batch
    assert await store.latest("news.breaking", limit=count) == batch


async def test_writes_at_the_same_time_all_last(store):
    batches = [[envelope(n, at=n), envelope(n + 1, at=n + 1)] for n in range(100)]
    await asyncio.gather(*(store.write(batch) for batch in batches))
    assert await all_of(store) == [envelope(n, at=n) for n in range(101)]


async def test_a_cancelled_write_leaves_the_store_at_work(store):
    given_up = asyncio.create_task(store.write([envelope(1, at=1)]))
    await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.wait([given_up])
    await store.write([envelope(2, at=2)])
    assert (await all_of(store))[-1] == envelope(2, at=2)


async def test_closing_twice_is_closing_once(opener, tmp_path, clock):
    store = opener(tmp_path, TOPICS, clock)
    await store.write([envelope(1)])
    await store.close()
    await store.close()


# history


async def test_history_is_the_newest_of_one_topic_oldest_first(store):
    ours = [envelope(n, at=n) for n in range(5)]
    other = envelope(9, at=9, topic="news.sport")
    await store.write([*reversed(ours), other])
    assert await store.history("news.breaking", limit=3) == ours[2:]
    assert await store.history("news.sport", limit=3) == [other]
    assert await store.history("news", limit=3) == []


@pytest.mark.parametrize("limit", [0, -1])
async def test_a_limit_of_nothing_gives_nothing(store, limit):
    await store.write([envelope(1, key="story")])
    assert await store.history("news.breaking", limit=limit) == []
    assert await store.latest("news.breaking", limit=limit) == []
    assert await store.since("news.breaking", from_ms=0, limit=limit) == []


@pytest.mark.promise("S2")
async def test_history_has_one_per_identity_and_the_oldest_copy_stands_for_it(store):
    first = envelope(1, at=1, message_id="a", body=b'"first"')
    between = envelope(2, at=2, message_id="b")
    copy = envelope(
        7, at=3, message_id="a", router="dublin-router-1", origin="dublin", body=b'"second"'
    )
    await store.write([copy, first, between])
    assert await store.history("news.breaking", limit=10) == [first, between]
    # Two messages are found before the first copy is reached.
    assert await store.history("news.breaking", limit=2) == [between, copy]


async def test_many_copies_do_not_crowd_out_what_is_older(store):
    old = [envelope(n, at=n) for n in range(3)]
    copies = [envelope(n, at=100 + n, message_id="again") for n in range(400)]
    await store.write([*old, *copies])
    assert await store.history("news.breaking", limit=4) == [*old, copies[0]]


async def test_history_since_a_moment_includes_that_moment(store):
    batch = [envelope(n, at=n) for n in range(4)]
    await store.write(batch)
    assert await store.history("news.breaking", limit=10, since_ms=START_MS + 2) == batch[2:]


async def test_history_before_an_id_excludes_that_id(store):
    batch = [envelope(n, at=n) for n in range(4)]
    await store.write(batch)
    page = await store.history("news.breaking", limit=2, before=batch[3].id)
    assert page == batch[1:3]


async def test_paging_backwards_meets_every_envelope_once(store):
    batch = [envelope(n, at=n // 3) for n in range(50)]
    await store.write(batch)
    pages = [await store.history("news.breaking", limit=7)]
    while pages[-1]:
        pages.append(await store.history("news.breaking", limit=7, before=pages[-1][0].id))
    met = list(itertools.chain.from_iterable(reversed(pages)))
    assert met == sorted(batch, key=lambda e: e.id)


@pytest.mark.parametrize("before", ["", "yesterday", "\ud800", "0" * 36, "' OR 1=1 --"])
async def test_history_before_what_is_no_id_is_a_value_error(store, before):
    await store.write([envelope(1)])
    with pytest.raises(ValueError, match="not a message id"):
        await store.history("news.breaking", limit=1, before=before)


async def test_a_message_is_shown_until_its_topics_ttl_ends(store, clock):
    await store.write([envelope(1, at=0, key="story")])
    clock.ms = START_MS + TTL_MS - 1
    assert len(await store.history("news.breaking", limit=1)) == 1
    assert len(await store.latest("news.breaking", limit=1)) == 1
    clock.ms = START_MS + TTL_MS
    assert await store.history("news.breaking", limit=1) == []
    assert await store.latest("news.breaking", limit=1) == []
    assert await all_of(store) == []


async def test_the_publishers_expiration_ends_it_sooner_but_not_its_number(store, clock):
    short = envelope(1, at=0, key="story", expires_ms=START_MS + 60_000)
    await store.write([short])
    clock.ms = START_MS + 59_999
    assert await store.history("news.breaking", limit=1) == [short]
    clock.ms = START_MS + 60_000
    assert await store.history("news.breaking", limit=1) == []
    assert await store.latest("news.breaking", limit=1) == []
    assert await all_of(store) == []
    assert await number_of(store, short) == Number(1, NumberState.MESSAGE, short)


async def test_an_expiration_beyond_the_ttl_does_not_lengthen_it(store, clock):
    await store.write([envelope(1, at=0, expires_ms=START_MS + 2 * TTL_MS)])
    clock.ms = START_MS + TTL_MS
    assert await store.history("news.breaking", limit=1) == []


async def test_the_first_matching_policy_gives_the_ttl(store, clock):
    await store.write([envelope(1, topic="markets.dax")])
    clock.ms = START_MS + SHORT_TTL_MS
    assert await store.history("markets.dax", limit=1) == []


async def test_the_number_of_what_nobody_reads_any_more_is_a_message_for_ten_minutes(store, clock):
    short = envelope(1, at=0, topic="markets.dax")
    await store.write([short])
    clock.ms = START_MS + SHORTEST_MS - 1
    assert await all_of(store, "markets.dax") == []
    assert await number_of(store, short) == Number(1, NumberState.MESSAGE, short)
    clock.ms = START_MS + SHORTEST_MS
    assert await number_of(store, short) == Number(1, NumberState.GONE)


async def test_a_topic_that_topics_toml_no_longer_has_keeps_its_history(store):
    old = envelope(1, topic="weather.rain")
    await store.write([old])
    assert await store.history("weather.rain", limit=1) == [old]


# since


async def test_since_has_every_copy_of_one_topic_in_id_order(store):
    first = envelope(1, at=1, message_id="a")
    between = envelope(2, at=2, message_id="b")
    copy = envelope(7, at=3, message_id="a", router="dublin-router-1", origin="dublin")
    other = envelope(9, at=2, topic="news.sport")
    await store.write([copy, other, between, first])
    assert await store.since("news.breaking", from_ms=0, limit=10) == [first, between, copy]
    assert await store.since("news.sport", from_ms=0, limit=10) == [other]
    assert await store.since("news", from_ms=0, limit=10) == []


async def test_since_a_moment_includes_that_moment(store):
    batch = [envelope(n, at=n) for n in range(4)]
    await store.write(batch)
    assert await store.since("news.breaking", from_ms=START_MS + 2, limit=10) == batch[2:]
    assert await store.since("news.breaking", from_ms=START_MS + 4, limit=10) == []


async def test_since_until_a_moment_excludes_that_moment(store):
    batch = [envelope(n, at=n) for n in range(6)]
    await store.write(batch)
    within = {"from_ms": START_MS + 1, "to_ms": START_MS + 4}
    assert await store.since("news.breaking", **within, limit=10) == batch[1:4]
    assert await store.since("news.breaking", **within, limit=2) == batch[2:4]
    assert await store.since("news.breaking", from_ms=0, to_ms=START_MS, limit=10) == []


async def test_since_reads_the_region_that_is_asked_for(store):
    batch = [envelope(n, at=n) for n in range(3)]
    await store.write(batch)
    assert await store.since("news.breaking", from_ms=0, limit=10, region="oregon") == batch


async def test_copies_with_one_id_are_both_kept_in_the_order_of_their_routers(store):
    ours = envelope(1, at=1, message_id="a")
    theirs = envelope(8, at=1, message_id="a", router="dublin-router-2", origin="dublin")
    assert ours.id == theirs.id
    await store.write([ours])
    await store.write([theirs])
    assert await all_of(store) == [theirs, ours]
    assert await store.since("news.breaking", from_ms=0, limit=1) == [ours]
    assert await store.history("news.breaking", limit=10) == [theirs]
    for copy in (ours, theirs):
        assert await number_of(store, copy) == Number(copy.seq, NumberState.MESSAGE, copy)


async def test_a_router_that_restarted_writes_another_log(store):
    before = envelope(1, at=1, message_id="a")
    after = dataclasses.replace(before, epoch=before.epoch + 5)
    await store.write([before, after])
    assert await all_of(store) == [before, after]
    for copy in (before, after):
        assert await number_of(store, copy) == Number(1, NumberState.MESSAGE, copy)


async def test_the_last_moment_an_id_can_hold_is_within_reach(store):
    last = envelope(1, at=MAX_MS - START_MS)
    await store.write([last])
    assert await store.since("news.breaking", from_ms=MAX_MS, limit=1) == [last]
    assert await store.since("news.breaking", from_ms=0, to_ms=MAX_MS, limit=1) == []
    assert await store.history("news.breaking", limit=1) == [last]


@pytest.mark.parametrize("limit", [-1, 0, 1, 255, 256, 257, 600, 601])
async def test_since_has_the_newest_when_there_are_more_than_its_limit(store, limit):
    batch = [envelope(n, at=n // 2) for n in range(600)]
    await store.write(batch)
    newest = sorted(batch, key=lambda e: (e.id, e.seq))[max(0, 600 - max(limit, 0)) :]
    assert await store.since("news.breaking", from_ms=0, limit=limit) == newest


async def test_since_leaves_out_what_has_expired(store, clock):
    short = envelope(1, at=0, expires_ms=START_MS + 60_000)
    long = envelope(2, at=1)
    await store.write([short, long])
    clock.ms = START_MS + 60_000
    assert await store.since("news.breaking", from_ms=0, limit=10) == [long]
    clock.ms = START_MS + TTL_MS + 1
    assert await store.since("news.breaking", from_ms=0, limit=10) == []


# latest


async def test_latest_is_the_newest_of_each_key_oldest_first(store):
    a1 = envelope(1, at=1, key="a", version=1)
    b1 = envelope(2, at=2, key="b", version=1)
    a2 = envelope(3, at=3, key="a", version=2)
    loose = envelope(4, at=4)
    elsewhere = envelope(5, at=5, key="a", version=9, topic="news.sport")
    await store.write([a1, b1, a2, loose, elsewhere])
    assert await store.latest("news.breaking", limit=10) == [b1, a2]
    assert await store.latest("news.breaking", limit=1) == [a2]


OLD = {"at": 1, "number": 1}
NEW = {"at": 2, "number": 2}


@pytest.mark.parametrize(
    ("newest", "other"),
    [
        ({**NEW, "version": 2}, {**OLD, "version": 1}),
        ({**OLD, "version": 2}, {**NEW, "version": 1}),
        ({**NEW, "version": 2}, {**OLD, "version": 2}),
        ({**NEW}, {**OLD}),
        ({**OLD, "version": 0}, {**NEW}),
        ({**NEW, "version": 10}, {**OLD, "version": 9}),
    ],
    ids=[
        "the higher version",
        "the higher version though routed first",
        "of equal versions the later",
        "without versions the later",
        "any version before none",
        "versions as numbers, not as text",
    ],
)
@pytest.mark.parametrize("newest_first", [True, False])
@pytest.mark.parametrize("at_once", [True, False])
async def test_the_order_of_writing_does_not_decide_what_is_latest(
    store, newest, other, newest_first, at_once
):
    newest, other = (envelope(**fields, key="story") for fields in (newest, other))
    order = [newest, other] if newest_first else [other, newest]
    for batch in [order] if at_once else [[e] for e in order]:
        await store.write(batch)
    assert await store.latest("news.breaking", limit=10) == [newest]


async def test_what_was_replaced_does_not_come_back_when_the_newest_expires(store, clock):
    old = envelope(1, at=1, key="story", version=1)
    new = envelope(2, at=2, key="story", version=2, expires_ms=START_MS + 20_000)
    await store.write([old, new])
    clock.ms = START_MS + 20_000
    assert await store.latest("news.breaking", limit=10) == []
    assert await store.history("news.breaking", limit=10) == [old]


async def test_latest_never_gives_more_than_a_thousand(store):
    batch = [envelope(n, at=n, key=f"story-{n}", body=b"1") for n in range(1_005)]
    await store.write(batch)
    assert await store.latest("news.breaking", limit=5_000) == batch[5:]


# mailboxes


def letter(number: int = 1, *, at: int = 0, user: str = "42", **fields: Any) -> Envelope:
    return envelope(number, at=at, **{"topic": f"user.{user}", "app_id": "billing"} | fields)


def marked(e: Envelope, kind: MarkKind, at: int) -> UserMark:
    return UserMark(topic=e.topic, id=e.id, kind=kind, at_ms=START_MS + at)


async def mailbox(store: Store, user: str = "42", limit: int = 1_000) -> list[KeptMessage]:
    (found,) = await store.mailboxes([f"user.{user}"], limit=limit)
    return found


async def test_an_individual_message_is_in_its_users_mailbox_and_everywhere_else_too(store):
    written = letter(1, key="bill", version=3, traceparent=FULL.traceparent)
    await store.write([written])
    assert await mailbox(store) == [KeptMessage(written)]
    assert await store.history("user.42", limit=10) == [written]
    assert await all_of(store, "user.42") == [written]
    assert await number_of(store, written) == Number(1, NumberState.MESSAGE, written)


async def test_a_mailbox_is_its_users_alone(store):
    written = [letter(1), letter(2, user="43"), letter(3, user="4"), envelope(4)]
    await store.write(written)
    topics = ["user.43", "user.none", "user.42", "news.breaking", "user.4", "user.43"]
    found = await store.mailboxes(topics, limit=10)
    assert [[kept.envelope for kept in each] for each in found] == [
        [written[1]], [], [written[0]], [], [written[2]], [written[1]]
    ]  # fmt: skip
    assert await store.mailboxes([], limit=10) == []


async def test_a_mailbox_has_the_newest_oldest_first(store):
    written = [letter(n, at=n) for n in range(5)]
    await store.write(written[::-1])
    assert [kept.envelope for kept in await mailbox(store)] == written
    assert [kept.envelope for kept in await mailbox(store, limit=2)] == written[3:]
    assert await mailbox(store, limit=0) == []


@pytest.mark.parametrize("count", [15, 16, 17, 300])
async def test_a_mailbox_of_any_size_comes_whole(store, count):
    written = [letter(n, at=n, body=b"1") for n in range(count)]
    few = letter(1_000, user="43")
    await store.write([*written, few])
    found = await store.mailboxes(["user.42", "user.43"], limit=1_000)
    assert [[kept.envelope for kept in each] for each in found] == [written, [few]]


async def test_mailboxes_of_many_users_come_whole_whatever_their_sizes(store):
    sizes = {f"u{n}": (0, 1, 3, 127, 128, 140)[n % 6] for n in range(40)}
    written = {
        user: [letter(1_000 * n + i, at=i, user=user, body=b"1") for i in range(size)]
        for n, (user, size) in enumerate(sizes.items())
    }
    await store.write([e for each in written.values() for e in each])
    found = await store.mailboxes([f"user.{user}" for user in sizes], limit=1_000)
    assert [[kept.envelope for kept in each] for each in found] == list(written.values())


async def test_a_mailbox_with_a_lot_of_marks_comes_with_all_of_them(store):
    written = [letter(n, at=n, body=b"1") for n in range(200)]
    few = letter(1_000, user="43")
    await store.write([*written, few])
    kinds: tuple[MarkKind, ...] = ("ack", "read")
    marks = [tuple(marked(e, kind, 300 + n) for n, kind in enumerate(kinds)) for e in written]
    dismissed = [marked(e, "dismiss", 400) for e in written[5:]]
    await store.mark([*(mark for each in marks for mark in each), *dismissed])
    ours, theirs = await store.mailboxes(["user.42", "user.43"], limit=10)
    assert ours == [KeptMessage(e, each) for e, each in zip(written[:5], marks[:5], strict=True)]
    assert theirs == [KeptMessage(few)]


async def test_a_user_may_have_mailboxes_on_several_topics(store):
    written = [letter(1), letter(2, topic="bills.42"), letter(3, at=1, topic="bills.42")]
    await store.write(written)
    read = marked(written[1], "read", 10)
    await store.mark([read, marked(written[2], "dismiss", 10)])
    found = await store.mailboxes(["user.42", "bills.42"], limit=10)
    assert found == [[KeptMessage(written[0])], [KeptMessage(written[1], (read,))]]


async def test_a_mailbox_never_gives_more_than_a_thousand(store):
    written = [letter(n, at=n, body=b"1") for n in range(1_005)]
    await store.write(written)
    assert [kept.envelope for kept in await mailbox(store, limit=5_000)] == written[5:]


async def test_what_was_dismissed_is_in_no_mailbox_but_in_the_history(store):
    written = [letter(n, at=n) for n in range(3)]
    await store.write(written)
    dismissal = marked(written[1], "dismiss", 50)
    await store.mark([dismissal])
    assert await mailbox(store) == [KeptMessage(written[0]), KeptMessage(written[2])]
    assert await store.history("user.42", limit=10) == written
    assert await store.kept("user.42", written[1].id) == KeptMessage(written[1], (dismissal,))


async def test_what_was_dismissed_makes_room_for_older_ones(store):
    written = [letter(n, at=n, body=b"1") for n in range(600)]
    await store.write(written)
    await store.mark([marked(e, "dismiss", 700) for e in written[10:]])
    assert [kept.envelope for kept in await mailbox(store, limit=5)] == written[5:10]


async def test_a_message_comes_with_its_marks(store):
    written = letter(1)
    marks = (marked(written, "ack", 10), marked(written, "read", 20))
    await store.write([written])
    await store.mark(marks[::-1])
    assert await mailbox(store) == [KeptMessage(written, marks)]
    assert await store.kept("user.42", written.id) == KeptMessage(written, marks)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
async def test_of_marks_of_one_kind_the_earliest_stands_whichever_is_written_first(store, order):
    written = letter(1)
    await store.write([written])
    # A millisecond apart, and a day.
    marks = [marked(written, "read", at) for at in (1_000_000, 1_000_001, 90_000_000)]
    for n in order:
        await store.mark([marks[n], marks[n]])
    assert await mailbox(store) == [KeptMessage(written, (marks[0],))]


# Copies may be twelve and a half minutes apart (docs/guarantees.md, S4).
@pytest.mark.parametrize("apart", [3_000, 750_000])
async def test_a_mark_on_one_copy_is_one_on_all_of_them(store, clock, apart):
    clock.ms = START_MS + apart + 10_000
    ours = letter(1, at=5)
    dublin = {"router": "dublin-router-2", "origin": "dublin"}
    theirs = letter(8, at=5 + apart, message_id="message-1", **dublin)
    other = letter(2, at=6)
    await store.write([ours, theirs, other])
    (first, second) = await mailbox(store)
    assert {first.envelope.identity, second.envelope.identity} == {ours.identity, other.identity}
    read = marked(ours, "read", apart + 4_000)
    later = marked(theirs, "read", apart + 4_001)
    await store.mark([later, read])
    assert [kept.marks for kept in await mailbox(store)] == [(), (read,)]
    kept = await store.kept("user.42", theirs.id)
    assert kept is not None
    assert kept.marks == (read,)
    await store.mark([marked(ours, "dismiss", apart + 5_000)])
    assert [kept.envelope for kept in await mailbox(store)] == [other]


async def test_a_mark_may_be_there_before_its_message(store):
    written = letter(1)
    await store.mark([marked(written, "dismiss", 10)])
    await store.write([written])
    assert await mailbox(store) == []


async def test_a_mark_says_nothing_of_another_users_message(store):
    ours, theirs = letter(1), letter(2, user="43", message_id="message-1")
    await store.write([ours, theirs])
    await store.mark([marked(ours, "dismiss", 10)])
    assert await mailbox(store) == []
    assert await mailbox(store, "43") == [KeptMessage(theirs)]


async def test_marking_nothing_is_allowed(store):
    await store.mark([])
    assert await mailbox(store) == []


async def test_an_expired_message_is_in_no_mailbox(store, clock):
    soon, later = letter(1, expires_ms=START_MS + 20_000), letter(2, at=1)
    await store.write([soon, later])
    assert len(await mailbox(store)) == 2
    clock.ms = START_MS + 20_000
    assert await mailbox(store) == [KeptMessage(later)]
    assert await store.kept("user.42", soon.id) is None
    clock.ms = START_MS + TTL_MS + 1
    assert await mailbox(store) == []


async def test_an_announcement_of_a_mark_is_in_no_mailbox(store):
    written = letter(1)
    sent = letter(2, at=1, type=ANNOUNCEMENT)
    await store.write([written, sent])
    assert await mailbox(store) == [KeptMessage(written)]
    assert await store.kept("user.42", sent.id) is None
    assert await store.history("user.42", limit=10) == [written, sent]


async def test_what_is_no_id_is_not_looked_for(store):
    with pytest.raises(ValueError, match="not a message id"):
        await store.kept("user.42", "DROP TABLE inbox")


async def test_the_clocks_of_a_stores_nodes_are_this_machines(store):
    # All nodes of this store are here. A store without nodes has no clock to compare with.
    assert all(abs(ms - clock_ms()) < 5_000 for ms in await store.clocks_ms())
