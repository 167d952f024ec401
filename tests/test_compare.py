"""docs/compare.md: tests prove newsfabric's own column, and README shows a part of the table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/compare.md"
README = ROOT / "README.md"

# The test of each answer that isn't "no": a file of tests, and the test's name.
PROVEN = {
    "WebSocket": ("gateway/behaviour/test_websocket.py", "latest_versions_come_on_subscribe"),
    "Server-Sent Events": (
        "gateway/behaviour/test_resume.py",
        "an_event_stream_begins_with_an_id_and_goes_on_from_it",
    ),
    "browsers without WebSocket": (
        "e2e/test_a_message_crosses_the_fabric.py",
        "it_arrives_in_both_regions_over_every_transport",
    ),
    "several equal regions": (
        "e2e/test_chaos.py",
        "a_region_that_is_cut_off_goes_on_and_misses_nothing",
    ),
    "any one process, machine or region may die, and what has a receipt still arrives": (
        "e2e/test_chaos.py",
        "in_ninety_seconds_of_chaos_nothing_is_lost_and_nothing_doubled",
    ),
    "a message takes several paths, the first copy wins": (
        "e2e/test_a_message_crosses_the_fabric.py",
        "gold_copies_from_two_regions_reach_a_reader_once",
    ),
    "sent again, it reaches readers once": (
        "e2e/test_a_message_crosses_the_fabric.py",
        "a_repeated_message_id_is_delivered_once",
    ),
    "a reader who comes back gets all it missed": (
        "gateway/behaviour/test_resume.py",
        "a_position_is_good_on_another_gateway_in_another_region",
    ),
    "… and learns when something is missing": (
        "gateway/behaviour/test_resume.py",
        "a_reader_learns_when_memory_and_store_cant_answer",
    ),
    "mailbox of a user who is away, with read and dismissed on all devices": (
        "e2e/test_the_mailbox.py",
        "what_came_while_the_user_was_away_is_dismissed_on_one_device_and_gone_on_all",
    ),
    "newest message by key on connect": (
        "gateway/behaviour/test_websocket.py",
        "latest_versions_come_on_subscribe",
    ),
    "readers are sent elsewhere one by one when a server ends": (
        "gateway/behaviour/test_drain.py",
        "a_drain_is_paced_and_lets_nobody_in",
    ),
    "a slow reader": (
        "gateway/behaviour/test_slow_readers.py",
        "a_slow_reader_gets_the_newest_of_each_key_where_that_is_the_policy",
    ),
    "one page loaded in many tabs, one connection": (
        "clients/test_javascript_in_a_browser.py",
        "tabs_share_one_connection_and_hand_it_on",
    ),
    "way in": ("examples/test_amqp10.py", "a_publisher_in_amqp_1_0_gets_its_receipt"),
}
# Answers that no test can check.
UNPROVEN = {"what must run", "licence"}


def rows(text: str) -> dict[str, list[str]]:
    """Return the cells of the table whose head names newsfabric, by the first cell of each row."""
    table = text[text.index("| | newsfabric |") :].partition("\n\n")[0]
    lines = [line.strip("| ").split("|") for line in table.splitlines()[2:]]
    return {cells[0].strip(): [cell.strip() for cell in cells[1:]] for cells in lines}


def own(text: str) -> dict[str, str]:
    return {name: cells[0] for name, cells in rows(text).items()}


def test_every_answer_but_no_is_tried_by_a_test() -> None:
    answers = {name for name, answer in own(PAGE.read_text("utf-8")).items() if answer != "no"}
    assert answers == PROVEN.keys() | UNPROVEN


@pytest.mark.parametrize(("file", "name"), PROVEN.values(), ids=PROVEN.keys())
def test_the_test_is_there(file: str, name: str) -> None:
    found = re.findall(r"def test_(\w+)\(", (ROOT / "tests" / file).read_text("utf-8"))
    assert name in found


def test_readme_shows_rows_of_the_table_as_they_are() -> None:
    whole, shown = rows(PAGE.read_text("utf-8")), rows(README.read_text("utf-8"))
    assert shown == {name: whole[name] for name in shown}
    # Rows in which newsfabric lacks something that others have are shown, too.
    assert [cells[0] for cells in shown.values()].count("no") >= 3


def test_the_index_of_docs_names_every_page() -> None:
    index = (ROOT / "docs/README.md").read_text("utf-8")
    assert {
        f"({page.name})" for page in (ROOT / "docs").glob("*.md") if page.name != "README.md"
    } <= set(re.findall(r"\([\w.-]+\.md\)", index))
