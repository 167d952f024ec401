"""The choice of the broker for a message, with a clock of the test's own."""

from __future__ import annotations

import itertools
import random

from hypothesis import given
from hypothesis import strategies as st

from newsfabric.publish.choice import PROBE_EVERY, SEND_AGAIN, SLOW, Choice, Course

QUICK = 0.02
# A time longer than any first pause.
LATE = SLOW + 1


def choice(*regions: int, seed: int = 0) -> Choice:
    return Choice(regions, rng=random.Random(seed))


def handed(*brokers: tuple[int, float]) -> Course:
    return Course(list(brokers))


def first(chosen: Choice, usable: set[int]) -> int:
    (broker,) = chosen.among(usable, Course(), 1)
    return broker


def silent(chosen: Choice, broker: int, other: int, now: float) -> None:
    """Let ``broker`` not answer a message, and ``other`` answer its repeat."""
    course = handed((broker, now), (other, now + SEND_AGAIN))
    chosen.answered(other, course, now + SEND_AGAIN + QUICK)


def turns(chosen: Choice, usable: set[int], count: int) -> list[int]:
    """Return the brokers to which an unanswered message is handed, in order."""
    course = Course()
    for now in range(count):
        (broker,) = chosen.among(usable, course, 1)
        course.handed.append((broker, float(now)))
    return [broker for broker, _ in course.handed]


def test_publishers_are_spread_over_the_brokers_of_the_nearest_region() -> None:
    brokers = [first(choice(3, 2, seed=seed), {0, 1, 2, 3, 4}) for seed in range(300)]
    assert {0, 1, 2} == set(brokers)
    assert all(brokers.count(broker) > 60 for broker in range(3))


def test_the_messages_of_one_publisher_go_by_one_broker() -> None:
    chosen = choice(2)
    assert len({first(chosen, {0, 1}) for _ in range(20)}) == 1


def test_a_message_without_an_answer_goes_by_each_broker_in_turn_the_nearest_first() -> None:
    asked = turns(choice(2, 2), {0, 1, 2, 3}, 8)
    assert [set(asked[:2]), set(asked[2:4])] == [{0, 1}, {2, 3}]
    assert asked[4:] == asked[:4]


def test_brokers_that_are_not_connected_are_passed_over() -> None:
    assert turns(choice(2, 1), {1, 2}, 4) == [1, 2, 1, 2]
    assert choice(2, 1).among(set(), Course(), 1) == []


def test_copies_go_into_as_many_regions() -> None:
    chosen = choice(2, 2, 1)
    (one, two) = chosen.among({0, 1, 2, 3, 4}, Course(), 2)
    assert (one in {0, 1}, two in {2, 3}) == (True, True)
    assert len(chosen.among({0, 1}, Course(), 2)) == 1


def test_one_that_lets_a_message_pass_which_another_answers_is_passed_over() -> None:
    chosen = choice(2, 1)
    usual = first(chosen, {0, 1, 2})
    other = 1 - usual
    silent(chosen, usual, other, 10.0)
    assert chosen.doubted == {usual}
    assert first(chosen, {0, 1, 2}) == other
    # A broker of the next region is preferred to a doubted one, and a doubted one to none.
    assert first(chosen, {usual, 2}) == 2
    assert first(chosen, {usual}) == usual
    assert turns(chosen, {0, 1, 2}, 3) == [other, 2, usual]


def test_one_that_has_answered_others_meanwhile_is_not_doubted_for_one_lost_message() -> None:
    chosen = choice(2)
    course = handed((0, 10.0), (1, 10.5))
    chosen.answered(0, handed((0, 10.2)), 10.25)
    chosen.answered(1, course, 10.52)
    assert chosen.doubted == set()


def test_of_copies_that_went_out_at_once_the_slower_is_not_doubted() -> None:
    chosen = choice(1, 1)
    chosen.answered(1, handed((0, 10.0), (1, 10.0)), 10.02)
    assert chosen.doubted == set()


def test_a_doubted_one_gets_a_copy_now_and_then_and_is_itself_again_once_it_answers() -> None:
    chosen = choice(2)
    silent(chosen, 0, 1, 10.0)
    began = 10.0 + SEND_AGAIN + QUICK
    assert chosen.probed({0, 1}, handed((1, 11.0)), "m-1", began + PROBE_EVERY / 2) == []
    assert chosen.probed({0, 1}, handed((1, 13.0)), "m-2", began + PROBE_EVERY) == [0]
    assert chosen.probed({0, 1}, handed((1, 13.1)), "m-3", began + PROBE_EVERY + 0.1) == []
    chosen.note_reply(0, "m-2", began + PROBE_EVERY + QUICK)
    assert chosen.doubted == set()


