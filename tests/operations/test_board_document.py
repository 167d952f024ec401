"""The checks of a board's document: wrong parts aren't believed."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from board_documents import board, box, event, region, service, shovel
from hypothesis import given
from hypothesis import strategies as st

from newsfabric.messages.reports import MAX_TEXT
from operations.board_document import MAX_EVENTS, parse_board, plain, with_events_before

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
)
KEYS = ["regions", "boxes", "name", "readers", "events", "totals", "figures", "clusters", "nodes"]


def test_a_board_is_read_as_the_contract_has_it() -> None:
    made = parse_board(
        board(
            region(
                "oregon",
                boxes=[box("b1", readers=3, figures={"gateway_readers": 3.0})],
                services=[service("oregon-router-1")],
                shovels=[shovel("s")],
                clusters=[
                    {
                        "name": "oregon/core",
                        "nodes": [{"node": "n1", "running": True, "alarm": "disk"}],
                    }
                ],
                topics=[{"name": "news.a", "messages_per_second": 1.5}],
            ),
            events=[event(1, "b1", "b1 has been silent for 3 s")],
        )
    )
    (oregon,) = made.regions
    (only,) = oregon.boxes
    assert (only.name, only.region, only.readers, only.figures) == (
        "b1",
        "oregon",
        3.0,
        {"gateway_readers": 3.0},
    )
    assert (oregon.nodes[0].cluster, oregon.nodes[0].alarm) == ("oregon/core", "disk")
    assert (oregon.services[0].kind, oregon.shovels[0].canary_age) == ("router", 300.0)
    assert (oregon.topics[0].messages, made.events[0].who) == (1.5, "b1")


@pytest.mark.parametrize("document", [None, [], "x", {}, {"regions": {}}])
def test_what_is_no_board_is_an_error(document: Any) -> None:
    with pytest.raises(ValueError, match="not a board"):
        parse_board(document)


@given(st.dictionaries(st.sampled_from(KEYS) | st.text(), JSON), JSON)
def test_whatever_is_wrong_in_a_board_is_unknown_and_no_error(
    fields: dict[str, Any], other: Any
) -> None:
    parse_board({**fields, "regions": [fields, other, {**fields, "boxes": [fields, other]}]})


@pytest.mark.parametrize("lie", [-1, math.nan, math.inf, 1e300, True, "7", None])
def test_a_number_that_cannot_be_is_unknown(lie: Any) -> None:
    made = parse_board(board(region("oregon", boxes=[box("b", readers=lie, figures={"f": lie})])))
    assert made.regions[0].boxes[0].readers is None
    assert all(map(math.isfinite, made.regions[0].boxes[0].figures.values()))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("news.æøå 日本", "news.æøå 日本"),
        ("\x1b[2Jgone", r"\x1b[2Jgone"),
        ("a\nb\t", r"a\nb\t"),
        ("\x9b31m", r"\x9b31m"),
        ("\u202egnp", r"\u202egnp"),
        ("\u2028", r"\u2028"),
        (7, ""),
    ],
)
def test_a_text_that_a_terminal_would_obey_is_shown_instead(text: Any, shown: str) -> None:
    assert plain(text) == shown


@given(st.text())
def test_every_text_can_be_printed_and_is_bounded(text: str) -> None:
    assert plain(text).isprintable()
    assert len(plain(text)) <= 10 * MAX_TEXT


def test_events_of_one_frontdesk_are_kept_until_they_are_too_many() -> None:
    before = parse_board(board(events=[event(n, "a", "x") for n in range(1, 100)]))
    after = with_events_before(parse_board(board(events=[event(100, "b", "y")])), before)
    assert [one.seq for one in after.events] == list(range(1, 101))
    after = with_events_before(parse_board(board(events=[event(101, "b", "y")])), after)
    assert (len(after.events), after.events[0].seq) == (MAX_EVENTS, 2)


def test_a_frontdesk_that_began_anew_or_another_one_has_its_own_events() -> None:
    before = parse_board(board(events=[event(7, "a", "x")]))
    anew = parse_board(board(events=[event(1, "b", "y")]))
    assert [one.seq for one in with_events_before(anew, before).events] == [1]
    other = parse_board(board(frontdesk="dublin-frontdesk-1", events=[event(8, "b", "y")]))
    assert [one.seq for one in with_events_before(other, before).events] == [8]


def test_a_board_of_a_thousand_boxes_is_read() -> None:
    document = board(region("oregon", boxes=[box(f"b{n}") for n in range(1000)]))
    assert len(parse_board(json.loads(json.dumps(document))).regions[0].boxes) == 1000


def test_what_is_in_a_region_is_as_much_older_as_the_region_is() -> None:
    nodes = [{"node": "n", "running": True, "alarm": "", "age_ms": 300}, {"node": "m"}]
    made = region(
        "oregon",
        age_ms=4_600,
        boxes=[box("a", age_ms=300), box("b", age_ms=500), box("c", age_ms=500, state="gone")],
        clusters=[{"name": "oregon/core", "nodes": nodes}],
    )
    (found,) = parse_board(board(made)).regions
    assert [(one.state, one.age) for one in found.boxes] == [
        ("ready", 4_900),
        ("unheard", 5_100),
        ("gone", 5_100),
    ]
    assert [one.age for one in found.nodes] == [4_900, 4_600]
    assert not found.is_unheard
