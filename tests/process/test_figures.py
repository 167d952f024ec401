"""Figures summarize metrics: values, rates of the last seconds, quantiles of the last ten."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from newsfabric.numbers import is_number
from newsfabric.process.figures import MAX_LABELS, ProcessFigures, Wanted, quantile

BUCKETS = (0.01, 0.02, 0.04, 0.08)


class MeasuredProcess:
    """A process with one metric of each kind."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.readers = Gauge(
            "newsfabric_gateway_readers", "…", ["transport"], registry=self.registry
        )
        self.closes = Counter("newsfabric_gateway_closes", "…", ["reason"], registry=self.registry)
        self.sent = Counter("newsfabric_gateway_deliveries", "…", registry=self.registry)
        self.delay = Histogram(
            "newsfabric_gateway_delay_seconds",
            "…",
            ["class"],
            buckets=BUCKETS,
            registry=self.registry,
        )
        wanted = [
            Wanted(self.readers),
            Wanted(self.closes, "reason"),
            Wanted(self.sent),
            Wanted(self.delay),
        ]
        self.figures = ProcessFigures(wanted, self.registry)


@pytest.fixture
def process() -> MeasuredProcess:
    return MeasuredProcess()


def test_a_gauge_is_its_value_with_its_labels_added_up(process: MeasuredProcess):
    process.readers.labels("websocket").set(5)
    process.readers.labels("sse").set(2)
    assert process.figures.read(0.0)["gateway_readers"] == 7.0


def test_a_gauge_may_keep_a_label(process: MeasuredProcess):
    process.readers.labels("websocket").set(5)
    process.readers.labels("sse").set(2)
    figures = ProcessFigures([Wanted(process.readers, "transport")], process.registry).read(0.0)
    assert figures == {"gateway_readers.websocket": 5.0, "gateway_readers.sse": 2.0}


def test_a_counter_is_how_much_it_grew_in_a_second(process: MeasuredProcess):
    process.sent.inc(1000)
    assert "gateway_deliveries" not in process.figures.read(0.0)
    process.sent.inc(30)
    assert process.figures.read(1.0)["gateway_deliveries"] == 30.0
    assert process.figures.read(2.0)["gateway_deliveries"] == 15.0


def test_what_a_counter_did_long_ago_doesnt_count(process: MeasuredProcess):
    for now in range(20):
        process.figures.read(float(now))
        if now == 5:
            process.sent.inc(90)
    assert process.figures.read(20.0)["gateway_deliveries"] == 0.0


def test_a_rate_by_label_is_there_while_it_isnt_nothing(process: MeasuredProcess):
    process.closes.labels("reader")
    process.figures.read(0.0)
    process.closes.labels("slow_reader").inc(3)
    figures = process.figures.read(1.0)
    assert figures["gateway_closes.slow_reader"] == 3.0
    assert "gateway_closes.reader" not in figures
    for now in range(2, 8):
        figures = process.figures.read(float(now))
    assert "gateway_closes.slow_reader" not in figures


def test_a_histogram_is_its_middle_and_its_worst_of_ten_seconds(process: MeasuredProcess):
    process.delay.labels("gold").observe(3.0)
    process.figures.read(0.0)
    for _ in range(98):
        process.delay.labels("gold").observe(0.015)
    process.delay.labels("silver").observe(0.07)
    process.delay.labels("silver").observe(0.07)
    figures = process.figures.read(1.0)
    assert 0.01 < figures["gateway_delay_seconds.p50"] <= 0.02
    assert 0.04 < figures["gateway_delay_seconds.p99"] <= 0.08
    for now in range(2, 12):
        figures = process.figures.read(float(now))
    assert "gateway_delay_seconds.p50" not in figures


def test_who_asks_often_hears_of_the_same_seconds(process: MeasuredProcess):
    for now in range(5):
        process.figures.read(float(now))
    process.sent.inc(30)
    for n in range(1000):
        process.figures.read(4.0 + n / 10_000)
    assert process.figures.read(5.0)["gateway_deliveries"] == pytest.approx(10.0)


def test_what_is_no_number_is_left_out(process: MeasuredProcess):
    process.readers.labels("sse").set(math.inf)
    assert "gateway_readers" not in process.figures.read(0.0)
    process.readers.labels("sse").set(math.nan)
    assert "gateway_readers" not in process.figures.read(1.0)


def test_labels_without_end_are_left_out(process: MeasuredProcess):
    figures = ProcessFigures([Wanted(process.readers, "transport")], process.registry)
    for n in range(3 * MAX_LABELS):
        process.readers.labels(f"t{n}").set(1)
    assert len(figures.read(0.0)) == MAX_LABELS


def test_a_metric_that_nobody_asked_for_isnt_read(process: MeasuredProcess):
    process.sent.inc()
    figures = ProcessFigures([Wanted(process.readers)], process.registry)
    process.readers.labels("sse").set(1)
    figures.read(0.0)
    assert figures.read(1.0) == {"gateway_readers": 1.0}


def test_a_counter_that_begins_anew_is_no_negative_rate(process: MeasuredProcess):
    process.sent.inc(10)
    process.figures.read(0.0)
    process.sent.reset()
    assert process.figures.read(1.0)["gateway_deliveries"] == 0.0


@given(
    st.lists(st.floats(0, 0.1), min_size=1, max_size=60),
    st.sampled_from([0.5, 0.9, 0.99]),
)
def test_a_quantile_is_in_the_bucket_that_the_true_one_is_in(values: list[float], share: float):
    bounds = [*BUCKETS, math.inf]
    buckets = {bound: float(sum(value <= bound for value in values)) for bound in bounds}
    found = quantile(buckets, share)
    true = sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
    assert found is not None
    upper = next(bound for bound in bounds if true <= bound)
    lower = max([0.0, *(bound for bound in bounds if bound < true)])
    assert lower <= found <= min(upper, BUCKETS[-1])


def test_of_nothing_there_is_no_quantile():
    assert quantile({}, 0.5) is None
    assert quantile({0.1: 0.0, math.inf: 0.0}, 0.5) is None


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(0, 10**6)), max_size=30))
def test_whatever_happens_figures_are_numbers_that_a_report_may_have(
    steps: list[tuple[float, int]],
):
    process, now = MeasuredProcess(), 0.0
    for seconds, count in steps:
        now += seconds
        process.sent.inc(count)
        process.delay.labels("gold").observe(count / 1000)
        process.closes.labels(f"r{count % 40}").inc(count)
        for value in process.figures.read(now).values():
            assert is_number(value, -(2**63), 2**63)
