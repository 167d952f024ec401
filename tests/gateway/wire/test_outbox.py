"""The frames that wait for a slow reader, under each policy."""

from __future__ import annotations

import collections

import pytest
from envelopes import envelope
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.outbox import ENTRY_BYTES, Account, Outbox, OutboxLimits
from gateway.wire.publication import Publication
from newsfabric.topics import SlowPolicy, TopicPolicy

LIMITS = OutboxLimits(
    hard_bytes=4 * (ENTRY_BYTES + 10), soft_bytes=2 * (ENTRY_BYTES + 10), soft_seconds=5.0
)
FRAME = b"x" * 10


def publication(
    number: int, slow: SlowPolicy, *, key: str | None = None, version: int | None = None
) -> Publication:
    policy = TopicPolicy(pattern="#", slow=slow)
    made = envelope(number, at=number, topic=slow, key=key, version=version)
    return Publication(made, policy, None)


def frame(number: int) -> bytes:
    return b"%010d" % number


@pytest.fixture
def dropped() -> collections.Counter[SlowPolicy]:
    """Count the messages dropped from the outboxes of ``account``, by policy."""
    return collections.Counter()


@pytest.fixture
def account(dropped: collections.Counter[SlowPolicy]) -> Account:
    return Account(dropped=lambda policy: dropped.update([policy]))


def test_frames_leave_in_the_order_they_came() -> None:
    outbox = Outbox(LIMITS, Account())
    assert outbox.push_firm(b"a", now=0.0)
    assert outbox.push(b"b", publication(1, "drop_oldest"), now=0.0)
    assert outbox.push(b"c", publication(2, "disconnect"), now=0.0)
    assert outbox.take_frames(100) == [b"a", b"b", b"c"]
    assert outbox.pending_bytes == 0


def test_take_stops_before_its_limit_but_gives_at_least_one() -> None:
    outbox = Outbox(LIMITS, Account())
    for _ in range(3):
        outbox.push_firm(FRAME, now=0.0)
    assert outbox.take_frames(20) == [FRAME, FRAME]
    assert outbox.take_frames(1) == [FRAME]
    assert outbox.take_frames(1) == []


def test_the_hard_limit_calls_a_reader_of_firm_messages_too_slow_at_once() -> None:
    outbox = Outbox(LIMITS, Account())
    pushed = [outbox.push(FRAME, publication(n, "disconnect"), now=0.0) for n in range(5)]
    assert pushed == [True, True, True, True, False]


def test_a_burst_above_the_soft_limit_is_forgiven() -> None:
    outbox = Outbox(LIMITS, Account())
    for _ in range(3):
        assert outbox.push_firm(FRAME, now=0.0)
    outbox.take_frames(1000)
    for _ in range(3):
        assert outbox.push_firm(FRAME, now=60.0)


def test_staying_above_the_soft_limit_is_not() -> None:
    outbox = Outbox(LIMITS, Account())
    for _ in range(4):
        assert outbox.push_firm(FRAME, now=0.0)
    outbox.take_frames(1)
    assert outbox.push_firm(FRAME, now=4.0)
    outbox.take_frames(1)
    assert not outbox.push_firm(FRAME, now=5.1)


def test_drop_oldest_drops_the_oldest_and_never_closes(
    account: Account, dropped: collections.Counter[SlowPolicy]
) -> None:
    outbox = Outbox(LIMITS, account)
    for n in range(10):
        assert outbox.push(frame(n), publication(n, "drop_oldest"), now=n * 100.0)
    assert outbox.take_frames(1000) == [frame(n) for n in range(6, 10)]
    assert dropped == {"drop_oldest": 6}


def test_conflation_keeps_the_newest_of_each_key_in_the_order_of_arrival(
    account: Account, dropped: collections.Counter[SlowPolicy]
) -> None:
    outbox = Outbox(LIMITS, account)
    for n, key in enumerate(["a", "b", "a", None, "b"]):
        assert outbox.push(frame(n), publication(n, "conflate", key=key), now=0.0)
    assert outbox.take_frames(1000) == [frame(2), frame(3), frame(4)]
    assert dropped == {"conflate": 2}


