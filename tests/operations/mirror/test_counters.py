"""The metrics of a mirror's run."""

from __future__ import annotations

from typing import Any

from newsfabric.metrics import REGISTRY
from operations.mirror.counters import MirrorCounters, observe
from operations.mirror.readers_process import NO_REPORT
from operations.mirror.share_record import ShareRecord


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"newsfabric_mirror_{name}", labels) or 0.0


def hear(record: ShareRecord, identity: int) -> None:
    record.note_original(
        identity,
        topic_class="gold",
        taken=100.0,
        now=100.0,
        watched_here=True,
        watched_there=True,
    )


def test_sums_are_reported_once_however_often_one_reports() -> None:
    counters, record = MirrorCounters(), ShareRecord(patience=5.0)
    fields: dict[str, Any] = {"left_out": {"private": 2}, "waiting": 3, "readers": NO_REPORT}
    heard = value("heard_messages_total")
    left_out = value("left_out_messages_total", reason="private")
    taken = value("copies_total", **{"class": "gold", "outcome": "taken"})
    delivered = {"side": "there", "class": "gold", "outcome": "delivered"}
    missing = {"side": "here", "class": "gold", "outcome": "missing"}
    before = (
        value("watched_messages_total", **delivered),
        value("watched_messages_total", **missing),
    )
    hear(record, 1)
    record.went(1, "sent", 100.0)
    record.went(1, "taken", 100.1)
    record.arrived("there", 1, connection=1, now=100.2)
    record.judge(float("inf"))
    for _ in range(2):
        counters.update(record, heard=1, **fields)
    assert value("heard_messages_total") == heard + 1
    assert value("left_out_messages_total", reason="private") == left_out + 2
    assert value("copies_total", **{"class": "gold", "outcome": "taken"}) == taken + 1
    assert value("watched_messages_total", **delivered) == before[0] + 1
    assert value("watched_messages_total", **missing) == before[1] + 1
    assert value("waiting_messages") == 3
    assert value("readers") == 0


def test_delays_are_reported_as_they_come_and_none_is_negative() -> None:
    record = ShareRecord(on_delay=observe)
    here = {"side": "here", "class": "gold"}
    before = value("delay_seconds_count", **here), value("delay_seconds_sum", **here)
    for identity in (1, 2):
        hear(record, identity)
    record.arrived("here", 1, connection=1, now=100.25)
    record.arrived("here", 2, connection=1, now=99.0)
    assert value("delay_seconds_count", **here) == before[0] + 2
    assert value("delay_seconds_sum", **here) == before[1] + 0.25
