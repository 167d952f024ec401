"""The contents of the screen."""

from __future__ import annotations

from typing import Any

import pytest
from board_documents import board, box, event, region, service, shovel
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from operations.board_document import parse_board
from operations.top import words
from operations.top.lines import TABLES, Sort, View, fitting
from operations.top.screen import TRAIL, BoardState, Trail, listing, screen
from operations.top.state import BY_KEY, FOLLOWED, FollowedThing, ViewState


def board_document() -> dict[str, Any]:
    boxes = [
        box(f"oregon-retail-{n}", readers=100 * n, deliveries_per_second=10.0 * n, delay_p99_ms=9.0)
        for n in range(1, 31)
    ]
    boxes[29] |= {"state": "gone", "age_ms": 4000}
    boxes[28] |= {"state": "draining", "waiting_for": ["feed"]}
    return board(
        region(
            "oregon",
            state="troubled",
            why=["oregon-retail-30 is silent", "b", "c"],
            boxes=boxes,
            services=[service("oregon-router-1")],
            shovels=[shovel("publish.oregon.0", canary_age_ms=12_000)],
            topics=[{"name": "news.breaking", "messages_per_second": 12.5}],
        ),
        region("dublin", topics=[{"name": "news.breaking", "messages_per_second": 2.0}]),
        events=[event(1, "oregon-retail-30", "oregon-retail-30 has been silent for 3 s")],
    )


def shown(state: ViewState, width: int = 80, height: int = 24, **feed: Any) -> list[str]:
    made = BoardState(board=parse_board(board_document()), **feed)
    return [row.plain for row in screen(made, state, Trail(), width, height)]


def test_a_terminal_of_80_columns_has_what_matters_of_a_box() -> None:
    rows = shown(ViewState())
    assert rows[0].rstrip() == (
        "newsfabric top  oregon-frontdesk-1 in oregon  0.1.0                 11:06:40 UTC"
    )
    assert rows[1:7] == [
        "REGION    STATE      AGE   BOXES  READERS LOAD  MSG/S  SENT/S CONN/S   P50   P99",
        "oregon    troubled  0.0s     1/1        0   0%      0       0      0     -     -",
        "  oregon-retail-30 is silent" + " " * 52,
        "  b" + " " * 77,
        "  and 1 more" + " " * 68,
        "dublin    well      0.0s     1/1        0   0%      0       0      0     -     -",
    ]
    assert rows[8:11] == [
        "BOX               STATE    READERS▼ LOAD  MSG/S  SENT/S CONN/S   P50   P99   AGE",
        "oregon-retail-30  gone         3000 300%      0     300      0     -   9.0  4.0s",
        "oregon-retail-29  draining     2900 290%      0     290      0     -   9.0  0.5s",
    ]
    assert rows[-1].startswith(" rmdan sort Enter follow")


def test_more_columns_show_more_and_fewer_what_is_needed_most() -> None:
    assert any("WAITS FOR" in row for row in shown(ViewState(), width=160))
    narrow = "\n".join(shown(ViewState(), width=60))
    assert "P99" in narrow
    assert "CONN/S" not in narrow


def test_a_screen_without_room_for_reasons_shows_boxes() -> None:
    rows = shown(ViewState(), height=14)
    assert not any("is silent" in row for row in rows)
    assert sum("oregon-retail-" in row for row in rows) >= 6


def test_the_selected_line_is_always_on_the_screen() -> None:
    made = parse_board(board_document())
    for n in range(1, 31):
        state = ViewState(selected=f"oregon/oregon-retail-{n}")
        rows = screen(BoardState(board=made), state, Trail(), 80, 24)
        (row,) = [row for row in rows if "reverse" in str(row.style)]
        assert row.plain.startswith(f"oregon-retail-{n} ")


