import itertools
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from newsfabric.chaos.schedule import Fault, make_outages, make_schedule

KINDS = (
    *("core node", "client node", "retail node", "router", "frontdesk", "keeper"),
    *("agent", "gateway", "dataplane", "mailbox", "store node", "box", "link"),
)
NAMES = {kind: [f"{kind}-{n}" for n in (1, 2)] for kind in KINDS}

schedules = st.builds(
    make_schedule,
    st.sets(st.sampled_from(KINDS)).map(lambda kinds: {k: NAMES[k] for k in sorted(kinds)}),
    seconds=st.floats(20, 3600),
    seed=st.integers(),
)


@given(schedules)
def test_one_thing_is_broken_at_a_time_and_has_time_to_recover(faults: tuple[Fault, ...]) -> None:
    assert all(b.at >= a.until + 5 for a, b in itertools.pairwise(faults))


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


def test_in_ten_minutes_each_kind_of_process_is_killed_twice_each_time_another() -> None:
    faults = make_schedule(NAMES, seconds=600, seed=1)
    killed = Counter(fault.kind for fault in faults if fault.verb == "kill")
    processes = set(KINDS) - {"box", "link"}
    assert {kind: killed[kind] for kind in processes} == dict.fromkeys(processes, 2)
    assert {f.name for f in faults if f.kind == "router" and f.verb == "kill"} == {
        "router-1",
        "router-2",
    }


def test_in_ten_minutes_a_region_is_cut_off_for_half_a_minute_and_a_box_destroyed() -> None:
    faults = make_schedule(NAMES, seconds=600, seed=1)
    assert [fault.lasts for fault in faults if fault.verb == "cut"] == [30]
    assert [fault.verb for fault in faults if fault.kind == "box"] == ["kill"]


def test_two_minutes_kill_a_core_node_both_processes_of_a_gateway_and_the_services() -> None:
    faults = make_schedule(NAMES, seconds=120, seed=1)
    kinds = {fault.kind for fault in faults if fault.verb == "kill"}
    assert {"core node", "gateway", "dataplane", "router", "mailbox"} <= kinds


def test_outages_follow_each_other_and_are_healed_before_the_run_is_over() -> None:
    faults = make_outages(NAMES, seconds=600, seed=3)
    assert all(fault.at >= 10 and fault.until <= 590 for fault in faults)
    routers = [f for f in faults if f.kind == "router" and f.lasts > 60]
    assert {f.verb for f in routers} == {"stop", "kill"}
    # Longer than a lease, and than it takes others to close its log.
    assert all(f.lasts >= 85 for f in routers)
    assert all(b.at >= a.until + 15 for a, b in itertools.pairwise(routers))


def test_gateways_and_routers_begin_while_a_region_is_cut_off() -> None:
    faults = make_outages(NAMES, seconds=600, seed=3)
    cut = next(fault for fault in faults if fault.verb == "cut")
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
