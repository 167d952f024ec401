"""The messages that a memory lacks: known log by log, and never reported as fewer than they are."""

from __future__ import annotations

from collections.abc import Mapping

from envelopes import START_MS
from hypothesis import given
from hypothesis import strategies as st

from gateway.memory.forgotten import ForgottenVector
from gateway.wire.position import Listed, Position, log_hash
from newsfabric.store.logs import Log

NOW = START_MS + 60_000
OREGON = Log("oregon", "oregon-router-1", START_MS)
DUBLIN = Log("dublin", "dublin-router-1", START_MS)
# A log that began more than six hours before.
OLD = Log("oregon", "oregon-router-0", START_MS - 24 * 3_600_000)


def at(marks: Mapping[Log, int], *, time_ms: int = NOW) -> Position:
    """Return the position of a reader that has all numbers up to these marks."""
    return Position(
        time_ms, {log_hash(log): Listed(mark, log.epoch) for log, mark in marks.items()}
    )


def many(count: int) -> list[Log]:
    return [Log("oregon", f"oregon-router-{n}", START_MS + n) for n in range(count)]


def test_a_memory_that_was_there_from_the_start_lacks_nothing() -> None:
    assert ForgottenVector().incomplete_logs(at({}).covers) == []


def test_what_was_seen_before_the_memory_was_made_is_lacked_until_a_position_covers_it() -> None:
    forgotten = ForgottenVector(lambda: {OREGON: 7, DUBLIN: 2})
    assert forgotten.incomplete_logs(at({}).covers) == [OREGON, DUBLIN]
    assert forgotten.incomplete_logs(at({OREGON: 6, DUBLIN: 2}).covers) == [OREGON]
    assert forgotten.incomplete_logs(at({OREGON: 7, DUBLIN: 2}).covers) == []


def test_a_log_that_began_six_hours_before_the_position_isnt_lacked() -> None:
    forgotten = ForgottenVector(lambda: {OLD: 5, OREGON: 1})
    assert forgotten.incomplete_logs(at({}).covers) == [OREGON]
    assert forgotten.incomplete_logs(at({}, time_ms=OLD.epoch + 60_000).covers) == [OLD, OREGON]


def test_what_is_trimmed_is_lacked_by_its_log_alone() -> None:
    forgotten = ForgottenVector()
    forgotten.add(OREGON, 4)
    forgotten.add(OREGON, 9)
    forgotten.add(OREGON, 5)
    assert forgotten.incomplete_logs(at({OREGON: 8, DUBLIN: 0}).covers) == [OREGON]
    assert forgotten.incomplete_logs(at({OREGON: 9, DUBLIN: 0}).covers) == []


def test_what_is_trimmed_from_below_what_was_lacked_changes_nothing() -> None:
    forgotten = ForgottenVector(lambda: {OREGON: 7})
    forgotten.add(OREGON, 5)
    assert forgotten.incomplete_logs(at({OREGON: 6}).covers) == [OREGON]
    assert forgotten.incomplete_logs(at({OREGON: 7}).covers) == []


def test_what_is_seen_later_isnt_lacked() -> None:
    tops = {OREGON: 7}
    forgotten = ForgottenVector(lambda: dict(tops))
    tops[OREGON] = 20
    assert forgotten.incomplete_logs(at({OREGON: 7}).covers) == []


def test_of_more_than_64_logs_all_that_was_seen_by_then_counts_as_forgotten() -> None:
    logs = many(65)
    tops = dict.fromkeys(logs, 3) | {DUBLIN: 8}
    seen: dict[Log, int] = {}
    forgotten = ForgottenVector(lambda: dict(seen))
    seen |= tops
    for log in logs[:64]:
        forgotten.add(log, 1)
    assert forgotten.incomplete_logs(at({}).covers) == logs[:64]
    assert forgotten.incomplete_logs(at(dict.fromkeys(logs, 1)).covers) == []
    forgotten.add(logs[64], 1)
    assert forgotten.incomplete_logs(at(dict.fromkeys(logs, 1)).covers) == [*logs, DUBLIN]
    assert forgotten.incomplete_logs(at(tops).covers) == []
    # From there on as before.
    forgotten.add(OREGON, 2)
    forgotten.add(logs[0], 4)
    assert forgotten.incomplete_logs(at(tops).covers) == [logs[0], OREGON]


SOME = many(70)
PLACES = st.lists(st.tuples(st.sampled_from(SOME), st.integers(1, 9)), max_size=40)
# More logs than there is room for.
ALL = st.permutations([(log, n % 9 + 1) for n, log in enumerate(SOME)])
MARKS = st.dictionaries(st.sampled_from(SOME), st.integers(0, 9))


@given(before=PLACES, since=PLACES | ALL, more=PLACES, has=MARKS)
def test_it_never_says_that_less_was_forgotten_than_was(
    before: list[tuple[Log, int]],
    since: list[tuple[Log, int]],
    more: list[tuple[Log, int]],
    has: dict[Log, int],
) -> None:
    """``before`` was seen first; ``since`` is remembered, and trimmed later; each of ``more`` is
    another message, which is still remembered."""
    seen: dict[Log, int] = {}

    def see(log: Log, seq: int) -> None:
        seen[log] = max(seen.get(log, 0), seq)

    for log, seq in before:
        see(log, seq)
    forgotten = ForgottenVector(lambda: dict(seen))
    for log, seq in (*since, *more):
        see(log, seq)
    for log, seq in since:
        forgotten.add(log, seq)
    position = at(has)
    lacked = {log for log, seq in (*before, *since) if not position.covers(log, seq)}
    found = forgotten.incomplete_logs(position.covers)
    assert lacked <= set(found)
    assert len(found) == len(set(found))
    if len({log for log, _ in since}) <= 64:
        # While there is room to be exact, it reports no more either.
        assert set(found) == lacked
