"""The first messages that a reader is given: the same ones for a whole crowd."""

from __future__ import annotations

from envelopes import START_MS, envelope

from gateway.past.replay import AnswerCache, Replay
from gateway.wire.protocol import Gap
from gateway.wire.publication import Publication
from newsfabric.topics import TopicPolicy

POLICY = TopicPolicy(pattern="news.*", keep=2)


def replay(*numbers: int) -> Replay:
    """Return messages with these numbers, each routed that many seconds after the start."""
    made = [envelope(number, at=number * 1_000) for number in numbers]
    return Replay([Publication(one, POLICY, None) for one in made])


def seqs(found: Replay) -> list[int]:
    return [one.envelope.seq for one in found.publications]


def test_a_part_begins_to_the_millisecond_and_is_the_same_for_all_who_get_it() -> None:
    whole = replay(3, 1, 2)
    assert whole.since(0) is whole
    assert whole.since(START_MS + 1_000) is whole
    part = whole.since(START_MS + 1_001)
    assert seqs(part) == [3, 2]
    assert whole.since(START_MS + 2_000) is part
    assert seqs(whole.since(START_MS + 2_001)) == [3]
    assert seqs(whole.since(START_MS + 3_001)) == []


def test_an_answer_is_made_once_in_a_second_while_its_stamp_is_the_same() -> None:
    answers: AnswerCache[str] = AnswerCache(9, 1 << 20)
    first = answers.get("a", 1, 7.0, lambda: replay(1))
    assert answers.get("a", 1, 7.9, lambda: replay(1)) is first
    assert answers.get("b", 1, 7.9, lambda: replay(1)) is not first
    other = answers.get("a", 2, 7.9, lambda: replay(1))
    assert other is not first
    later = answers.get("a", 2, 8.0, lambda: replay(1))
    assert later is not other
    answers.clear()
    assert answers.get("a", 2, 8.0, lambda: replay(1)) is not later


def test_that_the_store_has_to_be_asked_is_an_answer_too() -> None:
    answers: AnswerCache[str] = AnswerCache(9, 1 << 20)
    assert answers.get("a", 1, 7.0, lambda: None) is None
    assert answers.get("a", 1, 7.0, lambda: replay(1)) is None
    assert answers.get("a", 2, 7.0, lambda: replay(1)) is not None


def test_answers_are_bounded_in_number_and_in_bytes() -> None:
    few: AnswerCache[str] = AnswerCache(2, 1 << 20)
    light: AnswerCache[str] = AnswerCache(9, 2 * replay(1).weight)
    for answers in (few, light):
        first, *_ = [answers.get(asked, 1, 7.0, lambda: replay(1)) for asked in "abc"]
        assert answers.get("a", 1, 7.0, lambda: replay(1)) is not first


def test_a_crowd_with_the_same_gap_is_given_the_same_object() -> None:
    whole = replay(1, 2)
    found = whole.with_gap(Gap.STORE)
    assert (seqs(found), found.gap, whole.gap) == ([1, 2], Gap.STORE, None)
    assert whole.with_gap(Gap.STORE) is found
    assert whole.with_gap(Gap.BUSY).gap is Gap.BUSY
