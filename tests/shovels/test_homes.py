"""Where source queues live while nodes come and go."""

from __future__ import annotations

import dataclasses

from fabrics import CREDENTIALS, TOPICS, fabric, fresh_fabric, performed, with_down
from hypothesis import given, settings
from hypothesis import strategies as st

from newsfabric.settings import Fabric
from newsfabric.topology import Binding, Cluster
from shovels.homes import AWAY_AFTER, STEADY_AFTER, Seen, Uptimes, wanted_now
from shovels.plan import Action, Actual, diff

CLIENT = Cluster("oregon", "client")
CORE = Cluster("oregon", "core")
FIRST, SECOND, THIRD = (f"oregon-client-{n}" for n in (1, 2, 3))
NOBODY = frozenset[str]()

State = dict[Cluster, Actual]


def _look(
    known: Fabric,
    actual: State,
    away: frozenset[str],
    *,
    just_back: frozenset[str] = NOBODY,
) -> tuple[tuple[Action, ...], tuple[str, ...]]:
    steady = frozenset[str]().union(*(found.running() for found in actual.values())) - just_back
    wanted = wanted_now(known, "oregon", TOPICS, actual, Seen(away, steady))
    return diff("oregon", wanted.parts, actual, CREDENTIALS), wanted.moving


def _round(
    known: Fabric,
    actual: State,
    away: frozenset[str] = NOBODY,
    *,
    just_back: frozenset[str] = NOBODY,
) -> State:
    return performed(actual, _look(known, actual, away, just_back=just_back)[0])


def _settled(known: Fabric) -> State:
    actual = _round(known, fresh_fabric(known))
    assert _look(known, actual, NOBODY) == ((), ())
    return actual


def _source(actual: State, shovel: str = "publish.oregon.1") -> str:
    return str(actual[CORE].shovels[shovel]["src-queue"])


def test_a_node_that_is_down_for_a_moment_keeps_its_queues() -> None:
    known = fabric(regions=("oregon",), client=2)
    down = with_down(_settled(known), [FIRST])
    assert _look(known, down, NOBODY) == ((), ())


def test_a_node_that_stays_away_is_stood_in_for_by_one_that_the_other_path_doesnt_need() -> None:
    known = fabric(regions=("oregon",), client=3)
    away = frozenset({FIRST})
    actual = _round(known, with_down(_settled(known), away), away)
    assert _source(actual) == f"shovel.publish.oregon.1.{THIRD}"
    assert _source(actual, "publish.oregon.2") == "shovel.publish.oregon.2"
    assert actual[CORE].shovels["publish.oregon.1"]["src-uri"].endswith(f"@{THIRD}.test/%2F")
    assert _look(known, actual, away) == ((), ())


def test_a_keeper_that_has_just_started_leaves_it_there() -> None:
    known = fabric(regions=("oregon",), client=3)
    away = frozenset({FIRST})
    actual = _round(known, with_down(_settled(known), away), away)
    assert _look(known, actual, NOBODY) == ((), ())


def test_a_node_that_is_back_gets_its_queue_back_and_the_stand_in_goes() -> None:
    known = fabric(regions=("oregon",), client=2)
    away = frozenset({FIRST})
    moved = _round(known, with_down(_settled(known), away), away)
    # A durable queue comes back with its node and its bindings.
    back = _round(known, with_down(moved, []))
    assert _source(back) == "shovel.publish.oregon.1"
    assert f"shovel.publish.oregon.1.{SECOND}" not in back[CLIENT].queues
    assert _look(known, back, NOBODY) == ((), ())


def test_a_node_that_has_just_come_back_gets_its_copies_but_not_yet_its_shovel() -> None:
    known = fabric(regions=("oregon",), client=2)
    away = frozenset({FIRST})
    moved = _round(known, with_down(_settled(known), away), away)
    back = with_down(moved, [])
    actions, moving = _look(known, back, NOBODY, just_back=away)
    assert actions == ()
    assert moving == ("oregon/core/publish.oregon.1",)
    # It dies again before it was steady, and nothing has to be moved.
    assert _look(known, with_down(back, away), NOBODY) == ((), ())


def test_a_shovel_doesnt_change_over_to_a_queue_that_has_lost_its_bindings() -> None:
    known = fabric(regions=("oregon",), client=2)
    away = frozenset({FIRST})
    back = with_down(_round(known, with_down(_settled(known), away), away), [])
    own = Binding("publish", "shovel.publish.oregon.1")
    back[CLIENT] = dataclasses.replace(back[CLIENT], bindings=back[CLIENT].bindings - {own})
    actions, _ = _look(known, back, NOBODY)
    assert [(each.verb, each.kind, each.wanted) for each in actions] == [("create", "binding", own)]
    assert _source(_round(known, performed(back, actions))) == "shovel.publish.oregon.1"


def test_a_node_that_comes_back_empty_gets_a_bound_queue_before_the_shovel_changes_over() -> None:
    known = fabric(regions=("oregon",), client=2)
    away = frozenset({FIRST})
    moved = _round(known, with_down(_settled(known), away), away)
    emptied = with_down(moved, [])
    emptied[CLIENT] = Actual(
        exchanges=moved[CLIENT].exchanges,
        queues={n: q for n, q in moved[CLIENT].queues.items() if n != "shovel.publish.oregon.1"},
        bindings=frozenset(
            b for b in moved[CLIENT].bindings if b.queue != "shovel.publish.oregon.1"
        ),
        shovels=moved[CLIENT].shovels,
        nodes=emptied[CLIENT].nodes,
    )
    actions, moving = _look(known, emptied, NOBODY)
    assert moving == ("oregon/core/publish.oregon.1",)
    assert [(a.verb, a.kind) for a in actions] == [("create", "queue"), ("create", "binding")]
    beside = performed(emptied, actions)
    assert _source(beside) == f"shovel.publish.oregon.1.{SECOND}"
    after = _round(known, beside)
    assert _source(after) == "shovel.publish.oregon.1"
    assert _look(known, after, NOBODY) == ((), ())


