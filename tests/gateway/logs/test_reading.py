"""The schedule of reads by number: which numbers, when, and where."""

from __future__ import annotations

import random

import pytest

from gateway.logs.logs import Logs
from gateway.logs.reading import Read, ReadSchedule
from newsfabric.store.logs import DirectoryRow, Log

MS = 1_700_000_000_000
OURS, FAR = Log("oregon", "oregon-router-1", MS), Log("dublin", "dublin-router-1", MS)


class Longest(random.Random):
    """A random generator whose every wait is as long as possible."""

    def uniform(self, a: float, b: float) -> float:
        return b


class ReadingGateway:
    """The logs and reads of a gateway of oregon; ``now`` is moved by the test."""

    def __init__(self) -> None:
        self.now = 100.0
        self.logs = Logs(MS)
        self.reading = ReadSchedule(self.logs, "oregon", rng=Longest())

    def hear(self, seq: int, low: int = 0, log: Log = OURS) -> None:
        """Receive a message."""
        self.logs.note_report(log, seq, low, sent_ms=MS, now=self.now)
        self.logs.mark_seen(log, seq)

    def tick(self, seq: int, low: int, log: Log = OURS) -> None:
        self.logs.note_report(log, seq, low, sent_ms=MS, now=self.now)

    def due(self) -> list[Read]:
        return self.reading.next_reads(self.now, at_most=10)

    def after(self, seconds: float, *, heard: bool = True) -> list[tuple[object, ...]]:
        """Return the reads due after ``seconds``: (log, spans, at home, tail)."""
        self.now = round(self.now + seconds, 3)
        if heard:
            for known in self.logs:
                known.last_report_at = self.now
        return [(read.log, read.spans, read.in_own_region, read.tail) for read in self.reads()]

    def reads(self) -> list[Read]:
        self.under_way = self.due()
        return self.under_way

    def done(self, found: int = 0, *, upto: int | None = None) -> None:
        for read in self.under_way:
            last = read.spans[-1][1] if upto is None else upto
            self.reading.done(read, upto=last, found=found, now=self.now)

    def failed(self) -> None:
        for read in self.under_way:
            self.reading.failed(read, self.now)


@pytest.fixture
def box() -> ReadingGateway:
    return ReadingGateway()


def test_a_missing_number_may_be_on_its_way_for_two_tenths_of_a_second(box: ReadingGateway) -> None:
    box.hear(1)
    box.hear(3, low=2)
    assert box.after(0.0) == []
    assert box.after(0.19) == []
    assert box.after(0.01) == [(OURS, ((2, 2),), False, False)]


def test_each_of_several_that_go_missing_is_read_in_its_time(box: ReadingGateway) -> None:
    for at in range(4):
        # Numbers 1, 3, 5 and 7 are lost, a tenth of a second apart.
        box.hear(2 * at + 2, low=2 * at + 1)
        found = box.after(0.0 if at == 0 else 0.1)
        box.done()
        assert [spans for _, spans, _, _ in found] == [[], [], [((1, 1),)], [((3, 3),)]][at]


def test_what_comes_meanwhile_is_not_read(box: ReadingGateway) -> None:
    box.hear(3, low=2)
    assert box.after(0.0) == []
    box.hear(2)
    assert box.after(0.3) == [(OURS, ((1, 1),), False, False)]


def test_what_is_not_found_is_read_again_every_other_time_where_it_was_written(
    box: ReadingGateway,
) -> None:
    box.hear(2, low=1, log=FAR)
    assert box.after(0.0) == []
    assert box.after(0.3) == [(FAR, ((1, 1),), False, False)]
    waits = []
    places = []
    for _ in range(8):
        box.done()
        before = box.now
        while not (due := box.after(0.1)):
            pass
        waits.append(round(box.now - before, 1))
        places.append(due[0][2])
    assert places == [True, False] * 4
    assert waits == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 15.0]


def test_a_new_hole_does_not_wait_for_an_old_one(box: ReadingGateway) -> None:
    box.hear(2, low=1)
    box.after(0.0)
    box.after(0.3)
    for _ in range(6):
        box.done()
        while not box.after(0.1):
            pass
    box.done()
    # Number 1 is read again in 12.8 s.
    box.hear(4, low=3)
    assert box.after(0.0) == []
    assert box.after(0.3) == [(OURS, ((3, 3),), False, False)]
    box.done()
    assert box.after(0.2) == [(OURS, ((1, 3),), True, False)]


def test_an_old_hole_does_not_wait_for_new_ones(box: ReadingGateway) -> None:
    for at in range(10):
        # Every other number is lost, ten a second; number 1 isn't found in our region.
        box.hear(2 * at + 2, low=2 * at + 1, log=FAR)
        due = box.after(0.0 if at == 0 else 0.1)
        box.done(found=1)
        if any(at_home and spans[0][0] == 1 for _, spans, at_home, _ in due):
            break
    # Known to be missing in turn 0, read here in turn 2, 0.2 s later at home.
    assert at == 4


def test_of_one_log_one_read_is_under_way(box: ReadingGateway) -> None:
    box.hear(2, low=1)
    box.after(0.0)
    assert len(box.after(0.3)) == 1
    assert box.after(5.0) == []


