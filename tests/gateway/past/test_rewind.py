"""A topic's past for readers who ask: from memory first, and from the store once for all."""

from __future__ import annotations

import asyncio

import pytest
from box_with_a_past import (
    LOW,
    NOW,
    TOPIC,
    BegunBox,
    failures,
    last,
    message,
    messages,
    newest,
    seconds,
    seqs,
)
from gateways import until

from gateway.memory.hub import HubLimits
from gateway.past.replay import Replay
from gateway.wire.position import log_of
from newsfabric.errors import StoreError, StoreUnavailable
from newsfabric.messages.envelope import Envelope
from newsfabric.store.logs import DirectoryRow

# Warming.


async def test_who_asks_for_nothing_of_the_past_gets_nothing_and_costs_no_read(
    box: BegunBox,
) -> None:
    await box.store.write(messages(1, 2))
    assert seqs(box.from_memory(newest(TOPIC))) == []
    assert box.store.reads == 0


async def test_the_first_reader_of_a_topics_past_seeds_it(box: BegunBox) -> None:
    await box.store.write(messages(1, 2, 3, 4))
    assert box.from_memory(last(2)) is None
    assert seqs(await box.from_store(last(2))) == [3, 4]
    assert seqs(box.from_memory(last(3))) == [2, 3, 4]
    assert box.store.reads == 1


@pytest.mark.parametrize("count", [2, 30], ids=["memory is seeded", "more than it keeps"])
async def test_of_a_message_whose_oldest_copy_ended_void_another_copy_counts(
    box: BegunBox, count: int
) -> None:
    """A router wrote it and died, another one routed it again, and the first log was closed."""
    void, again = (
        message(1, at=at, router=f"oregon-router-{n}", message_id="m")
        for at, n in ((80_000, 2), (81_000, 3))
    )
    logs = box.hub.logs
    logs.learn(DirectoryRow(log_of(void), 2, 0, 1, ((1, 1),)), now=NOW)
    logs.mark_seen(log_of(again), 1)
    await box.store.write([void, again, message(85)])
    found = await box.from_store(last(count))
    assert [(one.envelope.router, one.envelope.seq) for one in found.publications] == [
        ("oregon-router-3", 1),
        ("oregon-router-1", 85),
    ]


async def test_the_newest_of_a_key_whose_newest_copy_ended_void_counts_by_another_copy(
    box: BegunBox,
) -> None:
    """The router that died had a clock that was ahead."""
    void, again = (
        message(1, at=at, router=f"oregon-router-{n}", key="k", message_id="m", topic="news.latest")
        for at, n in ((81_000, 2), (80_000, 3))
    )
    logs = box.hub.logs
    logs.learn(DirectoryRow(log_of(void), 2, 0, 1, ((1, 1),)), now=NOW)
    logs.mark_seen(log_of(again), 1)
    # As many as the topic remembers.
    others = messages(82, 83, 84, topic="news.latest")
    await box.store.write([void, again, *others])
    found = await box.from_store(newest())
    assert [one.envelope.router for one in found.publications] == ["oregon-router-3"]


async def test_a_topic_is_seeded_once_however_many_wait(box: BegunBox) -> None:
    await box.store.write(messages(1, 2, 3, 4))
    tasks = await box.waiting(last(2), last(2), last(3), seconds(597))
    box.store.released.set()
    found = await asyncio.gather(*tasks)
    assert [seqs(one) for one in found] == [[3, 4], [3, 4], [2, 3, 4], [3, 4]]
    assert box.store.reads == 1


async def test_topics_are_seeded_each_for_itself(box: BegunBox) -> None:
    await box.store.write([message(1), message(2, topic="news.b")])
    assert seqs(await box.from_store(last(2))) == [1]
    assert box.from_memory(last(2, "news.b")) is None
    assert seqs(await box.from_store(last(2, "news.b"))) == [2]