def test_an_older_version_doesnt_take_the_place_of_a_newer() -> None:
    outbox = Outbox(LIMITS, Account())
    outbox.push(b"v2", publication(1, "conflate", key="a", version=2), now=0.0)
    outbox.push(b"v1", publication(2, "conflate", key="a", version=1), now=0.0)
    assert outbox.take_frames(1000) == [b"v2"]


def test_what_was_sent_is_not_conflated_with_what_comes() -> None:
    outbox = Outbox(LIMITS, Account())
    outbox.push(b"v1", publication(1, "conflate", key="a"), now=0.0)
    assert outbox.take_frames(1000) == [b"v1"]
    outbox.push(b"v2", publication(2, "conflate", key="a"), now=0.0)
    assert outbox.take_frames(1000) == [b"v2"]


def test_replies_push_droppable_messages_out_and_are_never_dropped() -> None:
    outbox = Outbox(LIMITS, Account())
    for n in range(4):
        outbox.push(frame(n), publication(n, "drop_oldest"), now=0.0)
    assert outbox.push_firm(b"reply", now=0.0)
    assert outbox.take_frames(1000) == [frame(1), frame(2), frame(3), b"reply"]


def test_a_droppable_message_is_dropped_when_only_firm_ones_wait(
    account: Account, dropped: collections.Counter[SlowPolicy]
) -> None:
    outbox = Outbox(LIMITS, account)
    for _ in range(4):
        outbox.push_firm(FRAME, now=0.0)
    assert outbox.push(b"y" * 10, publication(1, "drop_oldest"), now=0.0)
    assert outbox.take_frames(1000) == [FRAME] * 4
    assert dropped == {"drop_oldest": 1}


def test_clear_forgets_everything() -> None:
    outbox = Outbox(LIMITS, Account())
    outbox.push(FRAME, publication(1, "conflate", key="a"), now=0.0)
    outbox.push_firm(FRAME, now=0.0)
    assert outbox.clear() == 2
    assert (len(outbox), outbox.pending_bytes, outbox.take_frames(100)) == (0, 0, [])


def test_limits_must_make_sense() -> None:
    with pytest.raises(ValueError, match="soft_bytes"):
        OutboxLimits(hard_bytes=1, soft_bytes=2)


POLICIES = st.sampled_from(["disconnect", "conflate", "drop_oldest"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), POLICIES, st.sampled_from([None, "a", "b"])),
        st.tuples(st.just("firm"), st.none(), st.none()),
        st.tuples(st.just("take"), st.none(), st.none()),
    ),
    max_size=60,
)


@pytest.mark.promise("D6", "D2")
@given(STEPS)
def test_whatever_happens_it_is_bounded_and_each_topic_keeps_its_order(steps: list[tuple]) -> None:
    outbox = Outbox(LIMITS, Account())
    pushed: dict[str, list[int]] = {"firm": []}
    sent: list[int] = []
    for n, (step, policy, key) in enumerate(steps):
        if step == "take":
            sent += [int(taken) for taken in outbox.take_frames(25)]
            continue
        name = policy or "firm"
        pushed.setdefault(name, []).append(n)
        if step == "firm":
            fits = outbox.push_firm(frame(n), now=0.0)
        else:
            fits = outbox.push(frame(n), publication(n, policy, key=key), now=0.0)
        if not fits:
            return
        assert outbox.pending_bytes <= LIMITS.hard_bytes
    sent += [int(taken) for taken in outbox.take_frames(10**9)]
    assert len(sent) == len(set(sent))
    for name, numbers in pushed.items():
        arrived = [n for n in sent if n in numbers]
        assert arrived == sorted(arrived)
        if name in ("firm", "disconnect"):
            assert arrived == numbers
    assert outbox.pending_bytes == 0
