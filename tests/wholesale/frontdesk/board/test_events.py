"""The log of events: the last hundred, numbered for ever."""

from __future__ import annotations

from wholesale.frontdesk.board.events import MAX_TEXT, MOST, EventRing


def test_the_last_hundred_stay_newest_last():
    events = EventRing(1000)
    for n in range(MOST + 20):
        events.add("oregon", "node_away", str(n), "…", float(n))
    listed = events.events_document(200.0, 200_000)
    assert len(listed) == MOST
    assert [listed[0]["who"], listed[-1]["who"]] == ["20", "119"]
    assert listed[-1] == {
        "seq": 1000 + MOST + 20,
        "at_ms": 119_000,
        "region": "oregon",
        "kind": "node_away",
        "who": "119",
        "text": "…",
    }


def test_only_newer_ones_can_be_asked_for():
    events = EventRing(0)
    events.add("oregon", "node_away", "a", "…", 0.0)
    last = events.last
    events.add("oregon", "node_back", "a", "…", 0.0)
    assert [event["kind"] for event in events.events_document(0.0, 0, after=last)] == ["node_back"]
    assert events.events_document(0.0, 0, after=events.last) == []


def test_numbers_go_on_in_a_process_that_begins_later():
    before, after = EventRing(1_000_000), EventRing(1_000_500)
    before.add("oregon", "node_away", "a", "…", 0.0)
    after.add("oregon", "node_away", "a", "…", 0.0)
    assert after.last > before.last


def test_texts_are_bounded():
    events = EventRing(0)
    events.add("oregon", "node_away", "a" * 999, "b" * 999, 0.0)
    (event,) = events.events_document(0.0, 0)
    assert (len(event["who"]), len(event["text"])) == (MAX_TEXT, MAX_TEXT)


def test_who_has_most_to_say_pushes_out_its_own_events_first():
    events = EventRing(0)
    events.add("oregon", "process_gone", "oregon-router-1", "…", 0.0)
    for n in range(10 * MOST):
        events.add("oregon", "box_draining", "oregon-retail-7", "…", float(n))
    listed = events.events_document(1000.0, 0)
    assert len(listed) == MOST
    assert listed[0]["who"] == "oregon-router-1"
    assert [event["seq"] for event in listed] == sorted(event["seq"] for event in listed)


def test_a_region_that_has_most_to_say_pushes_out_its_own_events_first():
    events = EventRing(0)
    for n in range(MOST // 2):
        events.add("oregon", "node_away", f"node-{n}", "…", float(n))
    for n in range(10 * MOST):
        events.add("dublin", "node_away", f"invented-{n}", "…", float(n))
    regions = [event["region"] for event in events.events_document(1000.0, 0)]
    assert regions.count("oregon") == regions.count("dublin") == MOST // 2
    assert events.events_document(1000.0, 0)[-1]["who"] == f"invented-{10 * MOST - 1}"