async def test_a_seeded_topic_has_its_newest_versions_and_a_second_time_costs_nothing(
    box: BegunBox,
) -> None:
    await box.store.write(messages(1, topic="news.latest", key="k"))
    await box.rewinds.try_to_seed("news.latest")
    await box.rewinds.try_to_seed("news.latest")
    assert seqs(box.from_memory(newest())) == [1]
    assert box.store.reads == 1


async def test_messages_that_arrive_while_a_topic_is_seeded_come_behind_the_older_ones(
    box: BegunBox,
) -> None:
    await box.store.write(messages(1, 2))
    (task,) = await box.waiting(last(3))
    box.comes(message(100))
    box.store.released.set()
    assert seqs(await task) == [1, 2, 100]


# A crowd.


async def test_a_crowd_in_the_same_second_gets_the_very_same(box: BegunBox) -> None:
    await box.store.write(messages(1, 2, 3, 4))
    found = await box.from_store(last(2))
    assert box.from_memory(last(2)) is found
    box.now += 0.9
    assert box.from_memory(last(2)) is found
    box.now += 0.1
    later = box.from_memory(last(2))
    assert later is not found
    assert seqs(later) == [3, 4]


async def test_what_arrives_is_in_the_next_answer(box: BegunBox) -> None:
    await box.store.write(messages(1, 2, 3, 4))
    found = await box.from_store(last(2))
    box.comes(message(100))
    assert seqs(box.from_memory(last(2))) == [4, 100]
    assert seqs(found) == [3, 4]


async def test_what_has_expired_is_in_no_answer(box: BegunBox) -> None:
    ends_ms = int(NOW * 1000) + 500
    await box.store.write([message(1, expires_ms=ends_ms), message(2)])
    assert seqs(await box.from_store(last(3))) == [1, 2]
    box.now += 1.0
    assert seqs(box.from_memory(last(3))) == [2]


async def test_a_crowd_that_waits_for_what_is_older_is_read_for_once_and_gets_the_very_same(
    box: BegunBox,
) -> None:
    await box.store.write(messages(*range(1, 10)))
    await box.rewinds.try_to_seed(TOPIC)
    tasks = await box.waiting(last(5), last(5), last(5))
    box.store.released.set()
    first, second, third = await asyncio.gather(*tasks)
    assert seqs(first) == [5, 6, 7, 8, 9]
    assert second is first
    assert third is first
    # One of the reads seeded the topic.
    assert box.store.reads == 2


async def test_who_asks_for_what_is_older_when_it_was_read_has_it_read_anew(box: BegunBox) -> None:
    await box.store.write(messages(*range(1, 10)))
    found = await box.from_store(last(5))
    again = await box.from_store(last(5))
    assert (seqs(again), again is found) == (seqs(found), False)
    # One read seeded the topic, and one was made for each of the two.
    assert box.store.reads == 3


async def test_of_different_questions_each_has_its_own_answer(box: BegunBox) -> None:
    await box.store.write(messages(*range(1, 10)))
    await box.rewinds.try_to_seed(TOPIC)
    verbs = (last(5), last(6), seconds(596))
    tasks = await box.waiting(*verbs)
    await until(lambda: box.store.reads == 1 + len(verbs))
    box.store.released.set()
    assert [seqs(one) for one in await asyncio.gather(*tasks)] == [
        [5, 6, 7, 8, 9], [4, 5, 6, 7, 8, 9], [4, 5, 6, 7, 8, 9],
    ]  # fmt: skip


async def test_answers_are_kept_for_a_second_and_only_so_many(box: BegunBox) -> None:
    await box.rewinds.try_to_seed(TOPIC)
    first = box.from_memory(last(1))
    for count in range(2, 65):
        box.from_memory(last(count))
    assert box.from_memory(last(1)) is first
    box.from_memory(last(65))
    assert box.from_memory(last(1)) is not first
    second = box.from_memory(last(1))
    box.now += 1.0
    assert box.from_memory(last(1)) is not second


# Rewinds.


