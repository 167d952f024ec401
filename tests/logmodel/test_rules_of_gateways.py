"""Worked examples, in numbers, of the model's own rules; all other rules are the project's.

A gateway's knowledge of logs, its positions and its forgotten numbers have tests of their own
(tests/gateway: test_known_log, test_logs, test_position, test_forgotten).
"""

from __future__ import annotations

from gateway.logs.logs import Logs, ReturningReader
from gateway.wire.position import Listed, log_hash
from logmodel.late import LateMessages
from logmodel.memory import TopicMemory
from logmodel.positions import ModelPosition
from logmodel.resuming import Resuming
from logmodel.settings import POSITION_REACH
from newsfabric.store.logs import DirectoryRow, Log

LOG = Log("A", "A1", 1_000_000)
ABROAD = Log("B", "B1", 1_000_000)


def known(seen: dict[Log, tuple[int, ...]], low: int = 0) -> Logs:
    logs = Logs(1_000_000)
    for log, numbers in seen.items():
        for number in numbers:
            logs.note_report(log, number, low, sent_ms=1_000_000, now=1000.0)
            logs.mark_seen(log, number)
    return logs


def position(**marks: int) -> ModelPosition:
    logs = {"here": LOG, "abroad": ABROAD}
    listed = {log_hash(logs[name]): Listed(mark, 1_005_000) for name, mark in marks.items()}
    return ModelPosition(1_010_000, listed)


def test_a_log_that_is_not_listed_is_unseen_if_it_is_young_and_seen_if_it_is_old() -> None:
    later = ModelPosition(20_000_000, {})
    reach_ms = int(POSITION_REACH * 1000)
    assert not later.covers(Log("A", "A1", 20_001_000 - reach_ms), 1)
    assert later.covers(Log("A", "A1", 20_000_000 - reach_ms), 1)


# Memory.


def test_memory_answers_until_it_forgets_something_that_the_position_lacks() -> None:
    memory = TopicMemory(dict)
    for n in range(1, 5):
        memory.add(100 + n, (LOG, n))
    assert memory.lacks(position(here=0).covers) == []
    memory.trim()
    assert list(memory.copies) == [102, 103, 104]
    assert memory.lacks(position(here=0).covers) == [LOG]
    assert memory.lacks(position(here=1).covers) == []


def test_nothing_is_forgotten_while_a_store_is_read() -> None:
    memory = TopicMemory(dict)
    memory.begin_read()
    for n in range(1, 6):
        memory.add(100 + n, (LOG, n))
    memory.trim()
    assert len(memory.copies) == 5
    memory.end_read()
    memory.trim()
    assert len(memory.copies) == 3


def test_a_dropped_copy_counts_as_forgotten() -> None:
    memory = TopicMemory(dict)
    memory.dropped((ABROAD, 5))
    assert memory.lacks(position(abroad=4).covers) == [ABROAD]
    assert memory.lacks(position(abroad=5).covers) == []


# Late messages.


def test_what_is_older_than_two_minutes_is_looked_up() -> None:
    late = LateMessages()
    assert not late.is_late(routed_at=1000.0, now=1120.0)
    assert late.is_late(routed_at=1000.0, now=1121.0)


def test_a_copy_is_known_if_another_one_was_given_and_was_not_void() -> None:
    logs = known({LOG: (1,)})
    logs.skip(LOG, 2, 2)
    late = LateMessages()
    assert late.was_given((ABROAD, 9), [(ABROAD, 9), (LOG, 1)], logs)
    assert not late.was_given((ABROAD, 9), [(ABROAD, 9), (LOG, 2)], logs)


# Resumes.


def test_what_memory_lacks_is_read_in_the_region_that_wrote_it() -> None:
    position = ModelPosition(
        1_010_000, {log_hash(LOG): Listed(2, 1_005_000), log_hash(ABROAD): Listed(2, 1_001_000)}
    )
    assert Resuming("A").reads([LOG, ABROAD], position) == {"A": 975.0, "B": 971.0}


def test_a_reader_is_given_what_its_position_does_not_cover() -> None:
    logs = known({LOG: (1, 2, 3)}, low=3)
    copies = {102: {(LOG, 2)}, 103: {(LOG, 3)}}
    assert Resuming("A").given(copies, ReturningReader(position(here=2), logs)) == [103]


def test_a_message_of_which_it_has_another_copy_is_not_given_again() -> None:
    logs = known({LOG: (1, 2, 3), ABROAD: (1,)}, low=3)
    copies = {102: {(LOG, 2), (ABROAD, 1)}}
    assert Resuming("A").given(copies, ReturningReader(position(here=2, abroad=0), logs)) == []


def test_a_covered_number_that_may_be_void_is_none_that_it_has() -> None:
    # Number 2 of LOG is covered, but was read and isn't settled: elsewhere it may count as void.
    logs = known({LOG: (1, 2), ABROAD: (1,)}, low=1)
    next(known for known in logs if known.log == LOG).note_may_end_void(2)
    copies = {102: {(LOG, 2), (ABROAD, 1)}}
    assert Resuming("A").given(copies, ReturningReader(position(here=2, abroad=0), logs)) == [102]


def test_of_what_a_topic_has_only_numbers_count_that_were_given_here() -> None:
    # 1 and 4 were seen; 2 is settled, and is sent live if it is a message; nothing is known of 3.
    logs = known({ABROAD: (1, 4)}, low=2)
    resuming = Resuming("A")
    numbers = (1, 2, 3, 4)
    assert [resuming.counts((ABROAD, n), logs) for n in numbers] == [True, False, False, True]
    # The log has ended: 3 is void, although both of its rows arrived later, and so is 5.
    row = DirectoryRow(ABROAD, version=9, low=2, ended=5, voids=((3, 3), (5, 5)))
    logs.learn(row, now=1000.0)
    assert [resuming.counts((ABROAD, n), logs) for n in (3, 5, 6)] == [False, False, False]
