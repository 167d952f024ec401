import itertools
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from localfabric.chaos.schedule import Fault, make_outages, make_schedule
from newsfabric.kinds import BOX, CORE

PROCESSES = {*CORE, *BOX, "dataplane", "core node", "client node", "retail node", "store node"}
KINDS = (
    *sorted(PROCESSES),
    *("box", "link", "store link", "feed link", "router queue", "mailbox queue", "feed queue"),
    *("gateway queue", "upstream queue", "region queue", "receipts queue"),
)
QUEUES = {kind for kind in KINDS if kind.endswith("queue")}
NAMES = {kind: [f"{kind}-{n}" for n in (1, 2)] for kind in KINDS}

schedules = st.builds(
    make_schedule,
    st.sets(st.sampled_from(KINDS)).map(lambda kinds: {k: NAMES[k] for k in sorted(kinds)}),
    seconds=st.floats(20, 3600),
    seed=st.integers(),
)


def _within(faults: tuple[Fault, ...]) -> list[Fault]:
    """Return the faults that begin while another one lasts."""
    return [
        fault for fault in faults if any(f.at < fault.at < f.until for f in faults if f != fault)
    ]


@given(schedules)
def test_one_thing_is_broken_at_a_time_and_has_time_to_recover_but_for_outages(
    faults: tuple[Fault, ...],
) -> None:
    outer = [fault for fault in faults if fault not in _within(faults)]
    assert all(b.at >= a.until + 5 for a, b in itertools.pairwise(outer))


@given(st.floats(20, 3600), st.integers())
def test_all_is_healed_before_the_run_is_over(seconds: float, seed: int) -> None:
    faults = make_schedule(NAMES, seconds=seconds, seed=seed)
    assert all(fault.at >= 10 and fault.until <= seconds - 10 for fault in faults)


@given(st.integers())
def test_the_same_seed_makes_the_same_schedule(seed: int) -> None:
    assert make_schedule(NAMES, seconds=600, seed=seed) == make_schedule(
        NAMES, seconds=600, seed=seed
    )


def test_another_seed_makes_another_one() -> None:
    assert make_schedule(NAMES, seconds=600, seed=1) != make_schedule(NAMES, seconds=600, seed=2)


def test_ten_minutes_hold_every_kind_of_fault_and_of_outage() -> None:
    faults = make_schedule(NAMES, seconds=600, seed=1)
    assert {fault.kind for fault in faults if fault.verb == "kill"} == {*PROCESSES, "box"}
    assert {fault.kind for fault in faults if fault.verb == "lose"} == QUEUES
    assert {f.kind for f in faults if f.verb == "cut"} == {"link", "store link", "feed link"}
    assert {f.kind for f in faults if f.verb == "slow"} == {"link"}
    assert {f.kind for f in faults if f.verb == "stop"} == {"router", "gateway"}
    # Long enough for another router to close its log: one is frozen, one is dead.
    assert [f.verb for f in faults if f.kind == "router" and f.lasts >= 85] == ["stop", "kill"]
    begun = {(f.verb, f.kind) for f in _within(faults)}
    assert {("kill", "gateway"), ("kill", "router"), ("lose", "region queue")} <= begun


def test_without_cassandra_too_ten_minutes_hold_all_that_there_is() -> None:
    there = {k: v for k, v in NAMES.items() if "store" not in k and k != "feed link"}
    faults = make_schedule(there, seconds=600, seed=1)
    assert {fault.kind for fault in faults} == there.keys()


def test_an_hour_kills_each_kind_of_process_twice_each_time_another() -> None:
    faults = make_schedule(NAMES, seconds=3600, seed=1)
    killed = Counter(fault.kind for fault in faults if fault.verb == "kill")
    assert all(killed[kind] >= 2 for kind in PROCESSES)
    assert {f.name for f in faults if f.kind == "core node"} == {"core node-1", "core node-2"}


def test_two_minutes_kill_a_core_node_both_processes_of_a_gateway_and_the_services() -> None:
    faults = make_schedule(NAMES, seconds=120, seed=1)
    kinds = {fault.kind for fault in faults if fault.verb == "kill"}
    assert {"core node", "gateway", "dataplane", "router", "mailbox"} <= kinds
    assert {fault.kind for fault in faults if fault.verb == "lose"} == {"router queue"}
    assert _within(faults) == []


def test_outages_follow_each_other_and_are_healed_before_the_run_is_over() -> None:
    faults = make_outages(NAMES, seconds=600, seed=3)
    assert all(fault.at >= 10 and fault.until <= 590 for fault in faults)
    routers = [f for f in faults if f.kind == "router" and f.lasts > 60]
    assert {f.verb for f in routers} == {"stop", "kill"}
    # Longer than a lease, and than other routers take to close its log.
    assert all(f.lasts >= 85 for f in routers)
    assert all(b.at >= a.until + 15 for a, b in itertools.pairwise(routers))


def test_gateways_and_routers_begin_while_a_region_is_cut_off() -> None:
    faults = make_outages(NAMES, seconds=600, seed=3)
    cut = next(fault for fault in faults if (fault.verb, fault.kind) == ("cut", "link"))
    within = [f for f in faults if f is not cut and cut.at < f.at and f.until < cut.until]
    assert [(f.verb, f.kind) for f in within] == [
        ("kill", "gateway"),
        ("kill", "router"),
        ("kill", "dataplane"),
    ]


def test_of_outages_too_a_kind_that_there_is_none_of_is_left_out() -> None:
    faults = make_outages({"router": ["r"]}, seconds=600, seed=1)
    assert {fault.kind for fault in faults} == {"router"}
    assert make_outages({}, seconds=600, seed=1) == ()
    assert make_outages(NAMES, seconds=60, seed=1) == ()


def test_a_kind_that_there_is_none_of_is_left_out() -> None:
    faults = make_schedule({"router": ["r"], "link": []}, seconds=600, seed=1)
    assert {fault.kind for fault in faults} == {"router"}