def test_one_box_is_followed_with_its_figures_and_bars() -> None:
    made = board_document()
    made["regions"][0]["boxes"][0] |= {
        "figures": {"gateway_delay_seconds.p99": 0.0115, "x_timestamp_seconds.y": 1797206400}
    }
    trail = Trail()
    followed = FollowedThing(View.BOXES, "oregon-retail-1", None)
    for readers in (0, 5, 10):
        made["regions"][0]["boxes"][0]["readers"] = readers
        trail.note(followed, parse_board(made))
    rows = screen(BoardState(board=parse_board(made)), ViewState(followed=followed), trail, 80, 40)
    text = "\n".join(row.plain.rstrip() for row in rows)
    assert "box oregon-retail-1\nready\nreaders 10 of 1000   engine native" in text
    assert "readers                 10  ▁▅█" in text
    assert "gateway_delay_seconds.p99       0.0115" in text
    assert "x_timestamp_seconds.y       2026-12-14" in text


def test_a_topic_is_followed_in_each_region() -> None:
    rows = "\n".join(
        shown(ViewState(followed=FollowedThing(View.TOPICS, "news.breaking")), height=30)
    )
    assert "oregon                13/s" in rows.replace("12/s", "13/s")
    assert "dublin               2.0/s" in rows
    assert "busiest" in "\n".join(
        shown(ViewState(followed=FollowedThing(View.TOPICS, "none")), height=30)
    )


def dead_dublin() -> dict[str, Any]:
    """Return a board on which Dublin died 40 s ago, with its last report."""
    dublin = region(
        "dublin",
        state="away",
        age_ms=40_000,
        why=["its frontdesk doesn't answer"],
        boxes=[box("dublin-retail-1", readers=10), box("dublin-retail-2", state="gone")],
        services=[service("dublin-router-1")],
        shovels=[shovel("publish.dublin.0", runs_on="dublin/core")],
        clusters=[
            {"name": "dublin/core", "nodes": [{"node": "n-1", "running": True, "alarm": "disk"}]}
        ],
        topics=[{"name": "news.breaking", "messages_per_second": 2.0}],
    )
    return board(region("oregon", boxes=[box("oregon-retail-1")]), dublin)


def of_dead_dublin(view: View, **state: Any) -> list[tuple[str, str]]:
    made = BoardState(board=parse_board(dead_dublin()))
    rows = screen(made, ViewState(view=view, selected="-", **state), Trail(), 160, 24)
    return [(" ".join(row.plain.split()), str(row.style)) for row in rows]


def test_a_region_that_died_has_no_totals_and_says_for_how_long_it_was_not_heard() -> None:
    rows = of_dead_dublin(View.BOXES)
    at = rows.index(("dublin away 40s - - - - - - - -", "bold red"))
    assert rows[at + 1 : at + 3] == [
        ("not heard for 40s", "bold red"),
        ("its frontdesk doesn't answer", "bold red"),
    ]


def test_what_was_not_heard_for_long_is_grey_in_every_table() -> None:
    boxes = of_dead_dublin(View.BOXES, sort=Sort.NAME)
    silent = "dublin-retail-1 unheard 10 1% 0 0 0 - - 40s native 0.1.0 dublin not heard for 40s"
    gone = "dublin-retail-2 gone 0 0% 0 0 0 - - 40s native 0.1.0 dublin"
    assert {(silent, "dim"), (gone, "bold red")} <= set(boxes)
    router = "dublin-router-1 router unheard 40s 60s 0.1.0 dublin not heard for 40s"
    assert (router, "dim") in of_dead_dublin(View.SERVICES)
    assert ("n-1 dublin/core unheard 40s disk", "dim") in of_dead_dublin(View.NODES)
    shovels = of_dead_dublin(View.SHOVELS)
    assert ("publish.dublin.0 dublin/core oregon/client unknown 40s - 0", "dim") in shovels
    assert ("nothing here", "dim") in of_dead_dublin(View.TOPICS)


def test_a_followed_box_that_was_not_heard_for_long_says_so() -> None:
    rows = of_dead_dublin(View.BOXES, followed=FollowedThing(View.BOXES, "dublin-retail-1"))
    assert ("not heard for 40s", "dim") in rows


def test_what_is_followed_and_has_gone_is_reported() -> None:
    rows = shown(ViewState(followed=FollowedThing(View.BOXES, "oregon-retail-99")), height=30)
    assert any(row.startswith("is not on this board") for row in rows)


def test_events_of_the_followed_box_are_below_it() -> None:
    rows = shown(ViewState(followed=FollowedThing(View.BOXES, "oregon-retail-30")), height=40)
    assert "11:06:41  oregon-retail-30 has been silent for 3 s" in [row.rstrip() for row in rows]