def test_one_that_is_not_connected_or_has_the_message_gets_no_copy_of_it() -> None:
    chosen = choice(2)
    silent(chosen, 0, 1, 10.0)
    assert chosen.probed({1}, handed((1, 20.0)), "m-1", 20.0) == []
    assert chosen.probed({0, 1}, handed((0, 20.0)), "m-1", 20.0) == []
    assert chosen.probed({0, 1}, handed((1, 20.0)), "m-1", 20.0) == [0]


def test_answers_that_come_late_clear_nobody() -> None:
    chosen = choice(2)
    silent(chosen, 0, 1, 10.0)
    # Late answers to a message from before it was stopped, and to the probes sent meanwhile.
    assert chosen.probed({0, 1}, Course(), "m-1", 20.0) == [0]
    assert chosen.probed({0, 1}, Course(), "m-2", 30.0) == [0]
    chosen.note_reply(0, "m-0", 30.1)
    chosen.note_reply(0, "m-1", 30.1)
    chosen.note_reply(0, "m-2", 30.0 + LATE)
    assert chosen.doubted == {0}
    assert chosen.probed({0, 1}, Course(), "m-3", 40.0) == [0]
    chosen.note_reply(0, "m-3", 40.0 + QUICK)
    assert chosen.doubted == set()


def test_a_doubted_one_that_lets_another_message_pass_may_answer_its_probe_still() -> None:
    chosen = choice(2)
    silent(chosen, 0, 1, 10.0)
    assert chosen.probed({0, 1}, Course(), "m-1", 20.0) == [0]
    # The message was handed to it first, for instance because only it was connected for a moment.
    chosen.answered(1, handed((0, 20.0), (1, 20.1)), 20.2)
    chosen.note_reply(0, "m-1", 20.3)
    assert chosen.doubted == set()


def test_a_second_answer_to_an_old_probe_clears_nobody_who_is_doubted_again() -> None:
    chosen = choice(2)
    silent(chosen, 0, 1, 10.0)
    assert chosen.probed({0, 1}, Course(), "m-1", 20.0) == [0]
    chosen.note_reply(0, "m-1", 20.0 + QUICK)
    silent(chosen, 0, 1, 21.0)
    chosen.note_reply(0, "m-1", 21.0 + SEND_AGAIN + 2 * QUICK)
    assert chosen.doubted == {0}


def test_a_doubted_one_that_is_alone_is_itself_again_with_its_first_answer_in_time() -> None:
    chosen = choice(2)
    silent(chosen, 0, 1, 10.0)
    chosen.answered(0, handed((0, 20.0)), 20.0 + LATE)
    assert chosen.doubted == {0}
    chosen.answered(0, handed((0, 30.0)), 30.0 + QUICK)
    assert chosen.doubted == set()


def test_the_first_pause_is_half_a_second_while_answers_are_quick() -> None:
    chosen = choice(2)
    for now in range(100):
        chosen.answered(0, handed((0, float(now))), now + 0.05)
    assert chosen.patience == SEND_AGAIN == 0.5


def test_where_answers_take_seconds_the_first_pause_grows_and_shrinks_again() -> None:
    chosen = choice(1)
    patience = [chosen.patience]
    for took in [3.0] * 4 + [QUICK] * 40:
        chosen.answered(0, handed((0, 10.0)), 10.0 + took)
        patience.append(chosen.patience)
    assert patience[:4] == [0.5, 1.5, SLOW, SLOW]
    assert patience[-1] == 0.5


def test_how_long_a_broker_was_silent_makes_nobody_wait_longer() -> None:
    chosen = choice(2)
    for now in range(20):
        silent(chosen, 0, 1, float(now))
    assert chosen.patience == SEND_AGAIN


def test_a_pause_that_was_asked_for_stays() -> None:
    chosen = Choice([1], send_again=10.0, rng=random.Random(0))
    chosen.answered(0, handed((0, 10.0)), 10.0 + LATE)
    assert chosen.patience == 10.0


def test_it_is_reported_when_each_region_has_given_a_message_back() -> None:
    chosen = choice(2, 1)
    cases = {(): False, (0,): False, (0, 1): False, (1, 2): True, (0, 1, 2): True}
    assert {given: chosen.in_each_region(given) for given in cases} == cases


@given(
    regions=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    frozen=st.sets(st.integers(0, 8)),
    seed=st.integers(0, 1000),
)
def test_none_but_the_first_messages_wait_for_brokers_that_hang(
    regions: list[int], frozen: set[int], seed: int
) -> None:
    """Check that messages begin with a broker that answers, once all that hang were tried."""
    chosen, brokers = choice(*regions, seed=seed), set(range(sum(regions)))
    answering = brokers - frozen
    if not answering:
        return
    waited = 0
    clock = itertools.count()
    for _ in range(30):
        course = Course()
        while True:
            now = float(next(clock))
            (broker,) = chosen.among(brokers, course, 1)
            course.handed.append((broker, now))
            if broker in answering:
                chosen.answered(broker, course, now + QUICK)
                break
        waited += len(course.handed) - 1
    assert waited <= len(brokers & frozen)
    assert chosen.doubted <= frozen
