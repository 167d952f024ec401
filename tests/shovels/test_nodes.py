"""The brokers that run, by the reply of each, and the page for operators."""

from __future__ import annotations

from fabrics import TOPICS, broker, fabric
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import Gauge

from newsfabric.messages.reports import NodeSeen
from newsfabric.topology import region_links
from shovels.keeper import seen_shovels
from shovels.nodes import ALARM, QUEUES, Misses, NodeReply, show_alarms, show_queues

CLIENT, CORE = broker("oregon-client-1"), broker("oregon-core-1")
SILENT, REFUSED = NodeReply(None), NodeReply(None, refused=True)


def seen(n: int, *, running: bool = True, alarm: str = "") -> NodeSeen:
    return NodeSeen(cluster="oregon/core", node=f"core-{n}", running=running, alarm=alarm)


def test_a_broker_that_answers_runs_alarm_or_not():
    misses = Misses()
    assert misses.runs(CORE, NodeReply(""))
    assert misses.runs(CORE, NodeReply("memory"))


def test_a_broker_that_refuses_is_away_at_once():
    misses = Misses()
    assert misses.runs(CORE, NodeReply(""))
    assert not misses.runs(CORE, REFUSED)


def test_a_broker_that_doesnt_answer_is_away_after_three_looks_and_back_after_one():
    misses = Misses()
    answers = [NodeReply(""), SILENT, SILENT, SILENT, SILENT, NodeReply(""), SILENT]
    found = [misses.runs(CORE, answer) for answer in answers]
    assert found == [True, True, True, False, False, True, True]


def test_a_broker_that_has_never_answered_is_away():
    assert not Misses().runs(CORE, SILENT)


@given(st.lists(st.sampled_from([NodeReply(""), NodeReply("disk"), SILENT, REFUSED]), max_size=12))
def test_what_one_broker_answers_says_nothing_of_another(answers: list[NodeReply]):
    misses = Misses()
    misses.runs(CORE, NodeReply(""))
    for answer in answers:
        misses.runs(CLIENT, answer)
    assert misses.runs(CORE, SILENT)


def shown(gauge: Gauge) -> dict[tuple[str, ...], float]:
    (family,) = gauge.collect()
    return {tuple(sample.labels.values()): sample.value for sample in family.samples}


def test_a_broker_that_doesnt_say_how_many_queues_it_has_has_no_series():
    show_queues({CLIENT: 9_990, CORE: 12})
    show_queues({CLIENT: 9_991, CORE: None})
    assert shown(QUEUES) == {("oregon/client", "oregon-client-1"): 9991.0}


def test_an_alarm_is_a_metric_until_it_is_over():
    show_alarms([seen(1), seen(2, alarm="disk")])
    assert shown(ALARM) == {("oregon/core", "core-2", "disk"): 1.0}
    show_alarms([seen(1), seen(2, alarm="memory")])
    assert shown(ALARM) == {("oregon/core", "core-2", "memory"): 1.0}
    show_alarms([seen(1), seen(2)])
    assert shown(ALARM) == {}


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
            [link.preferred for link in links],
            ages,
            {CORE: {"publish.oregon.1": "running"}},
        )
    }
    carrying, answering = by_name["publish.oregon.1"], by_name["receipts.1"]
    assert (carrying.runs_on, carrying.source) == ("oregon/core", "oregon/client")
    assert carrying.state == "running"
    # The shovel's broker doesn't reply.
    assert answering.state == "unknown"
    assert {carrying.canary_age_ms, answering.canary_age_ms} == {70, 71}


def test_a_shovel_that_isnt_there_is_missing():
    (link, *_) = region_links(fabric(), "oregon", TOPICS)
    (shovel,) = seen_shovels(
        [link],
        [link.preferred],
        [{"canary_age_ms": None, "restarts": 0}],
        {link.preferred.host: {}},
    )
    assert (shovel.state, shovel.canary_age_ms) == ("missing", None)
