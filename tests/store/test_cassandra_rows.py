"""The rows that the Cassandra store writes for envelopes, without a node."""

from __future__ import annotations

import uuid

import pytest
from envelopes import START_MS, envelope
from hypothesis import given
from hypothesis import strategies as st

from newsfabric.messages.envelope import MAX_MS, id_of
from newsfabric.store import _cassandra_rows as rows
from newsfabric.topics import TopicPolicy, TopicTable

DAY_S = 86_400
TOPICS = TopicTable(
    [
        TopicPolicy(pattern="markets.#", ttl=1.0, topic_class="bronze"),
        TopicPolicy(pattern="news.#", ttl=3_600.0, topic_class="gold"),
        TopicPolicy(pattern="archive.#", ttl=100 * 365 * DAY_S),
    ]
)
KEY = ("id", "router", "epoch", "seq")
FIELDS = {
    rows.INSERT_MESSAGE: ("topic", "day", *KEY, "body", "rest", "stamp", "ttl"),
    rows.INSERT_LOG: ("router", "epoch", "block", "seq", "topic", "id", "stamp", "ttl"),
    rows.INSERT_LATEST: ("topic", "key", "version", "envelope", "stamp", "ttl"),
}


def written(plan, statement):
    return [
        dict(zip(FIELDS[statement], row, strict=True))
        for batch in plan.batches
        if batch.statement == statement
        for row in batch.rows
    ]


def plan_of(*envelopes, now_ms=START_MS):
    return rows.plan(envelopes, TOPICS, now_ms=now_ms)