def test_the_tail_of_a_log_that_fell_silent_is_read_at_home_alone(box: ReadingGateway) -> None:
    box.hear(1, log=FAR)
    box.hear(3, log=FAR)
    assert box.after(2.0, heard=False) == []
    assert box.after(0.1, heard=False) == [(FAR, ((2, 2), (4, 4_099), (4_100, 4_100)), True, True)]
    box.done()
    assert box.after(0.9, heard=False) == []
    assert box.after(0.1, heard=False)[0][3] is True


def test_the_tail_of_a_log_that_is_heard_again_is_not_read(box: ReadingGateway) -> None:
    box.hear(1)
    box.after(2.1, heard=False)
    box.done()
    box.tick(1, low=1)
    assert box.after(1.5) == []


def test_a_whole_log_is_not_read(box: ReadingGateway) -> None:
    box.hear(1)
    box.logs.learn(DirectoryRow(OURS, 2, low=1, ended=1), now=box.now)
    assert box.after(100.0, heard=False) == []


def test_what_the_directory_says_to_exist_is_read(box: ReadingGateway) -> None:
    box.logs.learn(DirectoryRow(OURS, 2, low=0, ended=3, voids=((2, 2),)), now=box.now)
    assert box.after(0.0) == []
    assert box.after(0.3) == [(OURS, ((1, 3),), False, False)]


def test_a_region_that_cannot_be_asked_is_left_alone_and_ours_is_asked_instead(
    box: ReadingGateway,
) -> None:
    box.hear(2, low=1, log=FAR)
    box.after(0.0)
    box.after(0.3)
    box.done()
    assert box.after(0.2) == [(FAR, ((1, 1),), True, False)]
    box.failed()
    # At once here; at home again in half a second.
    assert box.after(0.0) == [(FAR, ((1, 1),), False, False)]
    box.done()
    assert box.after(0.4) == [(FAR, ((1, 1),), False, False)]
    box.done()
    assert box.after(0.8) == [(FAR, ((1, 1),), False, False)]
    box.done()
    assert box.after(1.6) == [(FAR, ((1, 1),), True, False)]


def test_our_own_region_is_left_alone_when_it_cannot_be_asked(box: ReadingGateway) -> None:
    box.hear(2, low=1)
    box.after(0.0)
    box.after(0.3)
    box.failed()
    assert box.after(0.4) == []
    assert box.after(0.1) == [(OURS, ((1, 1),), True, False)]


def test_a_log_that_was_not_read_to_its_end_goes_on_at_once(box: ReadingGateway) -> None:
    box.tick(9_000, low=9_000)
    box.after(0.0)
    assert box.after(0.3) == [(OURS, ((1, 4_096), (4_097, 8_192), (8_193, 9_000)), False, False)]
    for number in range(1, 2_001):
        box.logs.mark_seen(OURS, number)
    box.done(found=2_000, upto=2_000)
    assert box.after(0.0) == [(OURS, ((2_001, 6_096), (6_097, 9_000)), True, False)]


def test_numbers_beyond_all_bounds_are_read_a_few_spans_at_a_time(box: ReadingGateway) -> None:
    box.tick(2**63 - 1, low=2**63 - 1)
    box.after(0.0)
    ((_, spans, *_),) = box.after(0.3)
    assert spans == ((1, 4_096), (4_097, 8_192), (8_193, 12_288), (12_289, 16_384))


def test_runs_that_are_near_to_each_other_are_read_as_one(box: ReadingGateway) -> None:
    for seq in (2, 4, 6, 40):
        box.hear(seq)
    box.tick(40, low=40)
    box.after(0.0)
    assert box.after(0.3) == [(OURS, ((1, 39),), False, False)]


def test_while_anything_is_missing_it_looks_twenty_times_a_second(box: ReadingGateway) -> None:
    box.hear(1)
    assert box.reading.pause_seconds() == 0.5
    box.hear(3, low=2)
    assert box.reading.pause_seconds() == 0.05


def test_what_is_not_found_hides_nothing_that_lies_behind_it(box: ReadingGateway) -> None:
    missing = range(50, 501, 50)
    for seq in range(1, 501):
        if seq not in missing:
            box.hear(seq)
    box.tick(500, low=500)
    box.after(0.0)
    asked = []
    due = box.after(0.3)
    for _ in range(4):
        asked += [first for first, _ in due[0][1]]
        box.done()
        while not (due := box.after(0.1)):
            pass
    # The first four at once; then all of them, a few at a time.
    assert asked == [50, 100, 150, 200, *missing, 50, 100][: len(asked)]
    assert set(missing) <= set(asked)


def test_logs_that_lag_by_hours_keep_no_other_waiting(box: ReadingGateway) -> None:
    logs = [Log("oregon", f"oregon-router-{n}", MS + n) for n in range(5)]
    for log in logs:
        box.tick(100_000, low=100_000, log=log)
    box.reading.next_reads(box.now, at_most=4)
    box.now += 0.3
    turns = []
    for _ in range(5):
        reads = box.reading.next_reads(box.now, at_most=2)
        turns += [logs.index(read.log) for read in reads]
        for read in reads:
            box.reading.done(read, upto=read.spans[0][1], found=10, now=box.now)
    assert turns == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]
