"""The diff between plan and brokers: its actions, their order, and their output."""

from __future__ import annotations

import dataclasses

from fabrics import (
    CREDENTIALS,
    TOPICS,
    answering,
    broker,
    fabric,
    fresh_fabric,
    performed,
    topics_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from unit_share import examples

from newsfabric.brokers.management import QueueState
from newsfabric.settings import Credentials, Fabric
from newsfabric.topics import TopicTable
from newsfabric.topology import Binding, Broker, brokers_of, region_links, shovel_plan
from shovels.plan import Action, Actual, Change, diff, must_wait

OREGON_CORE = broker("oregon-core-1")
DUBLIN_CLIENT = broker("dublin-client-1")

FABRICS = st.builds(
    lambda regions, client, core: fabric(regions=regions, client=client, core=core),
    st.lists(st.sampled_from(["oregon", "dublin", "tokyo"]), min_size=1, max_size=3, unique=True),
    st.integers(1, 3),
    st.integers(1, 3),
)
GOLD = st.lists(st.sampled_from(["news.breaking", "live.*", "user.*", "#"]), unique=True)


def _actions(
    known: Fabric,
    actual: dict[Broker, Actual],
    *,
    topics: TopicTable = TOPICS,
    region: str = "oregon",
    credentials: Credentials = CREDENTIALS,
) -> tuple[Action, ...]:
    return diff(region, shovel_plan(known, region, topics), actual, credentials)


def _applied(known: Fabric, topics: TopicTable = TOPICS) -> dict[Broker, Actual]:
    actual = fresh_fabric(known)
    for _ in range(2):
        for region in known.regions:
            wanted = shovel_plan(known, region.name, topics)
            # Another region declares its own source exchange: bindings to it wait until it exists.
            possible = [
                action
                for action in diff(region.name, wanted, actual, CREDENTIALS)
                if not isinstance(action.wanted, Binding)
                or action.wanted.exchange in actual[action.broker].exchanges
                or action.broker.cluster.region == region.name
            ]
            actual = performed(actual, possible)
    return actual


def _edited(actual: dict[Broker, Actual], at: Broker, **changes: object) -> dict[Broker, Actual]:
    return {**actual, at: dataclasses.replace(actual[at], **changes)}  # type: ignore[arg-type]


@given(FABRICS, GOLD)
@settings(max_examples=examples(60))
def test_after_the_plan_was_applied_there_is_nothing_left_to_do(
    known: Fabric, gold: list[str]
) -> None:
    topics = topics_of(*gold)
    actual = _applied(known, topics)
    for region in known.regions:
        assert _actions(known, actual, topics=topics, region=region.name) == ()


@given(FABRICS, GOLD, GOLD)
@settings(max_examples=examples(60))
def test_a_change_of_topics_is_applied_in_one_go(
    known: Fabric, before: list[str], after: list[str]
) -> None:
    region = known.regions[0].name
    actual = _applied(known, topics_of(*before))
    actions = _actions(known, actual, topics=topics_of(*after), region=region)
    assert {action.kind for action in actions} <= {"binding"}
    then = performed(actual, actions)
    assert _actions(known, then, topics=topics_of(*after), region=region) == ()


@given(FABRICS, GOLD)
@settings(max_examples=examples(30))
def test_two_looks_at_the_same_brokers_give_the_same_actions(
    known: Fabric, gold: list[str]
) -> None:
    topics = topics_of(*gold)
    region = known.regions[0].name
    once = _actions(known, fresh_fabric(known), topics=topics, region=region)
    again = _actions(known, fresh_fabric(known), topics=topics, region=region)
    assert once == again


@given(FABRICS)
@settings(max_examples=examples(30))
def test_a_shovel_comes_after_both_its_ends_and_leaves_before_them(known: Fabric) -> None:
    region = known.regions[0].name
    making = _actions(known, fresh_fabric(known), region=region)
    order = [action.kind for action in making]
    assert order == sorted(order, key=["exchange", "queue", "binding", "shovel"].index)
    nothing = diff(region, {}, _applied(known), CREDENTIALS)
    order = [action.kind for action in nothing]
    assert {action.verb for action in nothing} == {"delete"}
    assert order == sorted(order, key=["shovel", "binding", "queue"].index)


def test_what_isnt_ours_by_name_stays() -> None:
    known = fabric()
    actual = _applied(known)
    core = actual[OREGON_CORE]
    queues = dict(core.queues)
    queues["box.oregon-retail-1.1"] = QueueState("box.oregon-retail-1.1", {})
    queues["desk"] = QueueState("desk", {})
    actual = _edited(
        actual,
        OREGON_CORE,
        exchanges={**core.exchanges, "desk": "fanout"},
        queues=queues,
        bindings=core.bindings | {Binding("intake", "desk")},
        shovels={**core.shovels, "to-the-archive": {"src-uri": "amqp://"}},
    )
    assert _actions(known, actual) == ()


def test_a_shovel_of_a_region_that_is_gone_is_removed_with_its_queues() -> None:
    before = _applied(fabric())
    left = fabric(regions=("oregon",))
    actual = {each: before[each] for each in brokers_of(left)}
    removed = [(a.verb, a.kind, a.name) for a in _actions(left, actual)]
    assert removed == [
        ("delete", "shovel", "outbound.dublin.1"),
        ("delete", "shovel", "publish.dublin.1"),
    ]


def test_a_binding_that_replaces_another_leaves_no_gap() -> None:
    known = fabric()
    actions = _actions(known, _applied(known, topics_of("a")), topics=topics_of("b"))
    assert [(a.verb, a.name) for a in actions] == [
        ("create", "publish -b-> shovel.publish.oregon.1"),
        ("create", "intake -b-> router.2"),
        ("delete", "publish -a-> shovel.publish.oregon.1"),
        ("delete", "intake -a-> router.2"),
    ]


def test_a_queue_with_other_bounds_is_made_anew() -> None:
    known = fabric(core=2)
    actual = _applied(known)
    queues = dict(actual[OREGON_CORE].queues)
    other = dict(queues["router.2"].arguments) | {"x-max-length": 7}
    queues["router.2"] = dataclasses.replace(queues["router.2"], arguments=other)
    (action,) = _actions(known, _edited(actual, OREGON_CORE, queues=queues))
    assert (str(action.broker), action.verb, action.name) == ("oregon-core-1", "update", "router.2")
    assert action.changes == (Change("x-max-length", "7", "100000"),)


def _moving(known: Fabric) -> dict[tuple[str, str], Action]:
    """Return the actions, by verb and kind, of a shovel that moves to a stand-in."""
    actual = _applied(known)
    link = next(each for each in region_links(known, "oregon", TOPICS) if each.name == "receipts.1")
    wanted = shovel_plan(known, "oregon", TOPICS, places={link.id: link.places()[1:]})
    actions = diff("oregon", wanted, actual, CREDENTIALS)
    return {(action.verb, action.kind): action for action in actions}


def test_a_shovel_doesnt_change_over_to_a_queue_that_couldnt_be_made_or_bound() -> None:
    moving = _moving(fabric(core=3))
    update = moving["update", "shovel"]
    for kind in ("queue", "binding"):
        assert must_wait(update, [moving["create", kind]])
    assert not must_wait(update, [])


def test_nothing_is_taken_away_while_something_couldnt_be_made() -> None:
    moving = _moving(fabric(core=3))
    delete = moving["delete", "queue"]
    for made in (("create", "queue"), ("create", "binding"), ("update", "shovel")):
        assert must_wait(delete, [moving[made]])
    assert not must_wait(delete, [])
    assert not must_wait(delete, [dataclasses.replace(delete, name="another")])


def test_what_couldnt_be_made_keeps_nothing_else_from_being_made() -> None:
    known = fabric()
    actions = _actions(known, fresh_fabric(known))
    assert {action.verb for action in actions} == {"create"}
    assert not any(must_wait(action, actions) for action in actions)


def test_a_broker_that_is_away_is_left_alone() -> None:
    known = fabric()
    actual = answering(fresh_fabric(known), {DUBLIN_CLIENT})
    actions = _actions(known, actual)
    assert {action.broker for action in actions} == set(actual)
    # The shovel is made although its source is away: it retries by itself.
    assert ("shovel", "publish.dublin.1") in {(a.kind, a.name) for a in actions}


@given(st.text(st.characters(codec="utf-8"), min_size=4), st.text(min_size=1))
def test_no_password_is_ever_shown(old: str, user: str) -> None:
    known = fabric()
    actual = _applied(known)
    secret = Credentials(user, old + "-pässwörd")
    actions = _actions(known, actual, credentials=secret)
    assert {action.kind for action in actions} == {"shovel"}
    for change in (change for action in actions for change in action.changes):
        assert change.field in {"src-uri", "dest-uri"}
        assert change.after is not None
        assert change.after.startswith("amqp://***@")
        assert change.after.endswith("(another login)")
        assert CREDENTIALS.password not in repr(change)


def test_the_login_is_hidden_in_what_python_prints_too() -> None:
    actual = _applied(fabric())
    assert "s3cret" not in repr(actual)
    assert "s3cret" not in repr(_actions(fabric(), fresh_fabric(fabric())))
