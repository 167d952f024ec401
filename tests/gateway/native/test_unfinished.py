"""Publications are kept until their fan-out has finished, and then called back in their order."""

from __future__ import annotations

from envelopes import envelope

from gateway.native import commands
from gateway.native.plane import UnfinishedPublications
from gateway.wire.publication import Publication
from newsfabric.topics import TopicPolicy


def publication(number: int) -> Publication:
    return Publication(envelope(number), TopicPolicy(pattern="#"), None)


def filled(count: int) -> tuple[UnfinishedPublications, list[int]]:
    made, done = UnfinishedPublications(), list[int]()
    for number in range(1, count + 1):
        made.add(publication(number), lambda number=number: done.append(number))  # type: ignore[misc]
    return made, done


def test_each_has_the_next_number() -> None:
    made = UnfinishedPublications()
    one, two = publication(1), publication(2)
    assert made.add(one, lambda: None) == commands.publish(1, one)
    assert made.add(two, lambda: None) == commands.publish(2, two)


def test_those_up_to_a_number_are_done_once() -> None:
    made, done = filled(3)
    made.finish(2)
    made.finish(2)
    assert (done, len(made)) == ([1, 2], 1)
    made.finish_all()
    assert (done, len(made)) == ([1, 2, 3], 0)


def test_what_is_not_over_is_sent_again() -> None:
    made, _ = filled(3)
    made.finish(1)
    assert list(made.commands()) == [commands.publish(n, publication(n)) for n in (2, 3)]


def test_what_is_dropped_is_never_done() -> None:
    made, done = filled(2)
    made.forget()
    made.finish_all()
    assert (done, len(made)) == ([], 0)
