"""A topic's memory, and its reports of losses and changes."""

from __future__ import annotations

import dataclasses
import tracemalloc

from envelopes import START_MS, envelope

from gateway.memory.forgotten import ForgottenVector
from gateway.memory.memory import TopicMemory
from gateway.wire.position import log_of
from gateway.wire.publication import Publication
from newsfabric.topics import TopicPolicy

POLICY = TopicPolicy(pattern="news.*", keep=3)
NOW = START_MS / 1000


def memory(*arrived: int) -> TopicMemory:
    """Return a memory in which these messages have arrived."""
    made = TopicMemory(POLICY, 10, ForgottenVector(dict))
    for number in arrived:
        made.add(message(number))
    return made


def message(number: int) -> Publication:
    """Return message ``number``, routed ``number`` seconds after the start."""
    return Publication(envelope(number, at=number * 1_000), POLICY, None)


def seqs(publications: list[Publication]) -> list[int]:
    return [one.envelope.seq for one in publications]


def test_whatever_changes_it_gives_it_a_version_that_no_other_one_has() -> None:
    one, other = memory(), memory()
    versions = [one.version, other.version]
    for made in (one, other):
        made.add(message(1))
        versions.append(made.version)
        made.put_before([message(0)], [], complete=False)
        versions.append(made.version)
        made.note_copy(envelope(1, origin="dublin"))
        versions.append(made.version)
    assert len(set(versions)) == 8


def test_it_has_lost_what_arrived_and_is_not_remembered_but_not_what_was_put_before() -> None:
    made = memory(5, 6)
    made.put_before([message(3)], [], complete=True)
    lost = []
    for number in (7, 8, 9):
        made.add(message(number))
        lost.append(made.lost)
    assert lost == [0, 1, 2]


def test_the_time_since_is_covered_only_if_no_forgotten_message_was_routed_since() -> None:
    # The third message arrives late: four others came before it.
    made = memory(4, 5, 3, 6)
    covered = [made.routed_since(START_MS + second * 1_000, NOW).covered for second in (4, 5, 6)]
    assert covered == [False, False, True]
    made = memory(6)
    made.put_before([message(second) for second in (2, 3, 4)], [], complete=False)
    covered = [made.routed_since(START_MS + second * 1_000, NOW).covered for second in (2, 3, 4)]
    assert covered == [False, False, True]


def test_lately_is_what_arrived_since_or_was_routed_since() -> None:
    made = memory(8, 2)
    made.put_before([message(1)], [], complete=True)
    assert seqs(made.arrived_or_routed_since(2, START_MS + 9_000, NOW)) == []
    assert seqs(made.arrived_or_routed_since(1, START_MS + 9_000, NOW)) == [2]
    assert seqs(made.arrived_or_routed_since(2, START_MS + 8_000, NOW)) == [8]
    assert seqs(made.arrived_or_routed_since(0, START_MS + 9_000, NOW)) == [8, 2]
    assert seqs(made.arrived_or_routed_since(2, START_MS, NOW)) == [1, 8, 2]


def test_while_it_is_held_it_keeps_more_and_the_next_that_arrives_ends_that() -> None:
    made = memory(1, 2, 3)
    with made.keep_more(1), made.keep_more(2):
        for number in (4, 5, 6):
            made.add(message(number))
        assert seqs(list(made.messages(NOW))) == [2, 3, 4, 5, 6]
    assert len(list(made.messages(NOW))) == 5
    made.add(message(7))
    assert seqs(list(made.messages(NOW))) == [5, 6, 7]


def test_thousands_of_topics_without_a_message_cost_little_and_share_nothing_that_changes() -> None:
    tracemalloc.start()
    made = [memory() for _ in range(1_000)]
    each = tracemalloc.get_traced_memory()[0] / len(made)
    tracemalloc.stop()
    assert each < 400
    made[0].add(message(1))
    made[1].put_before([message(2)], [], complete=True)
    made[2].forgotten.add(log_of(envelope(1)), 1)
    assert [seqs(one.arrived_or_routed_since(0, 0, NOW)) for one in made[:4]] == [[1], [2], [], []]
    incomplete = [one.forgotten.incomplete_logs(lambda *_: False) for one in made[:4]]
    assert incomplete == [[], [], [log_of(envelope(1))], []]


def test_versions_of_one_topics_keys_are_no_others() -> None:
    policy = dataclasses.replace(POLICY, latest=True)
    one, other = (TopicMemory(policy, 10, ForgottenVector(dict)) for _ in range(2))
    one.add(Publication(envelope(1, key="k"), policy, None))
    assert [seqs(made.with_latest([], NOW)) for made in (one, other)] == [[1], []]
