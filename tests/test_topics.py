"""Topics, the matcher against a naive one, and the contents of topics.toml."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from newsfabric.errors import ConfigError
from newsfabric.topics import (
    CLASSES,
    PublisherRights,
    TopicClass,
    TopicPolicy,
    TopicTable,
    is_topic,
    load_topics,
    matches,
    parse_duration,
    parse_topics,
)

# Names


@pytest.mark.parametrize("name", ["a", "news.breaking", "user.42", "A-b_c.0.-", "x" * 255])
def test_these_are_topics(name):
    assert is_topic(name)


@pytest.mark.parametrize(
    "name",
    ["", ".", "a.", ".a", "a..b", "a b", "a.*", "#", "a/b", "ä", "a\n", "a\0", "\udcff", "x" * 256],
)
def test_these_are_not(name):
    assert not is_topic(name)


# The matcher


def naive(pattern: list[str], key: list[str]) -> bool:
    """Match by AMQP 0-9-1 section 3.1.3.3, word by word: exponential and obvious."""
    if not pattern:
        return not key
    if pattern[0] == "#":
        return naive(pattern[1:], key) or (bool(key) and naive(pattern, key[1:]))
    return bool(key) and pattern[0] in ("*", key[0]) and naive(pattern[1:], key[1:])


def words(text: str) -> list[str]:
    return text.split(".") if text else []


# Few different words, so that many pairs match; some are empty.
key_words = st.lists(st.sampled_from(["a", "b", "", "*", "#"]), max_size=6).map(".".join)
pattern_words = st.lists(st.sampled_from(["a", "b", "", "*", "#", "#"]), max_size=6).map(".".join)


@given(pattern_words, key_words)
@example("#", "")
@example("#.#", "")
@example("*", "")
@example("", "")
@example("#.*", "a")
@example("*.#.b", "a.b")
def test_the_matcher_agrees_with_a_naive_one(pattern, key):
    assert matches(pattern, key) == naive(words(pattern), words(key))


@pytest.mark.parametrize(
    ("pattern", "key", "expected"),
    [
        ("news.breaking", "news.breaking", True),
        ("news.breaking", "news", False),
        ("news.*", "news.sport", True),
        ("news.*", "news", False),
        ("news.*", "news.sport.f1", False),
        ("news.#", "news", True),
        ("news.#", "news.sport.f1", True),
        ("news.#", "newsroom", False),
        ("#.sport", "sport", True),
        ("#.sport", "news.sport", True),
        ("*.#", "a", True),
        ("*.#", "", False),
        ("#.*.#", "", False),
        ("#", "", True),
        ("", "", True),
        ("", "a", False),
        ("*", ".", False),
        ("*.*", ".", True),
        ("a.*.b", "a..b", True),
        ("a.b", "a.B", False),
        ("a*", "ab", False),
        ("a#", "a", False),
    ],
)
def test_the_matcher_decides_as_the_broker_does(pattern, key, expected):
    assert matches(pattern, key) is expected


def test_many_hashes_take_no_time():
    pattern = ".".join(["#"] * 60 + ["b"])
    assert not matches(pattern, ".".join(["a"] * 120))


# Durations


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("0s", 0.0),
        ("90s", 90.0),
        ("15m", 900.0),
        ("12h", 43_200.0),
        ("7d", 604_800.0),
    ],
)
def test_a_duration_is_a_number_and_a_unit(text, seconds):
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "7", "d", "7 d", "-7d", "1.5h", "7D", "7w", "7dd", "7d\n", "٧d", "1234567890s"]
)
def test_anything_else_is_no_duration(text):
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration(text)


# The table


def test_the_first_match_wins():
    table = TopicTable([TopicPolicy(pattern=p) for p in ("news.breaking", "news.*", "#")])
    found = {
        topic: policy.pattern
        for topic in ("news.breaking", "news.sport", "weather")
        if (policy := table.find(topic))
    }
    assert found == {"news.breaking": "news.breaking", "news.sport": "news.*", "weather": "#"}


@pytest.mark.parametrize("topic", ["weather", "news", "news.", "", "news.*", "news.\udcff"])
def test_a_topic_that_nothing_matches_or_is_malformed_has_no_policy(topic):
    assert TopicTable([TopicPolicy(pattern="news.*")]).find(topic) is None


@given(st.lists(pattern_words.filter(bool), max_size=4), key_words)
def test_find_is_the_first_pattern_that_matches(patterns, topic):
    table = TopicTable([TopicPolicy(pattern=pattern) for pattern in patterns])
    expected = next((p for p in table.policies if matches(p.pattern, topic)), None)
    assert table.find(topic) == (expected if is_topic(topic) else None)


def test_patterns_of_a_class_are_in_order():
    table = TopicTable(
        [
            TopicPolicy(pattern="user.*", topic_class="gold"),
            TopicPolicy(pattern="news.#", topic_class="silver"),
            TopicPolicy(pattern="news.breaking", topic_class="gold"),
        ]
    )
    assert table.copied_patterns == ("user.*", "news.breaking")


def test_by_the_ways_of_gold_comes_whatever_one_of_its_patterns_matches():
    table = TopicTable(
        [
            TopicPolicy(pattern="news.weather", topic_class="silver"),
            TopicPolicy(pattern="news.#", topic_class="gold"),
            TopicPolicy(pattern="#", topic_class="bronze"),
        ]
    )
    assert table.is_copied("news.world")
    assert table.is_copied("news.weather")
    assert not table.is_copied("sport.x")


# topics.toml

FULL = """
[[topic]]
pattern = "news.breaking"
class = "gold"
access = "registered"
keep = 200
ttl = "90s"
slow = "disconnect"
latest = true

