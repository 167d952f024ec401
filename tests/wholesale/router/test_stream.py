"""The numbers that a router gives out."""

from __future__ import annotations

import pytest
from core_desk import EPOCH, message
from hypothesis import given
from hypothesis import strategies as st

from newsfabric.envelope import Submission, id_of, receive
from newsfabric.store.logs import Log
from wholesale.router.stream import KEPT_VOIDS, Stream


def submission() -> Submission:
    return receive(message(message_id="one", headers={"key": "story"}), now_ms=EPOCH)


def stream() -> Stream:
    return Stream(Log("oregon", "oregon-router-1", EPOCH))


def test_numbers_start_at_one_and_leave_nothing_out():
    numbered = stream()
    assert [numbered.number(submission(), now_ms=EPOCH).seq for _ in range(3)] == [1, 2, 3]


def test_an_envelope_carries_its_stream_and_the_routers_clock():
    envelope = stream().number(submission(), now_ms=EPOCH + 5)
    assert (envelope.origin, envelope.router, envelope.epoch) == (
        "oregon",
        "oregon-router-1",
        EPOCH,
    )
    assert envelope.id == id_of(EPOCH + 5, envelope.identity)
    assert envelope.path == (f"oregon-router-1@{EPOCH + 5}",)
    assert envelope.key == "story"


def test_a_tick_names_the_last_number_and_what_came_to_nothing():
    numbered = stream()
    for _ in range(3):
        numbered.number(submission(), now_ms=EPOCH)
    numbered.void(2)
    numbered.void(2)
    tick = numbered.tick(now_ms=EPOCH + 9)
    assert (tick.seq, tick.void, tick.sent_ms) == (3, (2,), EPOCH + 9)


@pytest.mark.parametrize("seq", [0, 2])
def test_a_number_that_was_never_given_out_cant_be_void(seq: int):
    numbered = stream()
    numbered.number(submission(), now_ms=EPOCH)
    with pytest.raises(ValueError, match="never given out"):
        numbered.void(seq)


@given(st.lists(st.booleans(), max_size=200))
def test_every_number_is_either_routed_or_void(fates: list[bool]):
    numbered, routed = stream(), set()
    for good in fates:
        seq = numbered.number(submission(), now_ms=EPOCH).seq
        if good:
            routed.add(seq)
        else:
            numbered.void(seq)
    tick = numbered.tick(now_ms=EPOCH)
    assert tick.seq == len(fates)
    assert routed | set(tick.void) == set(range(1, len(fates) + 1))
    assert not routed & set(tick.void)


def test_only_so_many_voids_are_kept_and_the_oldest_go():
    numbered = stream()
    for _ in range(KEPT_VOIDS + 1):
        numbered.void(numbered.number(submission(), now_ms=EPOCH).seq)
    assert numbered.tick(now_ms=EPOCH).void == tuple(range(2, KEPT_VOIDS + 2))
