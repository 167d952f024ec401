"""The memory store's bound: in bytes; the oldest messages are dropped first."""

from __future__ import annotations

import pytest
from envelopes import START_MS, Clock, envelope

from newsfabric.errors import StoreError
from newsfabric.messages.envelope import ms_of_id
from newsfabric.store.logs import Log, Number, NumberState
from newsfabric.store.memory import MemoryStore
from newsfabric.topics import TopicPolicy, TopicTable

TOPICS = TopicTable([TopicPolicy(pattern="#")])
MAX_BYTES = 100_000


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(TOPICS, max_bytes=MAX_BYTES, now_ms=Clock())


async def test_at_its_bound_the_oldest_go_and_the_newest_stay(store):
    batch = [envelope(n, at=n, body=b"x" * 1_000) for n in range(200)]
    for written in batch:
        await store.write([written])
        assert store.bytes_kept <= MAX_BYTES
    kept = await store.history("news.breaking", limit=1_000)
    assert 0 < len(kept) < 200
    assert kept == batch[-len(kept) :]
    log = Log("oregon", "oregon-router-1", START_MS)
    numbers = await store.numbers(log, first=1, last=199, limit=200)
    dropped = 200 - len(kept)
    assert numbers == [
        *(Number(n, NumberState.GONE) for n in range(1, dropped)),
        *(Number(e.seq, NumberState.MESSAGE, e) for e in kept),
    ]


async def test_it_holds_as_many_bytes_as_it_says(store):
    await store.write([envelope(n, at=n, body=b"x" * 8_500) for n in range(10)])
    assert store.bytes_kept == MAX_BYTES
    assert len(await store.history("news.breaking", limit=100)) == 10


async def test_a_late_write_of_something_old_goes_before_newer_ones(store):
    newer = [envelope(n, at=n, body=b"x" * 8_500) for n in range(1, 11)]
    await store.write(newer)
    await store.write([envelope(0, at=0)])
    kept = await store.history("news.breaking", limit=100)
    assert kept == newer[1:]


async def test_what_is_dropped_is_no_longer_the_latest_of_its_key(store):
    await store.write([envelope(1, at=1, key="old"), envelope(2, at=2, key="other")])
    await store.write([envelope(n, at=n, body=b"x" * 8_500) for n in range(3, 14)])
    assert await store.latest("news.breaking", limit=10) == []


async def test_a_topic_that_was_dropped_whole_can_come_back(store):
    await store.write([envelope(1, at=1, topic="user.1", key="a")])
    await store.write([envelope(n, at=n, body=b"x" * 8_500) for n in range(2, 13)])
    assert await store.history("user.1", limit=10) == []
    again = envelope(20, at=20, topic="user.1", key="a")
    await store.write([again])
    assert await store.history("user.1", limit=10) == [again]
    assert await store.latest("user.1", limit=10) == [again]


async def test_an_envelope_larger_than_all_the_room_is_not_kept(store):
    await store.write([envelope(1, body=b"x" * MAX_BYTES)])
    assert store.bytes_kept == 0
    assert await store.history("news.breaking", limit=1) == []


async def test_it_doesnt_pretend_to_have_what_it_dropped(store):
    await store.write([envelope(n, at=n, body=b"x" * 8_500) for n in range(1, 13)])
    (first, *_) = kept = await store.history("news.breaking", limit=100)
    with pytest.raises(StoreError):
        await store.since("news.breaking", from_ms=ms_of_id(first.id) - 1, limit=100)
    assert await store.since("news.breaking", from_ms=ms_of_id(first.id), limit=100) == kept
