from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from newsfabric.amqp.confirms import Confirms
from newsfabric.amqp.message import Message


def three() -> Confirms[str]:
    confirms: Confirms[str] = Confirms()
    assert [confirms.sent(item) for item in ("a", "b", "c")] == [1, 2, 3]
    return confirms


def test_a_single_answer_settles_one() -> None:
    confirms = three()
    assert confirms.settled(2, multiple=False) == [("b", None)]
    assert len(confirms) == 2


def test_a_multiple_answer_settles_all_up_to_it() -> None:
    confirms = three()
    confirms.settled(1, multiple=False)
    assert confirms.settled(2, multiple=True) == [("b", None)]
    assert confirms.settled(3, multiple=True) == [("c", None)]
    assert len(confirms) == 0


def test_tag_zero_is_all_so_far() -> None:
    assert three().settled(0, multiple=True) == [("a", None), ("b", None), ("c", None)]


def test_an_answer_to_nothing_settles_nothing() -> None:
    confirms = three()
    assert confirms.settled(9, multiple=False) == []
    confirms.settled(3, multiple=True)
    assert confirms.settled(3, multiple=True) == []
    assert confirms.settled(2, multiple=False) == []
    assert confirms.sent("d") == 4
    assert confirms.settled(9, multiple=True) == [("d", None)]


def test_a_lost_channel_gives_all_back_in_order() -> None:
    confirms = three()
    confirms.settled(2, multiple=False)
    assert confirms.clear() == ["a", "c"]
    assert len(confirms) == 0


def test_a_return_is_reported_with_the_answer_to_its_publication() -> None:
    confirms: Confirms[str] = Confirms()
    for body in (b"1", b"2", b"3"):
        tag = confirms.sent(body.decode())
        confirms.expect_return(tag, "news", Message("world", body))
    assert confirms.returned("news", Message("world", b"2"), "no route")
    assert confirms.settled(3, multiple=True) == [("1", None), ("2", "no route"), ("3", None)]


def test_alike_publications_are_returned_one_each() -> None:
    confirms: Confirms[str] = Confirms()
    message = Message("world", b"same")
    for item in ("a", "b"):
        confirms.expect_return(confirms.sent(item), "news", message)
    assert confirms.returned("news", message, "first")
    assert confirms.returned("news", message, "second")
    assert not confirms.returned("news", message, "third")
    assert confirms.settled(2, multiple=True) == [("a", "first"), ("b", "second")]


def test_a_return_of_what_is_not_in_flight_is_not_ours() -> None:
    confirms: Confirms[str] = Confirms()
    confirms.expect_return(confirms.sent("a"), "news", Message("world", b"1"))
    assert not confirms.returned("other", Message("world", b"1"), "")
    assert not confirms.returned("news", Message("sport", b"1"), "")
    assert not confirms.returned("news", Message("world", b"2"), "")


answers = st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=60)


@given(st.integers(0, 30), answers)
def test_each_publication_is_settled_once_by_the_first_answer_that_covers_it(
    count: int, answers: list[tuple[int, bool]]
) -> None:
    confirms: Confirms[int] = Confirms()
    waiting = {confirms.sent(number) for number in range(1, count + 1)}
    for tag, multiple in answers:
        last = tag or count
        covered = {w for w in waiting if w <= last} if multiple else waiting & {tag}
        waiting -= covered
        assert [item for item, _ in confirms.settled(tag, multiple=multiple)] == sorted(covered)
        assert len(confirms) == len(waiting)
    assert confirms.clear() == sorted(waiting)
