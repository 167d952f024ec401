"""The report of a mirror for its user."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from operations.mirror.report import closing_lines, failures, plain, rows
from operations.mirror.run import MirrorOptions
from operations.mirror.share_record import ShareRecord


@given(st.text(max_size=400))
def test_words_of_the_other_fabric_are_one_short_line(text: str) -> None:
    found = plain(text)
    assert len(found) <= 200
    assert found.isprintable()


def report_document(*, there: int = 2, outcome: str = "taken") -> dict[str, object]:
    """Return a report of two gold messages; the observer there had ``there`` after 20 ms."""
    record = ShareRecord()
    for identity in range(2):
        record.note_original(
            identity, topic_class="gold", taken=99.99, now=100.0,
            watched_here=True, watched_there=True,
        )  # fmt: skip
        record.went(identity, "sent", 100.0)
        record.went(identity, outcome, 100.0)  # type: ignore[arg-type]
        record.arrived("here", identity, connection=1, now=100.0)
    for identity in range(there):
        record.arrived("there", identity, connection=1, now=100.02)
    record.judge(float("inf"))
    return {
        "classes": {
            name: class_sums.class_document() for name, class_sums in record.by_class.items()
        }
    }


def test_without_a_fail_option_nothing_is_a_failure() -> None:
    assert failures(report_document(there=0), fail_on_loss=False, fail_over_delay=None) == []


def test_a_loss_names_its_class_and_what_became_of_the_sending() -> None:
    found = report_document(there=1, outcome="refused")
    assert failures(found, fail_on_loss=True, fail_over_delay=None) == [
        "gold: 1 messages missing there (1 refused)"
    ]


def test_a_delay_over_the_limit_is_a_failure_and_one_below_is_none() -> None:
    found = report_document()
    assert failures(found, fail_on_loss=True, fail_over_delay=25.0) == []
    (failure,) = failures(found, fail_on_loss=True, fail_over_delay=15.0)
    assert failure.startswith("gold: delay p99 there 20.")


def test_what_never_came_isn_t_fast() -> None:
    assert failures(report_document(there=0), fail_on_loss=False, fail_over_delay=15.0) == [
        "gold: none of 2 messages was delivered there"
    ]


def test_classes_without_messages_have_no_row() -> None:
    assert [row[:5] for row in rows(report_document(there=1))] == [
        ("gold", "here", "2", "2", "0"),
        ("gold", "there", "2", "1", "1"),
    ]


def test_below_the_table_is_only_what_there_was() -> None:
    quiet = {
        "messages": {
            "heard": 3, "shared": 0, "outcomes": {}, "left_out": {"private": 2, "unknown_topic": 1},
            "unheard": 0, "last_refusal": "",
        },
        "readers": {"wanted": None},
        "observers": {"here": {"cut_off": 0}, "there": {"cut_off": 2}},
        "seconds": 10.0, "share": 0.1, "troubles": {"readers there": "x"},
    }  # fmt: skip
    assert list(closing_lines(quiet)) == [
        "3 messages heard in 10 s, 0 in the share of 0.1",
        "left out: 2 private, 1 unknown topic",
        "the observer there was cut off 2 times",
        "readers there: x",
    ]


def test_options_have_bounds_that_a_share_of_nobody_keeps() -> None:
    assert not MirrorOptions(max_readers=0).plays_readers
    assert not MirrorOptions(reader_share=0.0).plays_readers
    assert not MirrorOptions(readers=0).plays_readers
    assert MirrorOptions(readers=3, reader_share=0.0).plays_readers