async def test_a_rewind_by_count_that_memory_has_is_not_read(box: BegunBox) -> None:
    await box.rewinds.try_to_seed(TOPIC)
    box.comes(*messages(100, 101, 102, 103))
    assert seqs(box.from_memory(last(3))) == [101, 102, 103]
    assert seqs(box.from_memory(last(1))) == [103]
    assert box.store.reads == 1


async def test_a_rewind_beyond_memory_brings_the_older_ones_from_the_store(box: BegunBox) -> None:
    await box.store.write(messages(*range(1, 10)))
    await box.rewinds.try_to_seed(TOPIC)
    assert box.from_memory(last(7)) is None
    assert seqs(await box.from_store(last(7))) == [3, 4, 5, 6, 7, 8, 9]


async def test_a_rewind_beyond_all_there_is_brings_all_there_is(box: BegunBox) -> None:
    await box.store.write(messages(1, 2))
    assert seqs(await box.from_store(last(1_000))) == [1, 2]
    # Now it is known that there is no more.
    assert seqs(box.from_memory(last(1_000))) == [1, 2]
    assert box.store.reads == 1


async def test_what_arrives_while_older_ones_are_read_counts_among_the_last(box: BegunBox) -> None:
    await box.store.write(messages(*range(1, 10)))
    await box.rewinds.try_to_seed(TOPIC)
    (task,) = await box.waiting(last(5))
    box.comes(message(100))
    box.store.released.set()
    assert seqs(await task) == [6, 7, 8, 9, 100]


async def test_a_rewind_by_seconds_begins_to_the_millisecond(box: BegunBox) -> None:
    began = [message(number, at=number * 1_000 + ms) for number, ms in ((1, 999), (2, 0), (3, 1))]
    await box.store.write(began)
    await box.rewinds.try_to_seed(TOPIC)
    assert seqs(box.from_memory(seconds(598), NOW)) == [2, 3]
    later = box.from_memory(seconds(598), NOW + 0.5)
    assert seqs(later) == [3]
    # The same object for all that get the same messages.
    assert box.from_memory(seconds(598), NOW + 0.999) is later
    assert seqs(box.from_memory(seconds(597), NOW + 0.5)) == []
    assert seqs(await box.from_store(seconds(599), NOW + 0.5)) == [1, 2, 3]


async def test_those_who_ask_for_the_same_seconds_in_one_second_get_the_very_same(
    box: BegunBox,
) -> None:
    await box.store.write(messages(1, 2, 3))
    await box.rewinds.try_to_seed(TOPIC)
    found = box.from_memory(seconds(598), NOW + 0.1)
    assert box.from_memory(seconds(598), NOW + 0.8) is found
    # 599.5 s before NOW + 1.6 is the same moment as 598 s before NOW + 0.1.
    assert box.from_memory(seconds(599.5), NOW + 1.6) is found


async def test_a_rewind_by_seconds_counts_from_when_it_was_asked_for(box: BegunBox) -> None:
    await box.store.write(messages(1, 2, 3))
    tasks = await box.waiting(seconds(598))
    box.now += 30.0
    box.store.released.set()
    (task,) = tasks
    assert seqs(await task) == [2, 3]


async def test_a_rewind_by_seconds_beyond_memory_brings_the_older_ones_from_the_store(
    box: BegunBox,
) -> None:
    await box.store.write(messages(*range(1, 10)))
    await box.rewinds.try_to_seed(TOPIC)
    assert box.from_memory(seconds(597)) is None
    assert seqs(await box.from_store(seconds(597))) == [3, 4, 5, 6, 7, 8, 9]
    assert box.from_memory(seconds(593)) is None
    # All that was routed from then on is remembered too.
    assert seqs(box.from_memory(seconds(592))) == [8, 9]


async def test_a_rewind_may_begin_before_all_time(box: BegunBox) -> None:
    await box.store.write(messages(1, 2))
    assert seqs(await box.from_store(seconds(2 * NOW))) == [1, 2]


# The newest of each key.


