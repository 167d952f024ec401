"""The first messages that a reader is given: the same ones for a whole crowd."""

from __future__ import annotations

from envelopes import START_MS, envelope

from gateway.past.recalled import Answers, Recalled
from gateway.wire.publication import Publication
from newsfabric.topics import TopicPolicy

POLICY = TopicPolicy(pattern="news.*", keep=2)


def recalled(*numbers: int) -> Recalled:
    """Return messages with these numbers, each routed that many seconds after the start."""
    made = [envelope(number, at=number * 1_000) for number in numbers]
    return Recalled([Publication(one, POLICY, None) for one in made])


def seqs(found: Recalled) -> list[int]:
    return [one.envelope.seq for one in found.publications]


def test_a_part_begins_to_the_millisecond_and_is_the_same_for_all_who_get_it() -> None:
    whole = recalled(3, 1, 2)
    assert whole.since(0) is whole
    assert whole.since(START_MS + 1_000) is whole
    part = whole.since(START_MS + 1_001)
    assert seqs(part) == [3, 2]
    assert whole.since(START_MS + 2_000) is part
    assert seqs(whole.since(START_MS + 2_001)) == [3]
    assert seqs(whole.since(START_MS + 3_001)) == []


def test_an_answer_is_made_once_in_a_second_while_its_stamp_is_the_same() -> None:
    answers: Answers[str] = Answers(9, 1 << 20)
    first = answers.get("a", 1, 7.0, lambda: recalled(1))
    assert answers.get("a", 1, 7.9, lambda: recalled(1)) is first
    assert answers.get("b", 1, 7.9, lambda: recalled(1)) is not first
    other = answers.get("a", 2, 7.9, lambda: recalled(1))
    assert other is not first
    later = answers.get("a", 2, 8.0, lambda: recalled(1))
    assert later is not other
    answers.clear()
    assert answers.get("a", 2, 8.0, lambda: recalled(1)) is not later


def test_that_the_store_has_to_be_asked_is_an_answer_too() -> None:
    answers: Answers[str] = Answers(9, 1 << 20)
    assert answers.get("a", 1, 7.0, lambda: None) is None
    assert answers.get("a", 1, 7.0, lambda: recalled(1)) is None
    assert answers.get("a", 2, 7.0, lambda: recalled(1)) is not None


def test_answers_are_bounded_in_number_and_in_bytes() -> None:
    few: Answers[str] = Answers(2, 1 << 20)
    light: Answers[str] = Answers(9, 2 * recalled(1).weight)
    for answers in (few, light):
        first, *_ = [answers.get(asked, 1, 7.0, lambda: recalled(1)) for asked in "abc"]
        assert answers.get("a", 1, 7.0, lambda: recalled(1)) is not first
