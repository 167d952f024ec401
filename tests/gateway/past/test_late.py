"""Late messages: whether their other copies are looked up, and whether one was given here."""

from __future__ import annotations

from typing import cast

import pytest
from envelopes import START_MS, envelope

from gateway.logs.logs import Logs
from gateway.past import late as late_module
from gateway.past.late import (
    LateCopies,
    clusters,
    given,
    is_ahead,
    is_late,
    span_of,
)
from gateway.process.settings import GatewaySettings
from newsfabric.errors import StoreError
from newsfabric.messages.envelope import Envelope, ms_of_id
from newsfabric.store import Store
from newsfabric.store.logs import DirectoryRow, Log

OREGON = Log("oregon", "oregon-router-1", START_MS)
DUBLIN = Log("dublin", "dublin-router-1", START_MS)
HOUR = 3_600_000


def known(*rows: DirectoryRow) -> Logs:
    """Return the logs of a gateway that began when the routers did, with this directory."""
    logs = Logs(START_MS)
    logs.begin(rows, now=0.0)
    return logs


def copy(number: int, log: Log, seq: int, **fields: object) -> Envelope:
    """Return the copy of message ``number`` in ``log``."""
    place = {"origin": log.region, "router": log.router, "epoch": log.epoch, "seq": seq}
    return envelope(number, **place, **fields)


@pytest.mark.parametrize(("age_ms", "late"), [(-5_000, False), (120_000, False), (120_001, True)])
def test_a_message_is_late_when_it_is_older_than_two_minutes(age_ms: int, late: bool) -> None:
    assert is_late(envelope(1, at=7_000), START_MS + 7_000 + age_ms) is late


@pytest.mark.parametrize(("ms", "ahead"), [(60_000, False), (60_001, True)])
def test_a_time_ahead_of_its_regions_report_by_more_than_clocks_differ_has_no_age_yet(
    ms: int, ahead: bool
) -> None:
    assert is_ahead(START_MS + ms, START_MS) is ahead


def test_copies_were_routed_fourteen_minutes_before_the_first_or_after_the_last_at_most() -> None:
    late = [START_MS + 60_000, START_MS, START_MS + 90_000]
    # 750 s, and 30 s for the error of each of two clocks.
    assert span_of(late, 0) == (START_MS - 810_000, START_MS + 90_000 + 810_000)


def test_and_by_as_much_more_as_clocks_have_been_apart() -> None:
    assert span_of([START_MS], HOUR) == (START_MS - 810_000 - HOUR, START_MS + 810_000 + HOUR)


def test_no_copy_was_routed_before_the_beginning_of_time() -> None:
    assert span_of([5_000], 0) == (0, 815_000)


def test_a_message_was_given_if_another_copy_was() -> None:
    logs = known()
    logs.mark_seen(OREGON, 3)
    late, other = copy(7, DUBLIN, 9), copy(7, OREGON, 3)
    assert given([late], [late, other], logs) == {late.identity}


def test_the_late_copy_itself_says_nothing() -> None:
    # For example if its number was noted meanwhile, or is past.
    logs = known(DirectoryRow(DUBLIN, low=9))
    late = copy(7, DUBLIN, 9)
    assert logs.was_given(DUBLIN, 9)
    assert given([late], [late], logs) == set()


def test_another_number_of_the_same_log_is_another_copy() -> None:
    logs = known()
    logs.mark_seen(DUBLIN, 4)
    late = copy(7, DUBLIN, 9)
    assert given([late], [copy(7, DUBLIN, 4), late], logs) == {late.identity}


def test_a_copy_that_was_past_when_this_gateway_began_counts() -> None:
    logs = known(DirectoryRow(OREGON, low=3))
    late = copy(7, DUBLIN, 9)
    assert given([late], [late, copy(7, OREGON, 3)], logs) == {late.identity}
    assert given([late], [late, copy(7, OREGON, 4)], logs) == set()


def test_a_copy_in_a_log_of_long_ago_that_isnt_known_counts_as_past() -> None:
    late = copy(7, DUBLIN, 9)
    old = Log("oregon", "oregon-router-1", START_MS - 6 * HOUR - 30_001)
    young = old._replace(epoch=START_MS - 6 * HOUR - 30_000)
    assert given([late], [copy(7, old, 3)], known()) == {late.identity}
    assert given([late], [copy(7, young, 3)], known()) == set()