def test_an_old_board_says_how_old_and_a_notice_says_whose_it_is() -> None:
    rows = shown(ViewState(), old_ms=12_000.0, notice="this is dublin's")
    assert rows[0].endswith("12s old")
    assert rows[1].rstrip() == "! this is dublin's"
    assert shown(ViewState(paused=True))[0].endswith("paused 11:06:40")


def test_a_filter_that_nothing_has_says_so() -> None:
    assert any("nothing with 'zzz'" in row for row in shown(ViewState(filter="zzz")))


def test_help_names_every_key() -> None:
    text = "\n".join(shown(ViewState(help=True)))
    assert all(action.text[:28] in text for action in BY_KEY.values())


def test_wide_letters_do_not_move_what_stands_behind_them() -> None:
    made = board(region("oregon", boxes=[box("日本語" * 20), box("b")]))
    rows = screen(BoardState(board=parse_board(made)), ViewState(), Trail(), 80, 24)
    assert {cell_len(row.plain) for row in rows} == {80}


@given(
    st.sampled_from(View),
    st.sampled_from(Sort),
    st.integers(1, 200),
    st.integers(1, 60),
    st.booleans(),
    st.text(max_size=3),
    st.sampled_from([None, *(FollowedThing(v, "oregon-retail-1") for v in sorted(FOLLOWED))]),
)
def test_a_screen_has_its_size_whatever_is_looked_at(
    view: View, sort: Sort, width: int, height: int, on: bool, text: str, one: FollowedThing | None
) -> None:
    state = ViewState(
        view=view, sort=sort, reverse=on, help=on and not text, filter=text, followed=one
    )
    rows = screen(
        BoardState(board=parse_board(board_document()), notice=text), state, Trail(), width, height
    )
    assert [cell_len(row.plain) for row in rows] == [width] * height


def test_a_listing_has_every_line_and_no_keys() -> None:
    rows = [row.plain for row in listing(parse_board(board_document()), ViewState(), 100)]
    assert sum(row.startswith("oregon-retail-") for row in rows) == 30
    assert not any("quit" in row for row in rows)


def test_the_trail_is_bounded_and_begins_anew_with_another_thing() -> None:
    trail = Trail()
    made = parse_board(board_document())
    one = FollowedThing(View.BOXES, "oregon-retail-1", "oregon")
    for _ in range(2 * TRAIL):
        trail.note(one, made)
    assert len(trail.of("readers")) == TRAIL
    trail.note(FollowedThing(View.BOXES, "oregon-retail-2", "oregon"), made)
    assert trail.of("readers") == [200.0]


@pytest.mark.parametrize("view", View)
def test_every_table_fits_into_80_columns_with_its_needed_columns(view: View) -> None:
    columns = TABLES[view].columns
    fit = fitting(columns, 80)
    assert sum(width for _, width in fit) + len(fit) - 1 <= 80
    assert {n for n, column in enumerate(columns) if not column.spare} <= {n for n, _ in fit}


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (words.count(None), "-"),
        (words.count(99_999), "99999"),
        (words.count(123_456), "123.5k"),
        (words.count(999_960), "1.0M"),
        (words.count(2.5e9), "2.5G"),
        (words.rate(0.04), "0.0"),
        (words.rate(3.21), "3.2"),
        (words.rate(37.4), "37"),
        (words.ms(0.42), "0.4"),
        (words.ms(11.5), "12"),
        (words.ms(1234), "1.2s"),
        (words.span(400), "0.4s"),
        (words.span(61_000), "61s"),
        (words.span(600_000), "10m"),
        (words.span(86_400_000), "24h"),
        (words.span(864_000_000), "10d"),
        (words.share(5, 0), "-"),
        (words.share(5, 10), "50%"),
        (words.share(1e9, 1), "999%"),
        (words.clock(None), "-"),
        (words.clock(1e15), "-"),
        (words.spark([None, 0, 5, 10], 3), "▁▅█"),
        (words.spark([0.0, 0.0], 9), "▁▁"),
        (words.spark([1.0], 0), ""),
    ],
)
def test_numbers_are_short(made: str, text: str) -> None:
    assert made == text
