"""The choice of the box to which the next reader is sent."""

from __future__ import annotations

import collections
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loads import load

from newsfabric.messages.control import LoadReport
from wholesale.frontdesk.presence.boxes import MAX_OFFERED, Boxes


def report(box: str = "oregon-retail-1", connections: int = 0, **fields: object) -> LoadReport:
    urls = {
        "sockjs_url": f"http://{box}/sockjs",
        "websocket_url": f"ws://{box}/websocket",
        "sse_url": f"http://{box}/events",
    }
    return load(**{"box": box, "connections": connections, "capacity": 1000} | urls | fields)


def boxes(*reports: LoadReport, now: float = 0.0) -> Boxes:
    made = Boxes("oregon")
    for each in reports:
        assert made.report(each, now=now)
    return made


def offered(known: Boxes, now: float = 0.0) -> list[str]:
    return [offer.report.box for offer in known.offers(now=now)]


def test_who_takes_the_first_box_has_chosen_by_weight():
    known = Boxes("oregon", rng=random.Random(5))
    for each in (report("a"), report("b", capacity=3000)):
        known.report(each, now=0.0)
    first = collections.Counter(offered(known)[0] for _ in range(4_000))
    assert first["b"] / 4_000 == pytest.approx(0.75, abs=0.03)


def test_a_box_that_has_just_become_ready_begins_with_its_even_share():
    known = boxes(report("a", 900), report("b", 0, state="starting"))
    for now in range(1, 100):
        state = "ready" if now >= 60 else "starting"
        known.report(report("a", 900, sent_ms=now), now=now)
        known.report(report("b", 0, state=state, sent_ms=now), now=now)
        shares = {offer.report.box: offer.weight for offer in known.offers(now=now)}
        if now == 60:
            assert shares["b"] == pytest.approx(0.5)
    assert shares["b"] == pytest.approx(0.75)


@pytest.mark.parametrize("state", ["starting", "draining"])
def test_only_ready_boxes_are_given_out(state: str):
    assert offered(boxes(report("a", state=state), report("b", 900))) == ["b"]


def test_a_full_box_isnt_given_out():
    assert offered(boxes(report("a", 1000), report("b", 0, capacity=0))) == []


def test_a_silent_box_is_gone_after_five_seconds():
    known = boxes(report("a"), now=100.0)
    assert offered(known, now=105.0) == ["a"]
    assert offered(known, now=105.1) == []


def test_a_box_that_begins_to_drain_is_out_at_once():
    known = boxes(report("a"), report("b"))
    known.report(report("a", state="draining", sent_ms=2), now=0.1)
    assert offered(known, now=0.1) == ["b"]


def test_a_late_report_doesnt_undo_a_newer_one():
    known = boxes(report("a", state="draining", sent_ms=5))
    assert not known.report(report("a", sent_ms=4), now=0.0)
    assert offered(known) == []


def test_a_report_of_another_region_is_ignored():
    assert not Boxes("dublin").report(report(), now=0.0)


def test_no_more_are_given_out_than_a_reader_tries():
    known = boxes(*(report(f"box-{n}") for n in range(MAX_OFFERED + 5)))
    assert len(offered(known)) == MAX_OFFERED


def test_at_the_bound_new_boxes_are_ignored_and_known_ones_still_heard():
    known = Boxes("oregon", most=1)
    assert known.report(report("a"), now=0.0)
    assert not known.report(report("b"), now=0.0)
    assert known.report(report("a", 5, sent_ms=2), now=0.0)
    assert known.count(now=0.0) == 1


STATES = st.sampled_from(["starting", "ready", "draining"])
STEPS = st.lists(
    st.tuples(st.sampled_from("abcd"), STATES, st.integers(0, 120), st.floats(0, 3)), max_size=40
)


@given(STEPS)
def test_whoever_is_offered_reported_lately_is_ready_and_has_room(
    steps: list[tuple[str, str, int, float]],
):
    known, now, last = Boxes("oregon"), 0.0, {}
    for n, (box, state, connections, pause) in enumerate(steps):
        now += pause
        sent = report(box, connections, state=state, capacity=100, sent_ms=n)
        assert known.report(sent, now=now)
        last[box] = (sent, now)
        found = known.offers(now=now)
        for each in (offer.report for offer in found):
            assert last[each.box][0] == each
            assert now - last[each.box][1] <= 5.0
            assert each.state == "ready"
            assert each.connections < 100
        fresh = [r for r, at in last.values() if r.state == "ready" and now - at <= 5.0]
        assert bool(found) == any(r.connections < 100 for r in fresh)