def test_a_copy_that_wasnt_seen_or_is_void_was_given_to_nobody() -> None:
    logs = known()
    logs.mark_seen(OREGON, 1)
    logs.skip(OREGON, 2, 2)
    late = copy(7, DUBLIN, 9)
    assert logs.is_done(OREGON, 2)
    assert given([late], [copy(7, OREGON, 2), copy(7, OREGON, 3)], logs) == set()


def test_messages_are_distinguished() -> None:
    logs = known()
    logs.mark_seen(OREGON, 1)
    late = [copy(number, DUBLIN, number) for number in (7, 8)]
    # Number 1 of Oregon is a copy of message 8; message 6 isn't late.
    stored = [*late, copy(8, OREGON, 1), copy(6, OREGON, 1)]
    assert given(late, stored, logs) == {late[1].identity}


def test_of_two_copies_that_are_late_together_neither_was_given() -> None:
    late = [copy(7, DUBLIN, 9), copy(7, OREGON, 3)]
    assert given(late, late, known()) == set()


def test_messages_that_lie_hours_apart_are_looked_up_apart():
    hours = [envelope(n, at=at) for n, at in ((1, 0), (2, 1_620_000), (3, 3_240_001))]
    near = {0: [[1, 2], [3]], 1: [[1, 2, 3]]}
    for spread_ms, seqs in near.items():
        groups = clusters(reversed(hours), spread_ms)
        assert [[one.seq for one in group] for group in groups] == seqs
    assert list(clusters([], 0)) == []


class Asked:
    """A store that has ``copies``; a page has the newest of them."""

    def __init__(self, *copies: Envelope) -> None:
        self.copies = copies

    async def since(
        self, topic: str, *, from_ms: int, to_ms: int, limit: int, region: str
    ) -> list[Envelope]:
        found = (one for one in self.copies if from_ms <= ms_of_id(one.id) < to_ms)
        return [one for one in found if one.origin == region][-limit:]


def late_copies(logs: Logs, *copies: Envelope) -> LateCopies:
    settings = GatewaySettings(name="box", region="oregon")
    return LateCopies(cast("Store", Asked(*copies)), logs, settings, clock=lambda: 1_000.0)


@pytest.mark.promise("D1")
async def test_a_copy_of_a_region_whose_clocks_were_an_hour_ahead_is_found() -> None:
    logs, now = known(), 1_000.0
    for log, at in ((OREGON, 0), (DUBLIN, HOUR)):
        logs.note_report(log, 1, 0, sent_ms=START_MS + at, now=now)
    given_here, late = copy(7, OREGON, 1), copy(7, DUBLIN, 1, at=HOUR)
    logs.mark_seen(OREGON, 1)
    # Dublin's clocks are right again: the lead of its times shrinks.
    logs.note_report(DUBLIN, 2, 0, sent_ms=START_MS + HOUR + 500_000, now=now + 700)
    copies = late_copies(logs, given_here, late)
    spread_ms = logs.times.spread_ms(START_MS + 700_000, now + 700)
    assert await copies.already_given("news.breaking", [late], spread_ms) == {late.identity}
    assert await copies.already_given("news.breaking", [late], 0) == set()


async def test_of_what_clocks_put_far_away_a_bounded_number_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(late_module, "_PAGE", 2)
    logs = known()
    logs.mark_seen(OREGON, 7)
    before = [copy(n, OREGON, n, at=n * 1_000) for n in range(1, 15)]
    late = copy(7, DUBLIN, 1, at=HOUR)
    monkeypatch.setattr(late_module, "_FAR_PAGES", 14)
    assert await late_copies(logs, *before).already_given("news.breaking", [late], HOUR) == {
        late.identity
    }
    # The newest are read first. A repeat is better than a message that is never given.
    monkeypatch.setattr(late_module, "_FAR_PAGES", 3)
    assert await late_copies(logs, *before).already_given("news.breaking", [late], HOUR) == set()


async def test_where_there_are_too_many_copies_near_a_message_stays_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(late_module, "_PAGE", 2)
    monkeypatch.setattr(late_module, "_MOST_PAGES", 3)
    near = [copy(n, OREGON, n, at=n * 1_000) for n in range(1, 15)]
    with pytest.raises(StoreError, match="too many copies on news"):
        await late_copies(known(), *near).already_given("news.breaking", [copy(7, DUBLIN, 1)], 0)
