"""The numbers that a router gives out."""

from __future__ import annotations

from core_cluster import EPOCH, message

from newsfabric.messages.envelope import Submission, id_of, receive
from newsfabric.store.logs import Log
from wholesale.router.stream import Stream


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


def test_a_tick_names_the_last_number_and_up_to_which_all_are_settled():
    numbered = stream()
    for _ in range(3):
        numbered.number(submission(), now_ms=EPOCH)
    numbered.numbering.settle(1)
    numbered.numbering.settle(3)
    tick = numbered.tick(now_ms=EPOCH + 9)
    assert (tick.seq, tick.low, tick.sent_ms) == (3, 1, EPOCH + 9)