[[topic]]
pattern = "#"
"""


def test_a_file_is_read_field_by_field_and_the_rest_has_defaults(tmp_path: Path):
    path = tmp_path / "topics.toml"
    path.write_text(FULL, encoding="utf-8")
    assert load_topics(path).policies == (
        TopicPolicy(
            pattern="news.breaking",
            topic_class="gold",
            access="registered",
            keep=200,
            ttl=90.0,
            slow="disconnect",
            latest=True,
        ),
        TopicPolicy(
            pattern="#",
            topic_class="silver",
            access="public",
            keep=100,
            ttl=7 * 86_400.0,
            slow="drop_oldest",
            latest=False,
        ),
    )


@pytest.mark.parametrize("content", [b"[[topic", b"\xff\xfe", b"a = 1\na = 2"])
def test_a_file_that_is_no_toml_is_named(tmp_path: Path, content):
    path = tmp_path / "topics.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=re.escape(str(path))):
        load_topics(path)


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"gone\.toml"):
        load_topics(tmp_path / "gone.toml")


TABLES = "expected one or more [[topic]] tables"


@pytest.mark.parametrize("document", [{}, {"topic": []}, {"topic": {}}, {"topics": []}])
def test_a_document_without_topics_is_refused(document):
    with pytest.raises(ConfigError, match=re.escape(f"topics.toml: {TABLES}")):
        parse_topics(document)


def test_a_document_with_something_beside_topics_is_refused():
    with pytest.raises(ConfigError, match=re.escape(TABLES)):
        parse_topics({"topic": [{"pattern": "#"}], "other": 1})


PATTERN = "pattern must be dotted words, '*' or '#'"


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (1, "topic 2: expected a table, got 1"),
        ("x", "topic 2: expected a table, got 'x'"),
        ({"pattern": "a", "colour": 1}, "topic 2: unknown field 'colour'"),
        ({}, f"topic 2: {PATTERN}; got None"),
        ({"pattern": 1}, f"topic 2: {PATTERN}; got 1"),
        ({"pattern": ""}, f"topic 2: {PATTERN}; got ''"),
        ({"pattern": "a..b"}, f"topic 2: {PATTERN}"),
        ({"pattern": "a.b*"}, f"topic 2: {PATTERN}"),
        ({"pattern": "a\n"}, f"topic 2: {PATTERN}"),
        ({"pattern": "x" * 256}, f"topic 2: {PATTERN}"),
        ({"pattern": "#.a.#.b.#"}, "topic 2: pattern '#.a.#.b.#' has more than 2 '#': RabbitMQ"),
        ({"pattern": "_fabric.#"}, "topic 2: '_fabric' is the fabric's own word"),
        ({"pattern": "a", "class": "lead"}, "(a): class must be one of gold, silver, bronze"),
        ({"pattern": "a", "class": []}, "(a): class must be one of gold, silver, bronze"),
        (
            {"pattern": "a", "access": ""},
            "(a): access must be one of public, registered, owner, granted",
        ),
        ({"pattern": "a", "slow": 1}, "slow must be one of disconnect, conflate, drop_oldest"),
        ({"pattern": "a", "keep": -1}, "(a): keep must be a whole number from 0 to 100000"),
        ({"pattern": "a", "keep": 100_001}, "keep must be a whole number from 0 to 100000"),
        ({"pattern": "a", "keep": True}, "keep must be a whole number from 0 to 100000"),
        ({"pattern": "a", "keep": 1.0}, "keep must be a whole number from 0 to 100000"),
        ({"pattern": "a", "ttl": "soon"}, "(a): ttl: not a duration: 'soon'"),
        ({"pattern": "a", "ttl": 7}, "(a): ttl: "),
        ({"pattern": "a", "latest": 1}, "(a): latest must be true or false"),
    ],
)
def test_a_bad_entry_is_named_with_what_is_wrong(entry, text):
    with pytest.raises(ConfigError, match=re.escape(text)) as caught:
        parse_topics({"topic": [{"pattern": "#"}, entry]}, source="feeds.toml")
    assert str(caught.value).startswith("feeds.toml: topic 2")


def test_a_pattern_may_have_two_of_any_number_of_words():
    (policy,) = parse_topics({"topic": [{"pattern": "#.sport.#"}]}).policies
    assert policy.pattern == "#.sport.#"


@pytest.mark.parametrize("keep", [0, 100_000])
def test_keep_may_be_at_either_end(keep):
    (policy,) = parse_topics({"topic": [{"pattern": "a", "keep": keep}]}).policies
    assert policy.keep == keep


toml_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
FIELDS = ("pattern", "class", "access", "keep", "ttl", "slow", "latest")
entries = st.dictionaries(st.sampled_from(FIELDS), toml_values | st.just("news.*"))


@given(st.fixed_dictionaries({"topic": st.lists(entries | toml_values, max_size=2) | toml_values}))
def test_whatever_the_file_says_it_is_a_table_or_a_config_error(document):
    try:
        table = parse_topics(document)
    except ConfigError as exc:
        table = exc
    assert isinstance(table, TopicTable | ConfigError)


# Publishers


def with_publishers(*publishers):
    return parse_topics({"topic": [{"pattern": "#"}], "publisher": list(publishers)})


CMS = {"app_id": "cms", "topics": ["news.#", "live.*"]}


def test_without_publishers_everyone_may_publish_everything():
    table = parse_topics({"topic": [{"pattern": "#"}]})
    assert table.publishers == ()
    assert table.may_publish("anyone", "news.x")
    assert table.may_publish(None, "news.x")


def test_a_publisher_may_publish_what_its_patterns_match():
    table = with_publishers(CMS, {"app_id": "sport", "topics": ["sport.*"]})
    assert table.publishers[0] == PublisherRights("cms", ("news.#", "live.*"))
    assert table.may_publish("cms", "news.world.asia")
    assert table.may_publish("cms", "live.budget")
    assert not table.may_publish("cms", "sport.x")
    assert not table.may_publish("cms", "live.budget.x")
    assert not table.may_publish("sport", "news.x")


@pytest.mark.parametrize("app_id", [None, "", "weather", "CMS"])
def test_who_isnt_listed_may_publish_nothing_but_canaries(app_id):
    table = with_publishers(CMS)
    assert not table.may_publish(app_id, "news.x")
    assert table.may_publish(app_id, "fabric.canary")


@pytest.mark.parametrize(
    ("publisher", "words"),
    [
        ({"app_id": "cms"}, "topics must be a list"),
        ({"app_id": "cms", "topics": []}, "topics must be a list"),
        ({"app_id": "cms", "topics": "news.#"}, "topics must be a list"),
        ({"app_id": "cms", "topics": ["news.**"]}, "pattern must be"),
        ({"app_id": "cms", "topics": ["_fabric.#"]}, "own word"),
        ({"app_id": "cms", "topics": [7]}, "pattern must be"),
        ({"app_id": "a.b", "topics": ["#"]}, "app_id has"),
        ({"app_id": "", "topics": ["#"]}, "app_id has"),
        ({"app_id": "guest", "topics": ["#"]}, "isn't free"),
        ({"app_id": "frontdesk", "topics": ["#"]}, "isn't free"),
        ({"app_id": "keeper", "topics": ["#"]}, "isn't free"),
        ({"app_id": "amq", "topics": ["#"]}, "isn't free"),
        ({"app_id": 7, "topics": ["#"]}, "app_id has"),
        ({"topics": ["#"]}, "app_id has"),
        ({**CMS, "secret": "x"}, "unknown field 'secret'"),
        ("cms", "expected a table"),
    ],
)
def test_what_isnt_a_publisher_is_an_error_that_says_where(publisher, words):
    with pytest.raises(ConfigError, match=re.escape(words)) as caught:
        with_publishers(publisher)
    assert "publisher 1" in str(caught.value)


def test_a_publisher_is_listed_once():
    with pytest.raises(ConfigError, match="'cms' is there twice"):
        with_publishers(CMS, CMS)


def test_one_bracket_isnt_enough():
    with pytest.raises(ConfigError, match="two brackets"):
        parse_topics({"topic": [{"pattern": "#"}], "publisher": CMS})


def test_each_class_means_what_the_promises_say() -> None:
    page = (Path(__file__).parents[1] / "docs" / "guarantees.md").read_text(encoding="utf-8")
    lines = [line.strip("|").split("|") for line in page.splitlines() if line.startswith("| ")]
    cells = {first.strip(): [cell.strip() for cell in rest] for first, *rest in lines}
    assert cells[""] == [*CLASSES]
    assert get_args(TopicClass) == (*CLASSES,)
    root = Path(__file__).parents[1]
    words = (root / "docs" / "architecture.md").read_text(encoding="utf-8")
    row = next(line for line in words.splitlines() if line.startswith("| class |"))
    assert re.findall(r"\*\*(\w+)\*\*", row) == [*CLASSES]
    comment = (root / "topics.toml").read_text(encoding="utf-8")
    assert all(f'"{name}": ' in comment for name in CLASSES)
    ways, overload = cells["its queues at the entrance"], cells["under overload"]
    assert [one.startswith("two ") for one in ways] == [one.is_copied for one in CLASSES.values()]
    dropped = [one.may_be_dropped for one in CLASSES.values()]
    assert [one.startswith("dropped") for one in overload] == dropped
