"""The reach of a read of the store that brings less than there is."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest
from envelopes import START_MS, envelope

from gateway.past.archive import Archive
from gateway.process.settings import GatewaySettings
from newsfabric.errors import StoreError, StoreUnavailable
from newsfabric.messages.envelope import Envelope, id_of
from newsfabric.store.memory import MemoryStore
from newsfabric.store.sound import Sound
from newsfabric.topics import TopicPolicy, TopicTable

TABLE = TopicTable([TopicPolicy(pattern="news.*", keep=3)])


async def read(*stored: Envelope, **bounds: Any) -> Sound:
    store = MemoryStore(TABLE, now_ms=lambda: START_MS + 60_000)
    await store.write(list(stored))
    archive = Archive(store, GatewaySettings(name="box", region="oregon", **bounds))
    return await archive.since("news.a", from_ms=START_MS, region="oregon")


def message(number: int, body: bytes = b'"x"') -> Envelope:
    """Return message ``number``, routed ``number`` ms after the start."""
    return envelope(number, at=number, topic="news.a", body=body)


def seqs(found: Sound) -> list[int]:
    return [one.seq for one in found.envelopes]


async def test_a_read_that_brings_all_reaches_as_far_as_was_asked() -> None:
    found = await read(message(1), message(2))
    assert (seqs(found), found.reach_ms, found.missing) == ([1, 2], START_MS, ())


@pytest.mark.parametrize("bounds", [{"resume_rows": 2}, {"resume_bytes": 6}])
async def test_a_read_that_is_cut_doesnt_reach_the_oldest_ones_millisecond(
    bounds: dict[str, int],
) -> None:
    found = await read(*map(message, range(1, 6)), **bounds)
    assert (seqs(found), found.reach_ms) == ([4, 5], START_MS + 5)


async def test_a_read_of_which_nothing_fits_reaches_nothing_that_there_is() -> None:
    found = await read(message(1), message(2, b'"xxxxxxxxx"'), resume_bytes=6)
    assert (seqs(found), found.reach_ms) == ([], START_MS + 3)


async def test_what_is_no_json_is_left_out_and_reported() -> None:
    broken = message(2, b'{"cut off')
    found = await read(message(1), broken, message(3))
    assert (seqs(found), found.reach_ms, found.missing) == ([1, 3], START_MS, (broken.id,))


async def test_copies_of_messages_that_are_hours_apart_are_found_whatever_came_between() -> None:
    first, last = (message(number) for number in (3_600_000, 36_000_000))
    again = dataclasses.replace(first, router="oregon-router-2")
    between = [message(18_000_000 + n) for n in range(5)]
    store = MemoryStore(TABLE, now_ms=lambda: START_MS + 40_000_000)
    await store.write([first, again, *between, last])
    archive = Archive(store, GatewaySettings(name="box", region="oregon", resume_rows=3))
    found = await archive.copies("news.a", [first, last], spread_ms=0)
    assert found == [first, again, last]


async def test_copies_are_further_apart_where_clocks_were_wrong() -> None:
    late = message(3_600_000)
    early = dataclasses.replace(late, id=id_of(START_MS, late.identity), router="oregon-router-2")
    store = MemoryStore(TABLE, now_ms=lambda: START_MS + 40_000_000)
    await store.write([early, late])
    archive = Archive(store, GatewaySettings(name="box", region="oregon"))
    for spread_ms, expected in ((2_000_000, [late]), (3_000_000, [early, late])):
        assert await archive.copies("news.a", [late], spread_ms=spread_ms) == expected


class _Slow(MemoryStore):
    """A store that answers when it may."""

    def __init__(self) -> None:
        super().__init__(TABLE)
        self.asked, self.may = asyncio.Event(), asyncio.Event()

    async def latest(self, topic: str, *, limit: int) -> list[Envelope]:
        self.asked.set()
        await self.may.wait()
        return await super().latest(topic, limit=limit)


async def test_a_read_too_many_fails_and_the_store_is_read_on() -> None:
    store = _Slow()
    archive = Archive(store, GatewaySettings(name="box", region="oregon", store_waiting=1))
    first = asyncio.create_task(archive.latest("news.a"))
    await store.asked.wait()
    with pytest.raises(StoreError, match="1 reads of the store wait") as caught:
        await archive.latest("news.a")
    archive.failed(caught.value)
    store.may.set()
    assert await first == []
    assert await archive.latest("news.a") == []


async def test_after_a_read_of_a_store_that_is_away_none_is_made_for_a_second() -> None:
    archive = Archive(MemoryStore(TABLE), GatewaySettings(name="box", region="oregon"))
    archive.failed(StoreUnavailable("away"))
    with pytest.raises(StoreUnavailable, match="left alone"):
        await archive.latest("news.a")