async def test_where_a_topic_has_them_who_asks_for_nothing_gets_the_newest_of_each_key(
    box: BegunBox,
) -> None:
    there = [message(n, topic="news.latest", key=key) for n, key in enumerate("kllmmm", start=1)]
    await box.store.write(there)
    assert box.from_memory(newest()) is None
    assert seqs(await box.from_store(newest())) == [1, 3, 6]
    box.comes(message(100, topic="news.latest", key="k"))
    assert seqs(box.from_memory(newest())) == [3, 6, 100]
    assert box.store.reads == 1


async def test_an_older_version_of_a_key_is_not_its_newest_however_late_it_comes(
    box: BegunBox,
) -> None:
    await box.store.write([message(1, topic="news.latest", key="k", version=2)])
    await box.rewinds.try_to_seed("news.latest")
    box.comes(message(100, topic="news.latest", key="k", version=1))
    assert seqs(box.from_memory(newest())) == [1]


async def test_who_asks_for_a_rewind_gets_that_and_nothing_else(box: BegunBox) -> None:
    there = [message(n, topic="news.latest", key=key) for n, key in enumerate("klm", start=1)]
    await box.store.write(there)
    await box.rewinds.try_to_seed("news.latest")
    assert seqs(box.from_memory(last(1, "news.latest"))) == [3]
    assert seqs(box.from_memory(seconds(598, "news.latest"))) == [2, 3]


async def test_without_the_store_the_newest_versions_are_those_that_came(box: BegunBox) -> None:
    await box.store.write([message(1, topic="news.latest", key="k")])
    box.comes(message(100, topic="news.latest", key="l"))
    box.store.error = StoreError("corrupt")
    assert seqs(await box.from_store(newest())) == [100]


# Messages that the feed hasn't brought.


async def test_what_the_feed_hasnt_brought_is_in_no_rewind_and_comes_live(box: BegunBox) -> None:
    known, other = messages(100, 101)
    box.comes(known)
    await box.store.write([message(1), known, other])
    assert seqs(await box.from_store(last(3))) == [1, 100]
    box.comes(other)
    assert seqs(box.from_memory(last(3))) == [1, 100, 101]


async def test_what_the_feed_hasnt_brought_is_in_no_rewind_beyond_memory(box: BegunBox) -> None:
    made = messages(*range(100, 109))
    box.comes(*made[:8])
    await box.store.write(made)
    assert seqs(await box.from_store(last(7))) == [102, 103, 104, 105, 106, 107]


async def test_a_version_that_the_feed_hasnt_brought_is_no_keys_newest(box: BegunBox) -> None:
    known, other = (message(n, topic="news.latest", key="k") for n in (100, 101))
    box.comes(known)
    await box.store.write([known, other, message(102, topic="news.latest", key="l")])
    assert seqs(await box.from_store(newest())) == [100]
    box.comes(other)
    assert seqs(box.from_memory(newest())) == [101]


async def test_what_was_settled_before_the_gateway_began_is_past_and_no_more(box: BegunBox) -> None:
    await box.store.write(messages(LOW - 1, LOW, LOW + 1))
    assert seqs(await box.from_store(last(3))) == [LOW - 1, LOW]


async def test_of_what_was_given_from_the_store_no_copy_is_published(box: BegunBox) -> None:
    def copy(number: int) -> Envelope:
        return message(number, origin="dublin", router="dublin-router-1")

    await box.store.write(messages(*range(1, 10)))
    assert seqs(await box.from_store(last(7))) == [3, 4, 5, 6, 7, 8, 9]
    assert [box.hub.offer(copy(number), box.now) for number in (3, 9)] == [None, None]
    # This one was never given.
    assert box.hub.offer(copy(2), box.now) is not None


# Without the store.


async def test_while_the_store_is_away_who_asks_gets_what_is_remembered(box: BegunBox) -> None:
    await box.store.write(messages(1, 2))
    box.comes(message(100))
    box.store.error = StoreUnavailable("away")
    before = failures()
    assert seqs(await box.from_store(last(3))) == [100]
    assert failures() == before + 1
    # It isn't known whether there is more, so the next reader asks again.
    assert box.from_memory(last(3)) is None


