"""Which nodes run, from what each says of itself and of the others."""

from __future__ import annotations

import pytest
from fabrics import TOPICS, fabric
from hypothesis import given
from hypothesis import strategies as st

from newsfabric.management import NodeState
from newsfabric.reports import NodeSeen
from newsfabric.topology import Cluster, region_links
from shovels.keeper import seen_shovels
from shovels.nodes import ALARM, Misses, judge, show_alarms

CLIENT, CORE = Cluster("oregon", "client"), Cluster("oregon", "core")


def state(n: int, *, running: bool = True, alarm: str = "") -> NodeState:
    return NodeState(f"core-{n}@host", running, alarm)


def seen(n: int, *, running: bool = True, alarm: str = "") -> NodeSeen:
    return NodeSeen(cluster="oregon/core", node=f"core-{n}", running=running, alarm=alarm)


def test_nodes_that_answer_run():
    both = [state(1), state(2)]
    assert judge(CORE, {"core-1": both, "core-2": both}, Misses()) == [seen(1), seen(2)]


def test_the_only_node_is_away_as_soon_as_it_doesnt_answer():
    assert judge(CORE, {"core-1": None}, Misses()) == [seen(1, running=False)]


def test_a_node_that_others_call_dead_is_away_at_once():
    answers = {"core-1": [state(1), state(2, running=False)], "core-2": None}
    assert judge(CORE, answers, Misses()) == [seen(1), seen(2, running=False)]


def test_a_node_that_is_slow_once_is_not_away_while_others_see_it():
    misses = Misses()
    answers = {"core-1": [state(1), state(2)], "core-2": None}
    assert judge(CORE, answers, misses)[1] == seen(2)
    assert judge(CORE, answers, misses)[1] == seen(2, running=False)
    judge(CORE, {"core-1": [state(1)], "core-2": [state(2)]}, misses)
    assert judge(CORE, answers, misses)[1] == seen(2)


@pytest.mark.parametrize("alarm", ["memory", "disk"])
def test_an_alarm_is_told_by_whoever_sees_it(alarm: str):
    answers = {"core-1": [state(1), state(2, alarm=alarm)], "core-2": [state(2, alarm=alarm)]}
    assert judge(CORE, answers, Misses())[1] == seen(2, alarm=alarm)


def test_an_alarm_is_a_metric_until_it_is_over():
    def shown() -> dict[tuple[str, ...], float]:
        (family,) = ALARM.collect()
        return {tuple(sample.labels.values()): sample.value for sample in family.samples}

    show_alarms([seen(1), seen(2, alarm="disk")])
    assert shown() == {("oregon/core", "core-2", "disk"): 1.0}
    show_alarms([seen(1), seen(2, alarm="memory")])
    assert shown() == {("oregon/core", "core-2", "memory"): 1.0}
    show_alarms([seen(1), seen(2)])
    assert shown() == {}


answers = st.dictionaries(
    st.sampled_from(["core-1", "core-2", "core-3"]),
    st.none()
    | st.lists(
        st.builds(
            NodeState,
            st.sampled_from(["core-1@a", "core-2@b", "core-3", "other@x"]),
            st.booleans(),
            st.sampled_from(["", "memory"]),
        ),
        max_size=4,
    ),
)


@given(st.lists(answers, max_size=5))
def test_every_node_that_was_asked_is_told_of_once(looks: list[dict[str, list[NodeState] | None]]):
    misses = Misses()
    for said in looks:
        found = judge(CORE, said, misses)
        assert [one.node for one in found] == list(said)
        for one in found:
            # Whoever answers runs; whoever is away has no alarm.
            assert one.running or said[one.node] is None
            assert one.running or not one.alarm


def test_shovels_are_shown_with_what_is_known_of_them():
    links = [
        link
        for link in region_links(fabric(), "oregon", TOPICS)
        if link.name in ("publish.oregon.1", "receipts.1")
    ]
    ages = [{"canary_age_ms": 70 + n, "restarts": n} for n in range(len(links))]
    by_name = {
        shovel.name: shovel
        for shovel in seen_shovels(
            links,
            ages,
            {CORE: {"publish.oregon.1": "running"}, CLIENT: None},
            {CLIENT: {"shovel.publish.oregon.1": 2.5, "other": 100.0}},
        )
    }
    carrying, answering = by_name["publish.oregon.1"], by_name["receipts.1"]
    assert (carrying.runs_on, carrying.source) == ("oregon/core", "oregon/client")
    assert (carrying.state, carrying.messages_per_second) == ("running", 2.5)
    # Its cluster doesn't answer, nor the one that it takes from.
    assert (answering.state, answering.messages_per_second) == ("unknown", None)
    assert {carrying.canary_age_ms, answering.canary_age_ms} == {70, 71}


def test_a_shovel_that_isnt_there_is_missing():
    (link, *_) = region_links(fabric(), "oregon", TOPICS)
    (shovel,) = seen_shovels(
        [link], [{"canary_age_ms": None, "restarts": 0}], {link.runs_on: {}}, {}
    )
    assert (shovel.state, shovel.canary_age_ms) == ("missing", None)
