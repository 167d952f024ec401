"""Other regions: the last answer stays, its age is shown, and nothing hostile gets through it."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pictures import BOX, KEEPER, LOAD, NODE, PLACE, ROUTER, SHOVEL, PlayedPicture

from wholesale.frontdesk.board.answers_elsewhere import BoardReply, parse_answer
from wholesale.frontdesk.board.elsewhere import OtherRegions
from wholesale.frontdesk.board.events import EventRing
from wholesale.frontdesk.board.picture import FrontdeskPlace

DUBLIN = FrontdeskPlace(
    frontdesk="dublin-frontdesk-1",
    region="oregon",
    version="1.0",
    frontdesk_url="",
    planned=PLACE.planned,
    others={},
)


def answered() -> dict[str, Any]:
    """Return a real answer of a frontdesk."""
    played = PlayedPicture()
    keeper = dataclasses.replace(KEEPER, shovels=(SHOVEL,), nodes=(NODE,))
    played.pass_by(6, dataclasses.replace(ROUTER, figures={"router_void": 0.0}), BOX, LOAD, keeper)
    played.pass_by(4, BOX, LOAD, keeper)
    found: dict[str, Any] = orjson.loads(orjson.dumps(played.board_document(own=True)))
    return found


def dublin(document: dict[str, Any] | None = None, **fields: Any) -> BoardReply:
    found = (document or answered()) | fields
    found["regions"][0]["name"] = "dublin"
    return parse_answer(orjson.dumps(found), "dublin")


@pytest.fixture
def events() -> EventRing:
    return EventRing(1000)


@pytest.fixture
def elsewhere(events: EventRing) -> OtherRegions:
    return OtherRegions({"dublin": "http://dublin.example"}, events, 0.0)


def test_a_frontdesks_answer_comes_through_whole():
    document = answered()
    answer = parse_answer(orjson.dumps(document), "oregon")
    region = document["regions"][0]
    for key in ("frontdesk_url", "age_ms"):
        del region[key]
    assert answer.region == region
    assert [event["kind"] for event in answer.events] == ["process_gone"]


def test_another_region_is_shown_with_the_age_of_its_answer(elsewhere: OtherRegions):
    elsewhere.answered("dublin", dublin(), 10.0)
    elsewhere.update_events(10.0)
    (region,) = elsewhere.documents(11.5)
    assert (region["name"], region["age_ms"], region["state"]) == ("dublin", 1500, "troubled")
    assert region["frontdesk_url"] == "http://dublin.example"
    assert region["boxes"][0]["name"] == "oregon-retail-1"


def test_before_its_first_answer_a_region_is_empty(elsewhere: OtherRegions, events: EventRing):
    elsewhere.update_events(1.0)
    (region,) = elsewhere.documents(1.0)
    assert (region["state"], region["why"], region["boxes"]) == ("away", ["not asked yet"], [])
    assert events.events_document(1.0, 0) == []


def test_a_region_is_away_after_two_questions_without_an_answer(
    elsewhere: OtherRegions, events: EventRing
):
    elsewhere.answered("dublin", dublin(), 1.0)
    elsewhere.failed("dublin", "Connection refused")
    elsewhere.update_events(1.5)
    assert elsewhere.documents(1.5)[0]["state"] == "troubled"
    elsewhere.failed("dublin", "Connection refused")
    elsewhere.update_events(2.0)
    (region,) = elsewhere.documents(2.0)
    assert region["state"] == "away"
    assert region["why"] == ["its frontdesk doesn't answer: Connection refused"]
    # The last known state is still shown.
    assert region["boxes"][0]["name"] == "oregon-retail-1"
    elsewhere.answered("dublin", dublin(), 3.0)
    elsewhere.update_events(3.0)
    kinds = [event["kind"] for event in events.events_document(3.0, 0)]
    assert kinds == ["process_gone", "region_away", "region_back"]


def test_a_region_that_never_answered_is_away_after_five_seconds(
    elsewhere: OtherRegions, events: EventRing
):
    elsewhere.update_events(5.5)
    assert elsewhere.documents(5.5)[0]["state"] == "away"
    assert [event["kind"] for event in events.events_document(5.5, 0)] == ["region_away"]


def test_its_events_are_taken_once_and_at_our_times(elsewhere: OtherRegions, events: EventRing):
    document = answered()
    ago = document["now_ms"] - document["events"][0]["at_ms"]
    elsewhere.answered("dublin", dublin(document), 10.0)
    elsewhere.answered("dublin", dublin(document), 12.0)
    (event,) = events.events_document(12.0, 100_000)
    assert event["region"] == "dublin"
    assert event["at_ms"] == 98_000 - ago


def test_a_frontdesk_that_is_another_one_begins_anew(elsewhere: OtherRegions, events: EventRing):
    elsewhere.answered("dublin", dublin(), 1.0)
    other = answered()
    other["events"][0]["seq"] = 1
    elsewhere.answered("dublin", dublin(other, frontdesk="dublin-frontdesk-2"), 2.0)
    assert len(events.events_document(2.0, 0)) == 2


def test_a_key_that_isnt_known_is_dropped():
    document = answered()
    document["regions"][0]["boxes"][0]["script"] = "<script>"
    assert "script" not in parse_answer(orjson.dumps(document), "oregon").region["boxes"][0]


def test_an_event_of_a_later_release_is_left_out():
    document = answered()
    document["events"].append(document["events"][0] | {"kind": "moon_away"})
    assert len(parse_answer(orjson.dumps(document), "oregon").events) == 1


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("regions", 0, "name"), "oregon2"),
        (("regions",), []),
        (("regions", 0, "boxes"), [{}]),
        (("regions", 0, "boxes", 0, "name"), "x" * 256),
        (("regions", 0, "boxes", 0, "readers"), -1),
        (("regions", 0, "boxes", 0, "readers"), True),
        (("regions", 0, "boxes", 0, "figures"), {"x": "1"}),
        (("regions", 0, "boxes", 0, "figures"), {f"f{n}": 1 for n in range(97)}),
        (("regions", 0, "totals", "delay_p50_ms"), "soon"),
        (("regions", 0, "why"), ["x"] * 17),
        (("events",), [{}] * 101),
        (("now_ms",), 1.5),
    ],
)
def test_what_breaks_the_contract_is_refused(path: tuple[Any, ...], value: Any):
    document = answered()
    place: Any = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(ValueError, match=r".+"):
        parse_answer(orjson.dumps(document), "oregon")


@given(st.binary(max_size=200))
def test_bytes_that_are_no_answer_are_refused(body: bytes):
    with pytest.raises(ValueError, match=r".*"):
        parse_answer(body, "oregon")


ANSWER = answered()
values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**64 - 1) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@given(st.data())
def test_an_answer_with_anything_anywhere_is_read_or_refused(data: st.DataObject):
    document = copy.deepcopy(ANSWER)
    place: Any = document
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        inner = place[key]
        if not isinstance(inner, dict | list) or not inner or data.draw(st.booleans()):
            place[key] = data.draw(values)
            break
        place = inner
    try:
        answer = parse_answer(orjson.dumps(document), "oregon")
    except ValueError:
        return
    elsewhere = OtherRegions({"oregon": "u"}, EventRing(0), 0.0)
    elsewhere.answered("oregon", answer, 0.0)
    elsewhere.update_events(0.0)
    assert orjson.dumps(elsewhere.documents(0.0))


def test_two_frontdesks_that_answer_in_turn_say_nothing_twice(
    events: EventRing, elsewhere: OtherRegions
):
    one, two = (dublin(answered(), frontdesk=f"dublin-frontdesk-{n}") for n in (1, 2))
    for second in range(20):
        elsewhere.answered("dublin", (one, two)[second % 2], 10.0 + second)
    kinds = [event["kind"] for event in events.events_document(40.0, 0)]
    assert kinds == ["process_gone", "process_gone"]


def test_frontdesks_without_number_are_no_memory(events: EventRing, elsewhere: OtherRegions):
    for n in range(1000):
        elsewhere.answered("dublin", dublin(frontdesk=f"invented-{n}"), 10.0 + n)
    assert len(elsewhere._others["dublin"].seqs) <= 8
    # The frontdesk that answers now is known.
    before = events.last
    elsewhere.answered("dublin", dublin(frontdesk="invented-999"), 2000.0)
    assert events.last == before