def test_every_message_is_in_its_topic_and_its_id_in_its_log():
    plan = plan_of(envelope(5_000, at=12_345))
    (message,) = written(plan, rows.INSERT_MESSAGE)
    (entry,) = written(plan, rows.INSERT_LOG)
    assert len(plan.batches) == 2
    assert (message["topic"], message["day"]) == ("news.breaking", START_MS // 86_400_000)
    assert (entry["block"], entry["seq"]) == (1, 5_000)
    assert (entry["topic"], entry["id"]) == ("news.breaking", message["id"])


def test_only_a_message_with_a_key_is_among_the_latest():
    (latest,) = written(plan_of(envelope(1, key="story", version=3)), rows.INSERT_LATEST)
    assert (latest["topic"], latest["key"], latest["version"]) == ("news.breaking", "story", 3)


def test_a_key_without_a_version_is_one_row_of_which_the_latest_id_wins():
    first, second = (
        written(plan_of(envelope(n, at=n, key="story")), rows.INSERT_LATEST)[0] for n in (1, 2)
    )
    assert first["version"] == second["version"] == -1
    assert first["stamp"] < second["stamp"]


def test_writing_later_writes_the_same_with_what_is_left_of_the_ttl():
    early, late = (
        written(plan_of(envelope(1), now_ms=START_MS + ms), rows.INSERT_MESSAGE)[0]
        for ms in (0, 600_000)
    )
    assert late.pop("ttl") == early.pop("ttl") - 600
    assert late == early


def test_one_request_writes_all_of_one_partition():
    batch = [envelope(n, at=n, topic=f"news.t{n % 3}") for n in range(90)]
    plan = plan_of(*batch)
    requests = [batch.statement for batch in plan.batches]
    assert requests.count(rows.INSERT_MESSAGE) == 3
    assert requests.count(rows.INSERT_LOG) == 1


def test_a_request_stays_small_however_much_a_partition_gets():
    many = plan_of(*(envelope(n, at=n, body=b"1") for n in range(300)))
    large = plan_of(*(envelope(n, at=n, body=b"x" * 65_536) for n in range(20)))
    assert max(len(batch.rows) for batch in many.batches) <= 128
    assert [
        len(batch.rows) for batch in large.batches if batch.statement == rows.INSERT_MESSAGE
    ] == [7, 7, 6]


def test_the_index_rows_of_a_log_are_one_request_for_each_block_of_numbers():
    plan = plan_of(
        envelope(4095, topic="markets.dax"), envelope(4096), envelope(4097, topic="news.sport")
    )
    indexes = [batch for batch in plan.batches if batch.statement == rows.INSERT_LOG]
    # Columns (block, seq, topic) of each row.
    assert [[row[2:5] for row in batch.rows] for batch in indexes] == [
        [(0, 4095, "markets.dax")],
        [(1, 4096, "news.breaking"), (1, 4097, "news.sport")],
    ]
    # Two days longer than their messages; a message of the ticker lasts for ten minutes.
    lasts = {row[3]: row[-1] for batch in indexes for row in batch.rows}
    hour = 3_600 + 2 * DAY_S + 60
    assert lasts == {4095: 600 + 2 * DAY_S + 60, 4096: hour, 4097: hour}


@pytest.mark.parametrize(
    ("topic", "now_ms", "ttl"),
    [
        ("news.breaking", START_MS, 3_600 + 60),
        ("markets.dax", START_MS, 600 + 60),
        ("news.breaking", START_MS + 3_600_000, 60),
        ("news.breaking", START_MS + 9_999_999, 60),
        ("news.breaking", START_MS - 9_999_000, 9_999 + 3_600 + 60),
        ("news.breaking", START_MS - 30 * 86_400_000, 7 * DAY_S + 3_600 + 60),
        ("archive.1851", START_MS, 5 * 365 * DAY_S),
    ],
    ids=[
        "the topic's ttl and a minute for clocks that differ",
        "ten minutes at least, for who lacks its number",
        "at its end",
        "long after its end",
        "routed at a time that is ahead of the clock, which was set back",
        "a week longer at most",
        "never more than Cassandra can hold",
    ],
)
def test_a_row_outlives_its_message_a_little(topic, now_ms, ttl):
    (message,) = written(plan_of(envelope(1, topic=topic), now_ms=now_ms), rows.INSERT_MESSAGE)
    assert message["ttl"] == ttl


def test_what_a_newer_version_hides_is_gone_before_the_newer_one():
    # The lower version is routed in the last moment of the higher version's lifetime.
    higher = written(plan_of(envelope(1, key="k", version=2)), rows.INSERT_LATEST)[0]
    end = START_MS + 3_600_000
    lower = written(
        plan_of(envelope(2, at=3_600_000, key="k", version=1), now_ms=end), rows.INSERT_MESSAGE
    )[0]
    assert START_MS / 1000 + higher["ttl"] >= end / 1000 + lower["ttl"]


def test_partitions_are_noted_for_longer_than_their_rows_can_live():
    plan = plan_of(envelope(1))
    day = START_MS // 86_400_000
    assert set(plan.slots) == {("topic:news.breaking", day)}
    assert plan.slots["topic:news.breaking", day] >= 3_600 + DAY_S


@given(st.integers(0, MAX_MS), st.integers(0, MAX_MS), st.integers(0, 2**74 - 1), st.integers(1, 9))
def test_timestamps_and_places_sort_as_ids_do(ms, other_ms, identity, step):
    one = envelope(1, id=id_of(ms, identity), identity=identity)
    other_identity = (identity + step * 2**70) % 2**74
    other = envelope(2, id=id_of(other_ms, other_identity), identity=other_identity)
    low, high = sorted([one, other], key=lambda e: e.id)
    assert rows.timestamp(low) <= rows.timestamp(high) < 2**63
    assert uuid.UUID(low.id).bytes <= uuid.UUID(high.id).bytes
    if ms < other_ms:
        assert uuid.UUID(one.id) < rows.first_place(other_ms)[0] <= uuid.UUID(other.id)


def test_what_a_later_release_adds_to_a_row_is_left_out():
    (row,) = written(plan_of(envelope(1)), rows.INSERT_MESSAGE)
    rest = row["rest"].replace("{", '{"mood":"fine",', 1)
    read = rows.envelope(row["topic"], (*(row[name] for name in KEY), row["body"], rest))
    assert read == envelope(1)


@pytest.mark.parametrize("rest", ["", "null", "[]", "{}", '{"path": []}', '{"path": [], "x": 1}'])
def test_a_row_that_no_router_wrote_is_an_error_and_not_an_envelope(rest):
    row = (uuid.UUID(envelope(1).id), "r", 1, 1, b"{}", rest)
    with pytest.raises((KeyError, TypeError, ValueError)):
        rows.envelope("news.breaking", row)
