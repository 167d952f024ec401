"""Histories in which gateways lost a message silently when they still went by times, not by logs.

Each was found at random and stands for others of its kind; here it is played on a whole gateway
(tests/support/log_fabric.py). Dublin is cut off from gateways of Oregon and from their store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

import pytest
from log_fabric import AWAY, BEGAN, HOME, TOPIC, LogFabric, StayingReader, Written
from quick_time import run

from gateway.core.core import Core

LOST: tuple[float, ...] = ()
AT_ONCE = (0.0,)


def played(history: Callable[[LogFabric], Coroutine[None, None, None]]) -> None:
    async def whole() -> None:
        fabric = LogFabric()
        await history(fabric)
        await fabric.end()

    run(whole(), began=BEGAN)


async def routes(fabric: LogFabric, one: Written, count: int, way: tuple[float, ...]) -> None:
    for _ in range(count):
        fabric.route(one, "routed", way, next(fabric.messages))
        await asyncio.sleep(0.01)


def core_of(fabric: LogFabric) -> Core:
    assert fabric.core is not None
    return fabric.core


def given(fabric: LogFabric) -> int:
    """Return the number of messages that the connected reader was given, each only once."""
    assert fabric.reader.twice == []
    return len(fabric.reader.got)


async def begins(fabric: LogFabric) -> None:
    """Begin a gateway, and connect a reader to it."""
    await fabric.end()
    fabric.reader = StayingReader()
    fabric.stores.replicate()
    await fabric.begin()


async def cut(fabric: LogFabric) -> None:
    fabric.stores.replicate()
    fabric.stores.is_cut = True


async def healed(fabric: LogFabric) -> None:
    """Heal the cut: Dublin's rows arrive, and the directory is read again."""
    fabric.stores.is_cut = False
    fabric.stores.replicate()
    await asyncio.sleep(20.0)


async def resumed(fabric: LogFabric, position: str) -> tuple[set[str | None], bool]:
    """Resume with ``position``; return the messages given, and the reply's ``recovered``."""
    replay = await core_of(fabric).resumes.missed(TOPIC, position)
    return {one.envelope.message_id for one in replay.publications}, replay.gap is None


def position(fabric: LogFabric) -> str:
    core = core_of(fabric)
    return core.hub.position(BEGAN + asyncio.get_running_loop().time())


def test_what_a_router_routed_that_began_just_before_us_is_looked_for() -> None:
    """Seeds 903, 2034, 2370, 3141 and 3811 of repair: nothing of it was stored when we began."""

    async def history(fabric: LogFabric) -> None:
        young = fabric.starts_log(HOME)
        await asyncio.sleep(10.0)
        await begins(fabric)
        await routes(fabric, young, 2, LOST)
        await routes(fabric, young, 1, AT_ONCE)
        await asyncio.sleep(2.0)
        assert given(fabric) == 3

    played(history)


def test_what_was_missing_is_looked_for_by_the_next_control_plane_too() -> None:
    """Seed 87539 of repair: the earlier control plane died while it searched."""

    async def history(fabric: LogFabric) -> None:
        stranger = fabric.starts_log(AWAY)
        await asyncio.sleep(10.0)
        await begins(fabric)
        # The first number that is heard is 3, and the log's store can't be asked.
        await routes(fabric, stranger, 2, LOST)
        await routes(fabric, stranger, 1, AT_ONCE)
        fabric.stores.is_cut = True
        await asyncio.sleep(2.0)
        await fabric.leave()
        await fabric.restart()
        await asyncio.sleep(2.0)
        assert given(fabric) == 1
        await healed(fabric)
        assert given(fabric) == 3

    played(history)


def test_a_position_made_within_a_cut_stands_for_no_log_that_wasnt_listed() -> None:
    """Seeds 2468, 3794, 7229, 9329, 13109 and 19242 of resume: its time covered that log."""

    async def history(fabric: LogFabric) -> None:
        fabric.stores.is_cut = True
        unheard = fabric.starts_log(AWAY)
        await asyncio.sleep(10.0)
        await routes(fabric, unheard, 2, LOST)
        fabric.lists(unheard)
        await begins(fabric)
        await asyncio.sleep(3_000.0)
        token = position(fabric)
        fabric.stores.is_cut = False
        # For this gateway both are past.
        await begins(fabric)
        assert core_of(fabric).hub.logs.was_given(unheard.log, 2)
        assert await resumed(fabric, token) == ({"m-1", "m-2"}, True)

    played(history)


