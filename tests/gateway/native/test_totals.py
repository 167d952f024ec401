"""The data plane's totals, as metrics of the gateway."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gateway.native.totals import DataPlaneTotals
from newsfabric.metrics import REGISTRY


def value(sample: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"newsfabric_gateway_{sample}", labels) or 0.0


@pytest.fixture
def totals() -> Iterator[DataPlaneTotals]:
    totals = DataPlaneTotals()
    yield totals
    totals.restart()


def test_counters_grow_by_what_is_new(totals: DataPlaneTotals) -> None:
    before = value("deliveries_total", transport="websocket")
    for total in (5, 7, 7):
        totals.update({"deliveries.websocket": total})
    assert value("deliveries_total", transport="websocket") == before + 7
    assert totals.deliveries == 7


def test_readers_go_up_and_down(totals: DataPlaneTotals) -> None:
    totals.update({"readers.websocket": 5, "readers.sockjs-websocket": 1})
    assert value("readers", transport="websocket") == 5
    totals.update({"readers.websocket": 2})
    assert value("readers", transport="websocket") == 2
    assert totals.readers == 3


def test_another_data_plane_counts_from_zero(totals: DataPlaneTotals) -> None:
    before = value("connects_total", transport="websocket")
    totals.update({"connects.websocket": 5, "readers.websocket": 5})
    totals.restart()
    assert (totals.readers, value("readers", transport="websocket")) == (0, 0)
    totals.update({"connects.websocket": 2, "readers.websocket": 2})
    assert value("connects_total", transport="websocket") == before + 7
    assert (totals.readers, totals.connects) == (2, 7)


def test_threads_have_their_own_gauge(totals: DataPlaneTotals) -> None:
    totals.update({"thread.0.connections": 3, "thread.1.connections": 4, "threads": 2})
    assert value("thread_connections", thread="1") == 4


def test_pings_that_it_answered_are_verbs_obeyed(totals: DataPlaneTotals) -> None:
    before = value("verbs_total", action="ping")
    for total in (0, 3, 4):
        totals.update({"verbs.ping": total})
    assert value("verbs_total", action="ping") == before + 4


def test_delays_are_added_to_the_histogram_of_their_labels(totals: DataPlaneTotals) -> None:
    labels = {"class": "gold", "origin": "oregon", "way": "postoffice.1"}
    totals.update({"delay.gold,oregon,postoffice.1.0": 3, "delay.gold,oregon,postoffice.1.15": 1})
    totals.update(
        {"delay.gold,oregon,postoffice.1.0": 5, "delay.gold,oregon,postoffice.1.sum_us": 9}
    )
    assert value("delay_seconds_bucket", **labels, le="0.001") == 5
    assert value("delay_seconds_bucket", **labels, le="30.0") == 5
    assert value("delay_seconds_count", **labels) == 6
    assert value("delay_seconds_sum", **labels) == pytest.approx(9e-6)


def test_errors_are_counted_by_their_number(totals: DataPlaneTotals) -> None:
    before = value("errors_total", code="105")
    totals.update({"errors.already_subscribed": 2})
    assert value("errors_total", code="105") == before + 2


def test_a_histogram_that_cant_be_read_is_nobodys(totals: DataPlaneTotals) -> None:
    before = value("reader_behind_seconds_count")
    totals.update({"delay.gold.1": 3, "delay.": 3, "behind.x": 3, "behind.99": 3, "behind.2": 1})
    assert value("reader_behind_seconds_count") == before + 1


def test_names_that_arent_known_are_only_kept(totals: DataPlaneTotals) -> None:
    totals.update({"memory_bytes": 12, "what.will.come": 1})
    assert [totals.get(name) for name in ("memory_bytes", "what.will.come", "nothing")] == [
        12,
        1,
        0,
    ]
