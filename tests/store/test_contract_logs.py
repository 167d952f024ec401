"""The contract of every store for logs and their directory."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
from envelopes import START_MS, envelope
from stores import SHORTEST_MS, TTL_MS

from newsfabric.store import Store
from newsfabric.store.logs import DAY_MS, DirectoryRow, Log, Number, NumberState
from newsfabric.store.rules import MAX_SPAN

LOG = Log("oregon", "oregon-router-1", START_MS)
LISTED = DirectoryRow(LOG)
DAY = START_MS // DAY_MS


async def read(store: Store, first: int, last: int, log: Log = LOG) -> list[Number]:
    return await store.numbers(log, first=first, last=last, limit=MAX_SPAN)


# Numbers.


async def test_a_number_is_read_as_the_message_that_was_written_with_it(store):
    batch = [envelope(n, at=n, topic=f"news.{n % 3}") for n in (1, 2, 3, 7)]
    await store.write(batch)
    assert await read(store, 1, 10) == [Number(e.seq, NumberState.MESSAGE, e) for e in batch]


async def test_numbers_are_those_of_one_log(store):
    await store.write([envelope(1), envelope(2, epoch=START_MS + 1), envelope(3, router="other")])
    assert await read(store, 1, 10) == [Number(1, NumberState.MESSAGE, envelope(1))]


async def test_only_the_numbers_asked_for_are_read_and_the_first_of_them(store):
    batch = [envelope(n, at=n) for n in range(1, 10)]
    await store.write(batch)
    found = await store.numbers(LOG, first=3, last=8, limit=4)
    assert [number.seq for number in found] == [3, 4, 5, 6]
    assert await store.numbers(LOG, first=3, last=8, limit=0) == []


async def test_a_log_that_nobody_wrote_has_no_numbers(store):
    assert await read(store, 1, MAX_SPAN) == []


@pytest.mark.parametrize(("first", "last"), [(0, 1), (-1, 1), (1, MAX_SPAN + 1)])
async def test_other_numbers_and_too_many_of_them_are_a_value_error(store, first, last):
    with pytest.raises(ValueError, match="not numbers from 1 on"):
        await read(store, first, last)


async def test_numbers_up_to_the_largest_are_read_across_blocks(store):
    largest = 2**63 - 1
    batch = [envelope(n, seq=n) for n in (MAX_SPAN - 1, MAX_SPAN, MAX_SPAN + 1, largest)]
    await store.write(batch)
    found = await read(store, 2, MAX_SPAN + 1)
    assert [number.seq for number in found] == [MAX_SPAN - 1, MAX_SPAN, MAX_SPAN + 1]
    assert [n.seq for n in await read(store, largest - 5, largest)] == [largest]


async def test_more_numbers_than_one_page_has_are_read_whole(store):
    batch = [envelope(n, at=n, topic=f"news.{n % 2}") for n in range(1, 601)]
    await store.write(batch)
    assert await read(store, 1, 600) == [Number(e.seq, NumberState.MESSAGE, e) for e in batch]


async def test_at_home_the_same_numbers_are_read(store):
    await store.write([envelope(1)])
    home = await store.numbers(LOG, first=1, last=9, limit=9, at_home=True)
    assert home == [Number(1, NumberState.MESSAGE, envelope(1))]


async def test_void_numbers_are_void_and_can_be_declared_again(store):
    await store.void(LOG, [2, 4])
    await store.void(LOG, [4])
    await store.write([envelope(3)])
    assert await read(store, 1, 5) == [
        Number(2, NumberState.VOID),
        Number(3, NumberState.MESSAGE, envelope(3)),
        Number(4, NumberState.VOID),
    ]


async def test_a_void_number_takes_the_place_of_a_message_and_stays(store, clock):
    await store.write([envelope(1)])
    await store.void(LOG, [1])
    await store.write([envelope(1)])
    assert await read(store, 1, 1) == [Number(1, NumberState.VOID)]


async def test_a_message_whose_time_is_over_is_gone_and_its_number_still_there(store, clock):
    short = envelope(1, topic="markets.dax")
    await store.write([short, envelope(2)])
    clock.ms = START_MS + SHORTEST_MS - 1
    assert await read(store, 1, 2) == [
        Number(1, NumberState.MESSAGE, short),
        Number(2, NumberState.MESSAGE, envelope(2)),
    ]
    clock.ms += 1
    assert (await read(store, 1, 2))[0] == Number(1, NumberState.GONE)
    clock.ms = START_MS + TTL_MS
    assert await read(store, 1, 2) == [Number(1, NumberState.GONE), Number(2, NumberState.GONE)]


async def test_at_home_the_same_directory_is_read(store):
    await store.list_log(LOG)
    assert await store.log_days(at_home=True) == [("oregon", DAY)]
    assert await store.directory("oregon", DAY, at_home=True) == [LISTED]


# The directory.


async def test_an_empty_directory_has_no_days_and_no_logs(store):
    assert await store.log_days() == []
    assert await store.directory("oregon", DAY) == []


async def test_a_log_is_listed_once(store):
    assert await store.list_log(LOG) is True
    assert await store.list_log(LOG) is False
    assert await store.directory("oregon", DAY) == [LISTED]


async def test_logs_are_listed_by_region_and_by_the_day_on_which_they_began(store):
    logs = [
        LOG,
        LOG._replace(router="oregon-router-2"),
        LOG._replace(epoch=START_MS + DAY_MS),
        # A router whose clock is a year behind.
        LOG._replace(epoch=START_MS - 365 * DAY_MS),
    ]
    for log in logs:
        assert await store.list_log(log)
    assert await store.log_days() == [
        ("oregon", DAY - 365),
        ("oregon", DAY),
        ("oregon", DAY + 1),
    ]
    assert await store.directory("oregon", DAY) == [DirectoryRow(log) for log in logs[:2]]
    assert await store.directory("oregon", DAY - 365) == [DirectoryRow(logs[3])]
    assert await store.directory("virginia", DAY) == []


async def test_logs_that_are_known_to_have_ended_are_left_out(store):
    logs = [LOG, LOG._replace(router="oregon-router-2"), LOG._replace(epoch=START_MS + 1)]
    for log in logs:
        await store.list_log(log)
    found = await store.directory("oregon", DAY, but={logs[1], logs[2]})
    assert found == [DirectoryRow(LOG)]


async def test_a_row_is_replaced_by_one_of_a_higher_version_alone(store):
    await store.list_log(LOG)
    later = dataclasses.replace(LISTED, version=3, low=30)
    assert await store.change_log(later) is True
    assert await store.change_log(dataclasses.replace(LISTED, version=2, low=20)) is False
    assert await store.change_log(dataclasses.replace(LISTED, version=3, low=31)) is False
    assert await store.directory("oregon", DAY) == [later]


async def test_repeating_a_change_does_no_harm(store):
    await store.list_log(LOG)
    later = dataclasses.replace(LISTED, version=2, low=20)
    assert await store.change_log(later) is True
    assert await store.change_log(later) is True


async def test_a_log_that_isnt_listed_cant_be_changed(store):
    assert await store.change_log(dataclasses.replace(LISTED, version=2)) is False
    assert await store.directory("oregon", DAY) == []


async def test_a_log_ends_once_and_is_never_changed_again(store):
    await store.list_log(LOG)
    ended = dataclasses.replace(LISTED, version=2, low=9, ended=11, voids=((10, 10),))
    assert await store.change_log(ended) is True
    assert await store.change_log(ended) is True
    assert await store.change_log(dataclasses.replace(LISTED, version=3, low=12)) is False
    assert await store.change_log(dataclasses.replace(ended, version=3, ended=12)) is False
    assert await store.directory("oregon", DAY) == [ended]


async def test_of_two_who_close_a_log_at_once_one_is_refused(store):
    await store.list_log(LOG)
    endings = [dataclasses.replace(LISTED, version=2, ended=n) for n in (5, 6)]
    answers = await asyncio.gather(*(store.change_log(row) for row in endings))
    assert sorted(answers) == [False, True]
    assert await store.directory("oregon", DAY) == [endings[answers.index(True)]]


async def test_of_two_routers_that_begin_as_one_log_one_is_refused(store):
    answers = await asyncio.gather(*(store.list_log(LOG) for _ in range(4)))
    assert sorted(answers) == [False, False, False, True]


async def test_a_directory_of_a_thousand_logs_is_read_whole(store):
    logs = [LOG._replace(epoch=START_MS + n) for n in range(1_050)]
    for start in range(0, len(logs), 50):
        await asyncio.gather(*(store.list_log(log) for log in logs[start : start + 50]))
    assert [row.log for row in await store.directory("oregon", DAY)] == logs