def test_when_the_stand_in_fails_too_the_next_one_takes_over() -> None:
    known = fabric(regions=("oregon",), client=3)
    actual = _settled(known)
    for away in (frozenset({FIRST}), frozenset({FIRST, THIRD})):
        actual = _round(known, with_down(actual, away), away)
    assert _source(actual) == f"shovel.publish.oregon.1.{SECOND}"


def test_one_node_never_has_both_paths_while_there_are_two_others() -> None:
    known = fabric(regions=("oregon",), client=3)
    for lost in (FIRST, SECOND, THIRD):
        away = frozenset({lost})
        actual = _round(known, with_down(_settled(known), away), away)
        queues = [_source(actual, f"publish.oregon.{n}") for n in (1, 2)]
        homes = {actual[CLIENT].queues[queue].home for queue in queues}
        assert len(homes) == 2
        assert f"{lost}@host" not in homes


def test_while_the_first_core_node_stays_away_the_second_router_queue_takes_everything() -> None:
    known = fabric(regions=("oregon",), core=2)
    away = frozenset({"oregon-core-1"})
    settled = _settled(known)
    actual = _round(known, with_down(settled, away), away)
    assert Binding("intake", "router.2") in actual[CORE].bindings
    # A keeper that has just started, and has seen nobody stay away yet, leaves it so.
    assert _look(known, actual, NOBODY) == ((), ())
    back = with_down(actual, [])
    # Both take everything until the first has been there for a while.
    assert _look(known, back, NOBODY, just_back=away)[0] == ()
    for _ in range(2):
        back = _round(known, back)
    assert back == settled


def test_the_second_router_queue_takes_everything_until_the_first_is_bound_again() -> None:
    known = fabric(regions=("oregon",), core=2)
    away = frozenset({"oregon-core-1"})
    actual = with_down(_round(known, with_down(_settled(known), away), away), [])
    first, second = Binding("intake", "router.1"), Binding("intake", "router.2")
    actual[CORE] = dataclasses.replace(actual[CORE], bindings=actual[CORE].bindings - {first})
    actions, _ = _look(known, actual, NOBODY)
    assert first in [each.wanted for each in actions]
    bound = performed(actual, actions)
    assert {first, second} <= bound[CORE].bindings
    assert second not in _round(known, bound)[CORE].bindings


def test_with_no_node_left_everything_stays_as_it_is() -> None:
    known = fabric(regions=("oregon",), client=2)
    away = frozenset({FIRST, SECOND})
    assert _look(known, with_down(_settled(known), away), away)[1] == ()
    assert _source(with_down(_settled(known), away)) == "shovel.publish.oregon.1"


@given(
    st.integers(1, 3),
    st.lists(st.sets(st.sampled_from([FIRST, SECOND, THIRD])), max_size=5),
)
@settings(max_examples=60)
def test_whatever_failed_before_once_all_are_back_the_plan_is_reached_in_three_rounds(
    nodes: int, failures: list[set[str]]
) -> None:
    known = fabric(regions=("oregon",), client=nodes)
    actual = _settled(known)
    planned = actual
    for failed in failures:
        names = {FIRST, SECOND, THIRD}
        down = frozenset(failed & {name for name in names if int(name[-1]) <= nodes})
        actual = _round(known, with_down(actual, down), down)
    actual = with_down(actual, [])
    for _ in range(3):
        actual = _round(known, actual)
    assert actual == planned


def test_a_node_is_away_once_it_was_missing_for_three_seconds() -> None:
    uptimes = Uptimes()
    up, down = frozenset({"a", "b"}), frozenset({"b"})
    assert uptimes.observe(up, up, 0.0).away == NOBODY
    assert uptimes.observe(up, down, 1.0).away == NOBODY
    assert uptimes.observe(up, down, 0.9 + AWAY_AFTER).away == NOBODY
    assert uptimes.observe(up, down, 1.0 + AWAY_AFTER).away == {"a"}
    assert uptimes.observe(up, up, 2.0 + AWAY_AFTER).away == NOBODY
    assert uptimes.observe(up, down, 3.0 + AWAY_AFTER).away == NOBODY


def test_a_node_is_steady_once_it_was_seen_to_run_for_ten_seconds() -> None:
    uptimes = Uptimes()
    up, down = frozenset({"a", "b"}), frozenset({"b"})
    # Who has just begun to look doesn't know for how long it has run.
    assert uptimes.observe(up, up, 0.0).steady == NOBODY
    assert uptimes.observe(up, up, STEADY_AFTER).steady == up
    assert uptimes.observe(up, down, 11.0).steady == {"b"}
    assert uptimes.observe(up, up, 12.0).steady == {"b"}
    assert uptimes.observe(up, up, 12.0 + STEADY_AFTER).steady == up


def test_of_a_cluster_that_didnt_answer_nothing_new_is_known() -> None:
    uptimes = Uptimes()
    uptimes.observe(["a"], NOBODY, 0.0)
    assert uptimes.observe([], NOBODY, 1.0).away == NOBODY
    assert uptimes.observe(["a"], NOBODY, AWAY_AFTER).away == {"a"}