def test_the_past_of_a_log_that_was_cut_off_when_we_began_is_given_to_who_was_connected() -> None:
    """Seeds 11702 and 17814 of resume: the log counted as seen as soon as it was heard again."""

    async def history(fabric: LogFabric) -> None:
        far = fabric.starts_log(AWAY)
        await routes(fabric, far, 1, LOST)
        fabric.lists(far)
        await cut(fabric)
        await routes(fabric, far, 2, LOST)
        await begins(fabric)
        await asyncio.sleep(700.0)
        token = position(fabric)
        fabric.stores.is_cut = False
        await routes(fabric, far, 1, AT_ONCE)
        await healed(fabric)
        # All but number 1, which is past.
        assert given(fabric) == 3
        # A reader that was cut off earlier lacks them, and has number 1.
        assert await resumed(fabric, token) == ({"m-2", "m-3", "m-4"}, True)

    played(history)


def test_who_resumes_right_after_a_cut_takes_nothing_from_those_who_are_connected() -> None:
    """Seed 28431 of resume: a message from the store for one reader counted as given to all."""

    async def history(fabric: LogFabric) -> None:
        far, near = fabric.starts_log(AWAY), fabric.starts_log(HOME)
        await cut(fabric)
        await routes(fabric, far, 2, LOST)
        await begins(fabric)
        await asyncio.sleep(60.0)
        token = position(fabric)
        fabric.stores.is_cut = False
        fabric.stores.replicate()
        fabric.tick(far, AT_ONCE)
        await asyncio.sleep(0.01)
        # The store has both, and neither was given here: they are sent live to all.
        assert await resumed(fabric, token) == (set(), True)
        assert given(fabric) == 0
        # A copy of one message arrives first.
        fabric.route(near, "routed", AT_ONCE, 1)
        await asyncio.sleep(0.01)
        assert given(fabric) == 1
        await asyncio.sleep(20.0)
        assert given(fabric) == 2

    played(history)


def test_what_a_router_routed_that_died_within_the_cut_is_given_to_who_stayed() -> None:
    """Seed 28278 of resume: nobody heard of the log, and an hour later all positions covered it."""

    async def history(fabric: LogFabric) -> None:
        fabric.stores.is_cut = True
        dead = fabric.starts_log(AWAY)
        await routes(fabric, dead, 2, LOST)
        await begins(fabric)
        fabric.dies(dead)
        fabric.closes(dead)
        await asyncio.sleep(4_000.0)
        token = position(fabric)
        assert given(fabric) == 0
        await healed(fabric)
        assert given(fabric) == 2
        assert await resumed(fabric, token) == ({"m-1", "m-2"}, True)

    played(history)


HOUR = 3_600_000


async def gold_of_a_cut(fabric: LogFabric, far: Written, near: Written) -> None:
    """Route message 1 in both regions during a cut, give it here, and let it be forgotten."""
    await cut(fabric)
    message = next(fabric.messages)
    fabric.route(far, "routed", LOST, message)
    fabric.route(near, "routed", AT_ONCE, message)
    await asyncio.sleep(0.01)
    # More messages than memory keeps, and a longer time than identities are kept.
    await routes(fabric, near, 3, AT_ONCE)
    await asyncio.sleep(1_000.0)
    await routes(fabric, near, 1, AT_ONCE)
    assert given(fabric) == 5


async def comes_after_all_and_once(fabric: LogFabric, far: Written) -> None:
    """End the cut: number 1 of ``far`` is no longer missing, and wasn't given again."""
    await healed(fabric)
    fabric.tick(far, AT_ONCE)
    await asyncio.sleep(20.0)
    assert core_of(fabric).hub.logs.is_done(far.log, 1)
    assert given(fabric) == 5


@pytest.mark.promise("D1")
def test_a_backlog_comes_once_of_a_region_whose_clocks_were_an_hour_ahead_and_set_back() -> None:
    """Seed 469 of the model with --clocks --partial 0.3: copies were looked up an hour off."""

    async def history(fabric: LogFabric) -> None:
        far, near = fabric.starts_log(AWAY), fabric.starts_log(HOME)
        await begins(fabric)
        fabric.ahead_ms[AWAY] = HOUR
        await gold_of_a_cut(fabric, far, near)
        # The clocks' lead shrinks by a tenth of the time that passes.
        fabric.ahead_ms[AWAY] -= 100_000
        await comes_after_all_and_once(fabric, far)

    played(history)


@pytest.mark.promise("D1")
def test_what_a_region_routed_before_it_was_heard_of_comes_once_though_it_looks_young() -> None:
    """Seed 20298 of the model with --clocks --partial 0.3: its latest time was never reported."""

    async def history(fabric: LogFabric) -> None:
        far, near = fabric.starts_log(AWAY), fabric.starts_log(HOME)
        fabric.tick(near, AT_ONCE)
        await begins(fabric)
        fabric.ahead_ms[AWAY] = 8 * HOUR
        await gold_of_a_cut(fabric, far, near)
        # All its routers were dead for that long: the next one goes on from the last row.
        fabric.ahead_ms[AWAY] -= 990_000
        await comes_after_all_and_once(fabric, far)

    played(history)
