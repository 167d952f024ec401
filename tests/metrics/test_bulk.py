"""A histogram that takes many observations in one call, and a counter without a lock."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from newsfabric.metrics.bulk import MOST, OTHER, BulkHistogram, Counted

BOUNDS = (0.001, 1, 2)


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def delays(registry: CollectorRegistry) -> BulkHistogram:
    made = BulkHistogram("delay_seconds", "How long", ["class"], BOUNDS)
    registry.register(made)
    return made


def value(registry: CollectorRegistry, of: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"delay_seconds_{of}", {"class": "gold", **labels})


def test_many_observations_of_one_value_are_that_many(
    delays: BulkHistogram, registry: CollectorRegistry
) -> None:
    delays.labels("gold").observe(1.0, 100)
    delays.labels("gold").observe(3.0)
    counts = [value(registry, "bucket", le=le) for le in ("0.001", "1.0", "2.0", "+Inf")]
    assert counts == [0, 100, 100, 101]
    assert (value(registry, "count"), value(registry, "sum")) == (101, 103.0)


def test_what_was_counted_elsewhere_is_added_by_bucket(
    delays: BulkHistogram, registry: CollectorRegistry
) -> None:
    gold = delays.labels("gold")
    gold.add(0, 5)
    gold.add(3, 1)
    gold.add(4, 7)
    gold.add(-1, 7)
    gold.add_sum(9.5)
    assert (value(registry, "count"), value(registry, "sum")) == (6, 9.5)


def test_an_example_stands_for_a_second(delays: BulkHistogram, registry: CollectorRegistry) -> None:
    gold = delays.labels("gold")
    gold.observe(1.5)
    gold.exemplify(1.5, {"id": "first"})
    gold.exemplify(1.6, {"id": "second"})
    encode, content_type = choose_encoder("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    (family,) = text_string_to_metric_families(encode(registry).decode())
    found = {s.labels["le"]: s.exemplar.labels for s in family.samples if s.exemplar is not None}
    assert found == {"2.0": {"id": "first"}}


def test_label_sets_beyond_the_bound_are_other(
    delays: BulkHistogram, registry: CollectorRegistry
) -> None:
    for n in range(MOST + 5):
        delays.labels(str(n)).observe(1.0)
    assert registry.get_sample_value("delay_seconds_count", {"class": "other"}) == 5


def test_a_label_set_of_another_size_is_refused(delays: BulkHistogram) -> None:
    with pytest.raises(ValueError, match="class"):
        delays.labels("gold", "oregon")


@pytest.fixture
def counted(registry: CollectorRegistry) -> Counted:
    made = Counted("copies", "How many", ["place"])
    registry.register(made)
    return made


def total(registry: CollectorRegistry, place: str) -> float | None:
    return registry.get_sample_value("copies_total", {"place": place})


def test_a_counter_grows_by_the_given_number(counted: Counted, registry: CollectorRegistry) -> None:
    first = counted.labels("first")
    first.inc()
    counted.labels("first").inc(41)
    counted.labels("later")
    assert [total(registry, place) for place in ("first", "later", "again")] == [42, 0, None]


def test_a_counter_reads_as_any_other(counted: Counted, registry: CollectorRegistry) -> None:
    counted.labels("first").inc()
    encode, _ = choose_encoder("application/openmetrics-text")
    (family,) = text_string_to_metric_families(encode(registry).decode())
    assert (family.name, family.type) == ("copies", "counter")


def test_a_counter_has_so_many_label_sets_and_no_more(
    counted: Counted, registry: CollectorRegistry
) -> None:
    for n in range(MOST + 5):
        counted.labels(str(n)).inc()
    assert (total(registry, OTHER), total(registry, str(MOST))) == (5, None)
    with pytest.raises(ValueError, match="place"):
        counted.labels("gold", "oregon")
