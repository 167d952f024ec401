"""A read of the store is used for a minute, with other reads that fill its gaps."""

from __future__ import annotations

from typing import Any

from envelopes import START_MS, envelope

from gateway.memory.forgotten import ForgottenVector
from gateway.memory.memory import TopicMemory
from gateway.memory.store_reads import StoreRead, usable_reads
from gateway.wire.publication import Publication
from newsfabric.topics import TopicPolicy

NOW = START_MS / 1000
POLICY = TopicPolicy(pattern="news.*", keep=2)


def memory() -> TopicMemory:
    return TopicMemory(POLICY, 10, ForgottenVector(dict))


def message(number: int, **fields: Any) -> Publication:
    return Publication(envelope(number, **fields), POLICY, None)


def was_read(
    one_read: StoreRead, *messages: Publication, reach_ms: int = 0, now: float = NOW
) -> None:
    found = {one.envelope.identity: one for one in messages}
    one_read.was_read(found, reach_ms, now, damaged=False)


def read(
    memory: TopicMemory, region: str, *messages: Publication, reach_ms: int = 0, now: float = NOW
) -> StoreRead:
    """Return a read whose read brought everything from ``reach_ms`` on."""
    one_read = memory.begin_read(region, 0)
    was_read(one_read, *messages, reach_ms=reach_ms, now=now)
    return one_read


def regions(memory: TopicMemory, now: float = NOW) -> set[str]:
    return set(usable_reads(memory.store_reads, memory.lost, now))


def test_a_read_fits_for_a_minute_as_long_as_somebody_keeps_it() -> None:
    its = memory()
    assert regions(its) == set()
    one_read = read(its, "dublin")
    assert usable_reads(its.store_reads, 0, NOW + 59.9) == {"dublin": one_read}
    assert regions(its, NOW + 60.0) == set()
    del one_read
    assert regions(its) == set()


def test_a_read_fits_when_it_was_read() -> None:
    its = memory()
    one_read = its.begin_read("dublin", 0)
    assert regions(its) == set()
    was_read(one_read)
    assert regions(its) == {"dublin"}


def test_a_read_fits_until_memory_has_lost_what_came_since() -> None:
    its = memory()
    its.add(message(1))
    one_read = read(its, "dublin")
    for number in (2, 3):
        its.add(message(number))
    assert usable_reads(its.store_reads, its.lost, NOW) == {"dublin": one_read}
    its.add(message(4))
    assert regions(its) == set()


def test_a_copy_that_came_later_is_noted_where_its_message_was_read() -> None:
    its, one, other = memory(), message(1), message(1)
    kept = [read(its, "dublin", one)]
    # The read of this read is under way.
    kept.append(its.begin_read("oregon", 0))
    its.note_copy(envelope(1, origin="tokyo"))
    was_read(kept[1], other)
    assert regions(its) == {"dublin", "oregon"}
    for found in (one, other):
        assert [copy.log.region for copy in found.copies] == ["oregon", "tokyo"]


def test_a_read_that_lacks_a_message_fits_with_another_one_that_has_it() -> None:
    its = memory()
    dublin = read(its, "dublin", message(1), now=NOW - 30)
    others = [read(its, "tokyo"), read(its, "oregon"), its.begin_read("seoul", 0)]
    its.note_copy(envelope(1))
    # Oregon's store has got a copy since its earlier read. Seoul's has none.
    was_read(others[2])
    assert regions(its) == {"dublin", "tokyo", "oregon", "seoul"}
    assert regions(its, NOW + 30) == {"tokyo", "seoul"}
    dublin = read(its, "dublin")
    assert set(usable_reads(its.store_reads, its.lost, NOW)) == {"dublin", "tokyo", "seoul"}
    assert dublin in its.store_reads


def test_of_a_region_only_the_newest_read_counts_whoever_holds_another_one() -> None:
    its = memory()
    kept = [read(its, "dublin", reach_ms=START_MS + 5), read(its, "dublin", message(1))]
    assert usable_reads(kept, 0, NOW) == usable_reads(kept[::-1], 0, NOW) == {"dublin": kept[1]}
    # The older one lacks a message that the newer one has, and the newest one lacks another one.
    its.note_copy(envelope(1, origin="dublin", at=5))
    assert usable_reads(kept, 0, NOW) == usable_reads(kept[::-1], 0, NOW) == {"dublin": kept[1]}
    kept.append(read(its, "dublin"))
    its.note_copy(envelope(1, origin="dublin"))
    assert regions(its) == set()


def test_whoever_needs_a_read_that_needs_another_one_goes_with_it() -> None:
    its = memory()
    kept = [
        read(its, "dublin", message(1), now=NOW - 30),
        read(its, "oregon", message(2, origin="tokyo")),
        read(its, "tokyo"),
    ]
    its.note_copy(envelope(1))
    its.note_copy(envelope(2, origin="tokyo"))
    assert len(usable_reads(its.store_reads, its.lost, NOW)) == len(kept)
    assert regions(its, NOW + 30) == set()


def test_what_memory_has_and_what_is_older_than_a_read_needs_nothing() -> None:
    its = memory()
    one_read = its.begin_read("oregon", 0)
    was_read(one_read, reach_ms=START_MS + 2)
    its.note_copy(envelope(1, at=1))
    # It arrives after the read: memory has it, and will have its copies. Another read begins.
    its.add(message(2, at=2))
    another = its.begin_read("dublin", 0)
    its.note_copy(envelope(2, at=3, router="oregon-router-2"))
    assert usable_reads(its.store_reads, its.lost, NOW) == {"oregon": one_read}
    its.note_copy(envelope(3, at=2))
    assert regions(its) == set()
    was_read(another)
    assert regions(its) == {"dublin"}


def test_a_read_that_is_too_far_behind_is_unusable_and_harms_no_other() -> None:
    its = memory()
    every = [message(number) for number in range(1_025)]
    kept = [read(its, "dublin", *every), read(its, "oregon"), its.begin_read("tokyo", 0)]
    for one in every[:1_024]:
        its.note_copy(one.envelope)
    assert regions(its) == {"dublin", "oregon"}
    its.note_copy(every[1_024].envelope)
    was_read(kept[2])
    assert regions(its) == {"dublin"}
