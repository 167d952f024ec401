"""Worked examples, in numbers, of what a gateway does: logs, positions, memory, resumes."""

from __future__ import annotations

from gateway.known_log import KnownLog
from newsfabric.store.logs import DirectoryRow, Log
from tests.logmodel.late import LateMessages
from tests.logmodel.memory import TopicMemory
from tests.logmodel.positions import Position
from tests.logmodel.resuming import Resuming

LOG = Log("A", "A1", 1_000_000)
ABROAD = Log("B", "B1", 1_000_000)


def known(start: int = 0, seen: tuple[int, ...] = (), low: int = 0) -> KnownLog:
    log = KnownLog(LOG, start=start, now=1000.0)
    for number in seen:
        log.saw(number)
    log.low = low
    return log


def ended(at: int) -> DirectoryRow:
    return DirectoryRow(LOG, version=9, low=0, ended=at)


# Positions.


def test_a_position_covers_what_is_up_to_the_mark() -> None:
    position = Position.of({LOG: known(seen=(1, 2, 4))}, now=1010.0)
    assert [position.covers(LOG, n) for n in (1, 2, 3, 4)] == [True, True, False, False]


def test_a_log_that_is_not_listed_is_unseen_if_it_is_young_and_seen_if_it_is_old() -> None:
    position = Position(20_000.0, {})
    assert not position.covers(Log("A", "A1", 11_001_000), 1)
    assert position.covers(Log("A", "A1", 11_000_000), 1)


def test_only_an_old_log_that_ended_and_was_seen_whole_is_left_out() -> None:
    log = known(seen=(1,))
    assert LOG in Position.of({LOG: log}, now=99_999.0).listed
    log.learn(ended(2))
    assert LOG in Position.of({LOG: log}, now=99_999.0).listed
    log.saw(2)
    assert LOG not in Position.of({LOG: log}, now=99_999.0).listed
    assert LOG in Position.of({LOG: log}, now=1010.0).listed


def test_a_read_begins_half_a_minute_before_what_the_position_lacks() -> None:
    assert Position(1010.0, {LOG: (2, 1005.0)}).since(LOG) == 975.0
    assert Position(1010.0, {}).since(LOG) == 970.0


# Memory.


def test_memory_answers_until_it_forgets_something_that_the_position_lacks() -> None:
    memory = TopicMemory({})
    for n in range(1, 5):
        memory.add(100 + n, (LOG, n))
    position = Position(1010.0, {LOG: (0, 1000.0)})
    assert memory.lacks(position) == []
    memory.trim()
    assert list(memory.copies) == [102, 103, 104]
    assert memory.lacks(position) == [LOG]
    assert memory.lacks(Position(1010.0, {LOG: (1, 1001.0)})) == []


def test_nothing_is_forgotten_while_a_store_is_read() -> None:
    memory = TopicMemory({})
    memory.begin_read()
    for n in range(1, 6):
        memory.add(100 + n, (LOG, n))
    memory.trim()
    assert len(memory.copies) == 5
    memory.end_read()
    memory.trim()
    assert len(memory.copies) == 3


def test_a_dropped_copy_counts_as_forgotten() -> None:
    memory = TopicMemory({})
    memory.dropped((ABROAD, 5))
    assert memory.lacks(Position(1010.0, {ABROAD: (4, 1000.0)})) == [ABROAD]
    assert memory.lacks(Position(1010.0, {ABROAD: (5, 1000.0)})) == []


# Late messages.


def test_what_is_older_than_two_minutes_is_looked_up() -> None:
    late = LateMessages()
    assert not late.is_late(routed_at=1000.0, now=1120.0)
    assert late.is_late(routed_at=1000.0, now=1121.0)


def test_a_copy_is_known_if_another_one_was_given_and_was_not_void() -> None:
    logs = {LOG: known(seen=(1,))}
    logs[LOG].skip(2, 2)
    late = LateMessages()
    assert late.was_given((ABROAD, 9), [(ABROAD, 9), (LOG, 1)], logs)
    assert not late.was_given((ABROAD, 9), [(ABROAD, 9), (LOG, 2)], logs)


# Resumes.


def test_what_memory_lacks_is_read_in_the_region_that_wrote_it() -> None:
    position = Position(1010.0, {LOG: (2, 1005.0), ABROAD: (2, 1001.0)})
    assert Resuming("A").reads([LOG, ABROAD], position) == {"A": 975.0, "B": 971.0}


def test_a_reader_is_given_what_its_position_does_not_cover() -> None:
    logs = {LOG: known(seen=(1, 2, 3), low=3)}
    position = Position(1010.0, {LOG: (2, 1005.0)})
    copies = {102: {(LOG, 2)}, 103: {(LOG, 3)}}
    assert Resuming("A").given(copies, position, logs) == [103]


def test_a_message_of_which_it_has_another_copy_is_not_given_again() -> None:
    logs = {LOG: known(seen=(1, 2, 3), low=3), ABROAD: known(seen=(1,), low=1)}
    position = Position(1010.0, {LOG: (2, 1005.0), ABROAD: (0, 1000.0)})
    assert Resuming("A").given({102: {(LOG, 2), (ABROAD, 1)}}, position, logs) == []


def test_a_covered_number_that_may_be_void_is_none_that_it_has() -> None:
    # Number 2 of LOG is covered, but not settled: it may have been passed over as void.
    logs = {LOG: known(seen=(1, 2), low=1), ABROAD: known(seen=(1,), low=1)}
    position = Position(1010.0, {LOG: (2, 1005.0), ABROAD: (0, 1000.0)})
    assert Resuming("A").given({102: {(LOG, 2), (ABROAD, 1)}}, position, logs) == [102]


def test_of_what_a_topic_has_only_numbers_count_that_are_settled_or_were_seen() -> None:
    # 1 and 2 are settled, 4 was seen; of 3 nothing is known.
    logs = {ABROAD: known(seen=(1, 4), low=2)}
    resuming = Resuming("A")
    assert [resuming.counts((ABROAD, n), logs) for n in (1, 2, 3, 4)] == [True, True, False, True]
    # It has ended without 3, though both rows of 3 came later, and with 5, which is void.
    logs[ABROAD].learn(DirectoryRow(ABROAD, version=9, low=2, ended=5, voids=((3, 3), (5, 5))))
    assert [resuming.counts((ABROAD, n), logs) for n in (3, 5, 6)] == [False, False, False]
