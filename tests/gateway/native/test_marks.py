"""A control plane that comes after another one."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from pathlib import Path

import pytest
from envelopes import envelope
from hypothesis import given
from hypothesis import strategies as st

from gateway.native.core import NativeCore
from gateway.native.repair import Mark, Marks, catch_up, decode_marks, encode_marks, resume
from gateway.publication import Publication
from gateway.settings import GatewaySettings
from gateway.streams import Streams
from newsfabric.envelope import Envelope, id_of
from newsfabric.store.memory import MemoryStore
from newsfabric.topics import TopicPolicy, TopicTable

TABLE = TopicTable([TopicPolicy(pattern="news.*")])
NOW_MS = int(time.time() * 1000)


def streams(*seqs: int) -> Streams:
    known = Streams(0.0)
    for seq in seqs:
        known.saw("oregon-router-1", 7, seq, routed_ms=NOW_MS, now=NOW_MS / 1000)
    return known


def test_marks_are_read_as_they_were_written() -> None:
    blob = encode_marks(streams(1, 2, 5), NOW_MS)
    assert decode_marks(blob) == Marks(NOW_MS, (Mark("oregon-router-1", 7, 2, NOW_MS),))


def test_a_stream_goes_on_where_it_was() -> None:
    later = Streams(0.0)
    resume(later, decode_marks(encode_marks(streams(1, 2, 5), NOW_MS)))
    assert later.mark("oregon-router-1", 7) == 2
    assert not later.seen("oregon-router-1", 7, 3)
    later.saw("oregon-router-1", 7, 4, routed_ms=NOW_MS, now=NOW_MS / 1000)
    assert later.missing() == {("oregon-router-1", 7): [(3, 3)]}


@pytest.mark.parametrize(
    "blob",
    [
        b"", b"{", b"7", b"[]", b"[1]", b"[2,0,[]]", b"[1,-1,[]]", b"[1,0,7]", b"[1,0,[7]]",
        b'[1,0,[["r",1,2]]]', b'[1,0,[["r",1,2,-3]]]', b'[1,0,[["r",true,2,3]]]',
        b'[1,0,[[1,1,2,3]]]', b'[1,0,[["r","1",2,3]]]', b"\xff", b'[1,0,{"a":1}]',
    ],
)  # fmt: skip
def test_what_isnt_marks_is_refused(blob: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - any one is a refusal
        decode_marks(blob)


@given(st.binary(max_size=100))
def test_any_bytes_are_marks_or_refused(blob: bytes) -> None:
    try:
        marks = decode_marks(blob)
    except ValueError:
        return
    assert marks.at_ms >= 0


@dataclasses.dataclass
class After:
    """A fresh control plane that has taken ``marks`` over, and what it publishes."""

    core: NativeCore
    published: list[int]

    @classmethod
    def of(cls, marks: Marks, store: MemoryStore) -> After:
        told = GatewaySettings(name="b", region="r")
        core = NativeCore(told, TABLE, store, Path("/nowhere"), asyncio.Event())
        after = cls(core, [])

        def publish(publication: Publication, done: object = None) -> None:
            after.published.append(publication.envelope.seq)

        core.publish = publish  # type: ignore[method-assign]
        resume(core.hub.streams, marks)
        return after


def routed(seq: int, *, ago_ms: int = 0, router: str = "oregon-router-1") -> Envelope:
    made = envelope(seq, router=router, epoch=7)
    return dataclasses.replace(made, id=id_of(NOW_MS - ago_ms, made.identity))


MARKS = Marks(NOW_MS - 5_000, (Mark("oregon-router-1", 7, 3, NOW_MS - 5_000),))


async def test_what_lies_beyond_the_marks_is_published_in_order() -> None:
    store = MemoryStore(TABLE)
    await store.write([routed(seq, ago_ms=6_000 - 1_000 * seq) for seq in range(1, 7)])
    after = After.of(MARKS, store)
    assert await catch_up(after.core, MARKS) == 3
    assert after.published == [4, 5, 6]
    await after.core.close()


async def test_of_a_router_that_started_meanwhile_only_the_news_is_published() -> None:
    store = MemoryStore(TABLE)
    await store.write(
        [routed(1, router="new", ago_ms=20_000), routed(2, router="new", ago_ms=1_000)]
    )
    after = After.of(MARKS, store)
    assert await catch_up(after.core, MARKS) == 1
    assert after.published == [2]
    await after.core.close()


@pytest.mark.parametrize("spread_ms", [0, 1])
async def test_a_long_journal_is_read_to_its_end(spread_ms: int) -> None:
    store = MemoryStore(TABLE)
    await store.write([routed(seq, ago_ms=3_000 - spread_ms * seq) for seq in range(4, 1_304)])
    after = After.of(MARKS, store)
    assert await catch_up(after.core, MARKS) == 1_300
    assert sorted(after.published) == list(range(4, 1_304))
    await after.core.close()