async def test_a_topic_that_couldnt_be_read_is_seeded_by_the_next_reader(box: BegunBox) -> None:
    await box.store.write(messages(1, 2))
    box.store.error = StoreError("corrupt")
    assert seqs(await box.from_store(last(3))) == []
    box.store.error = None
    assert seqs(await box.from_store(last(3))) == [1, 2]


async def test_if_only_what_is_older_cant_be_read_the_rest_is_given(box: BegunBox) -> None:
    await box.store.write(messages(*range(1, 10)))
    await box.rewinds.try_to_seed(TOPIC)
    box.store.error = StoreUnavailable("away")
    assert seqs(await box.from_store(last(7))) == [7, 8, 9]


async def test_a_store_that_is_away_is_everybodys_failure_and_all_are_answered(
    box: BegunBox,
) -> None:
    box.comes(message(100))
    tasks = await box.waiting(last(2), last(2), seconds(550))
    box.store.error = StoreError("corrupt")
    box.store.released.set()
    assert [seqs(one) for one in await asyncio.gather(*tasks)] == [[100], [100], [100]]
    assert box.store.reads == 1


async def test_a_topic_that_cant_be_seeded_is_counted_and_no_error(box: BegunBox) -> None:
    box.store.error = StoreError("corrupt")
    before = failures()
    await box.rewinds.try_to_seed(TOPIC)
    assert (failures(), box.hub.memory(TOPIC).seeded) == (before + 1, False)


async def test_who_leaves_while_the_store_is_asked_takes_nothing_from_the_others(
    box: BegunBox,
) -> None:
    await box.store.write(messages(*range(1, 10)))
    await box.rewinds.try_to_seed(TOPIC)
    gone, other = await box.waiting(last(5), last(5))
    gone.cancel()
    box.store.released.set()
    assert seqs(await other) == [5, 6, 7, 8, 9]
    assert box.store.reads == 2


async def test_what_memory_forgets_before_the_answer_is_made_is_in_it(box: BegunBox) -> None:
    await box.store.write(messages(*range(1, 10)))
    await box.rewinds.try_to_seed(TOPIC)
    (task,) = await box.waiting(last(7))
    (read,) = [one for one in box.tasks._running if not one.done()]
    read.add_done_callback(lambda _: box.comes(message(100)))
    box.store.released.set()
    assert seqs(await task) == [4, 5, 6, 7, 8, 9, 100]


async def test_what_comes_and_is_forgotten_while_older_ones_are_read(box: BegunBox) -> None:
    await box.store.write(messages(*range(1, 10)))
    await box.rewinds.try_to_seed(TOPIC)
    (task,) = await box.waiting(last(7))
    box.comes(*messages(100, 101, 102, 103))
    box.store.released.set()
    assert seqs(await task) == [7, 8, 9, 100, 101, 102, 103]


async def test_who_asks_when_a_read_has_just_ended_has_the_store_read_again(box: BegunBox) -> None:
    await box.store.write(messages(*range(1, 21)))
    await box.rewinds.try_to_seed(TOPIC)
    (first,) = await box.waiting(last(10))
    (read,) = [one for one in box.tasks._running if not one.done()]
    late: list[asyncio.Task[Replay]] = []
    # In the same turn of the loop, before the waiting tasks are woken.
    read.add_done_callback(lambda _: late.append(asyncio.create_task(box.from_store(last(10)))))
    box.store.released.set()
    assert len(seqs(await first)) == 10
    assert seqs(await late[0]) == list(range(11, 21))


async def test_a_topic_that_has_just_been_seeded_is_not_forgotten_for_want_of_room() -> None:
    box = BegunBox(HubLimits(memory_bytes=1))
    await box.store.write(messages(1, 2, 3))
    await box.rewinds.try_to_seed(TOPIC)
    assert box.hub.memory(TOPIC).seeded
