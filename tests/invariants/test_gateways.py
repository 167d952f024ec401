"""L2, L3 and L5 of docs/design/0028, of one gateway: its marks, and the messages that readers get.

Histories are long and random; tests/support/log_fabric.py has the parts of them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from hypothesis import given, register_random, settings
from hypothesis import strategies as st
from log_fabric import APART, AWAY, BEGAN, HOME, LogFabric
from quick_time import quick_loop, run
from unit_share import examples

from newsfabric import backoff

register_random(backoff._SHARED)

# Seconds after which the copies of a message arrive on the feed.
WAYS = [(0.0,), (0.0,), (0.1,), (), (), (0.0, 0.4), (3.0,), (200.0,)]
# The last step that a router did for a message.
FATES = ["routed", "routed", "routed", "unconfirmed", "unpublished", "half", "unwritten", "void"]
NOTHING: tuple[float, ...] = ()
AT_ONCE = (0.0,)
# A step: the deed, and the values that decide its details.
Step = tuple[str, int, str, tuple[float, ...]]
DEEDS = [
    *["route"] * 8,
    *["copy"] * 3,
    *["tick"] * 3,
    *["wait"] * 4,
    "list", "begin", "die", "die", "close", "close", "resolve", "cut", "cut", "behind", "down",
    "leave", "restart", "freeze",
]  # fmt: skip
SEEDS = st.integers(0, 2**32)
WAITS = (0.05, 0.2, 0.35, 0.6, 1.0, 2.5, 6.0, 16.0)
FREEZES = (3.0, 30.0, 125.0, 1_000.0)


def steps_of(seed: int, *, most: int) -> list[Step]:
    """Return random steps: Hypothesis would draw short histories, and only long ones are of use."""
    dice = random.Random(seed)
    return [
        (dice.choice(DEEDS), dice.randrange(8), dice.choice(FATES), dice.choice(WAYS))
        for _ in range(dice.randrange(most))
    ]


async def take_step(fabric: LogFabric, step: Step) -> None:
    deed, number, fate, way = step
    stores = fabric.stores
    logs = list(stores.logs.values())
    one = logs[number % len(logs)]
    if deed == "route" and one.lives:
        fabric.route(one, fate, way, next(fabric.messages))
    elif deed == "copy" and one.lives:
        now, region = quick_loop().time(), one.log.region
        others = [
            message
            for message, at in fabric.routed_at.items()
            if now - at <= APART and region not in fabric.routed_in[message]
        ]
        if others:
            fabric.route(one, fate, way, others[number % len(others)])
    elif deed == "tick":
        fabric.tick(one, way)
    elif deed == "wait":
        await asyncio.sleep(WAITS[number])
    elif deed == "freeze":
        quick_loop().stand_still(FREEZES[number % len(FREEZES)])
        await asyncio.sleep(0.01)
    elif deed == "list":
        fabric.lists(one, ended=number == 0)
    elif deed == "begin":
        fabric.starts_log((HOME, AWAY)[number % 2])
    elif deed == "die" and one.lives:
        fabric.dies(one)
    elif deed == "close":
        fabric.closes(one)
    elif deed == "resolve":
        fabric.resolve(one) if one.lives else fabric.late_rows(one)
    elif deed in ("cut", "behind", "down"):
        setattr(stores, f"is_{deed}", not getattr(stores, f"is_{deed}"))
    elif deed == "leave":
        await fabric.leave()
    elif deed == "restart" and not stores.is_down:
        await fabric.restart()
    stores.replicate()


def play(
    seed: int, check: Callable[[LogFabric, bool], None], steps: list[Step] | None = None
) -> None:
    """Play a history; ``check`` the fabric after each step, and when all is healed (True)."""

    async def history() -> None:
        fabric = LogFabric()
        for region in (HOME, AWAY, AWAY):
            fabric.starts_log(region)
        for step in steps_of(seed + 1, most=20) if steps is None else ():
            if step[0] not in ("leave", "restart", "down"):
                await take_step(fabric, step)
        fabric.stores.replicate()
        await fabric.begin()
        await fabric.leave()
        for step in steps_of(seed, most=120) if steps is None else steps:
            await take_step(fabric, step)
            check(fabric, False)
        await fabric.heal()
        check(fabric, True)
        await fabric.end()

    run(history(), began=BEGAN)


def check_marks(fabric: LogFabric, healed: bool) -> None:
    assert fabric.passed_without_an_offer() == []


def check_readers(fabric: LogFabric, healed: bool) -> None:
    assert fabric.reader.twice == []
    if healed:
        assert fabric.core is not None
        assert fabric.core.hub.logs.missing() == []
        assert fabric.never_given() == set()


def check_conclusions(fabric: LogFabric, healed: bool) -> None:
    assert fabric.concluded() == []


@given(seed=SEEDS)
@settings(max_examples=examples(50))
def test_l2_no_mark_passes_a_message_that_wasnt_offered(seed: int) -> None:
    play(seed, check_marks)


@given(seed=SEEDS)
@settings(max_examples=examples(50))
def test_l3_once_all_is_healed_every_message_was_given_and_none_twice(seed: int) -> None:
    play(seed, check_readers)


def test_l3_what_comes_by_the_feed_when_nobody_remembers_it_is_given_to_nobody_twice() -> None:
    """The other region's copy arrives only after identities of its time are forgotten."""
    steps = [
        ("route", 0, "routed", AT_ONCE),
        ("copy", 1, "routed", (1_040.0,)),
        ("wait", 2, "routed", NOTHING),
        # More messages than memory keeps.
        *[("route", 0, "routed", AT_ONCE)] * 3,
        ("wait", 2, "routed", NOTHING),
        ("cut", 0, "routed", NOTHING),
        ("freeze", 3, "routed", NOTHING),
        *[("route", 0, "routed", AT_ONCE), ("wait", 7, "routed", NOTHING)] * 3,
    ]
    play(0, check_readers, steps)


@given(seed=SEEDS)
@settings(max_examples=examples(25))
def test_l5_a_gateway_takes_nothing_for_void_or_ended_but_what_its_own_region_says(
    seed: int,
) -> None:
    play(seed, check_conclusions)
