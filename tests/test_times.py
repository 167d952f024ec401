"""Times that depend on each other: if one is raised, the others follow, or there is an error."""

from __future__ import annotations

import dataclasses

import pytest

from gateway.memory.hub import HubLimits
from gateway.wire.position import CLOCK_STEP_MS
from newsfabric.topology.times import LONGEST_WAY, TIMES, Times
from newsfabric.topology.values import ROUTER_BOUNDS
from wholesale.router.jobs import HOLD_SECONDS
from wholesale.router.log_clock import APART_MS, LogClock
from wholesale.router.window import KEEP_MS


def derived(times: Times) -> tuple[int, int, int, int]:
    """Return the seconds in queues, between copies, between times in copies, and until late."""
    found = times.queues_ms, times.apart_ms, times.margin_ms, times.late_ms
    first, second, third, fourth = (ms // 1000 for ms in found)
    return first, second, third, fourth


@pytest.mark.promise("S4")
def test_times_are_those_of_the_guarantees() -> None:
    # 20 + 150 + 150 + 150 + 60 + 60 s in queues and 10 s between them; 150 s in a router.
    assert derived(TIMES) == (600, 750, 810, 120)


@pytest.mark.promise("S4")
@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        ({"hold_ms": 200_000}, (600, 800, 860, 70)),
        ({"queues": (*LONGEST_WAY, dataclasses.replace(ROUTER_BOUNDS, message_ttl_ms=40_000))},
         (640, 790, 850, 80)),
        ({"between_ms": 30_000}, (620, 770, 830, 100)),
        ({"identity_ms": 920_000}, (600, 750, 810, 140)),
        ({"clock_ms": 40_000}, (600, 750, 830, 110)),
    ],
)  # fmt: skip
def test_who_raises_one_sees_the_others_follow(
    raised: dict[str, object], expected: tuple[int, ...]
) -> None:
    assert derived(dataclasses.replace(TIMES, **raised)) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"hold_ms": 270_000}, "copies of a message get their numbers up to 870000 ms apart"),
        ({"clock_ms": 150_000}, "clocks 150000 ms from right"),
        ({"identity_ms": 780_000}, "must be remembered for longer than 780000 ms"),
        ({"identity_ms": 930_000}, "remember identities for less than 930000 ms"),
        ({"waiting_speed": 0.79}, "waits for its clock"),
        ({"queues": (dataclasses.replace(ROUTER_BOUNDS, message_ttl_ms=None),)}, "for ever"),
    ],
)
def test_times_that_do_not_fit_are_refused(wrong: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        dataclasses.replace(TIMES, **wrong)  # type: ignore[arg-type]


def test_every_service_has_them_from_one_table() -> None:
    assert TIMES.hold_ms == HOLD_SECONDS * 1000
    assert HubLimits().identity_seconds * 1000 == KEEP_MS == TIMES.identity_ms
    assert CLOCK_STEP_MS == APART_MS == TIMES.clock_ms
    assert LogClock.waiting_speed == TIMES.waiting_speed
