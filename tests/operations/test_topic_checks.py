"""Entries of topics.toml that match no topic, and the entry that a topic falls under."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from newsfabric.topics import PublisherRights, TopicPolicy, TopicTable, load_topics, matches
from operations.cli import cli
from operations.topic_checks import covers, findings, match, meet

ROOT = Path(__file__).parents[2]
# All topics of up to five of these words. "z" is in no pattern, so it stands for any other word.
TOPICS = [".".join(w) for n in range(1, 6) for w in itertools.product("abz", repeat=n)]
patterns = st.lists(st.sampled_from(["a", "b", "*", "#"]), min_size=1, max_size=3).map(".".join)


def table(*of: str, rights: tuple[str, ...] = ()) -> TopicTable:
    publishers = [PublisherRights("cms", rights)] if rights else []
    return TopicTable([TopicPolicy(pattern=pattern) for pattern in of], publishers)


def found_in(*of: str, rights: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    return [(each.where, each.kind) for each in findings(table(*of, rights=rights))]


@given(st.lists(patterns, min_size=1, max_size=3), patterns)
def test_it_covers_what_it_matches_every_topic_of(general: list[str], special: str) -> None:
    mine = [topic for topic in TOPICS if matches(special, topic)]
    assert covers(general, special) == all(
        any(matches(pattern, topic) for pattern in general) for topic in mine
    )


@given(patterns, patterns)
def test_two_patterns_meet_where_one_topic_is_of_both(one: str, other: str) -> None:
    both = any(matches(one, topic) and matches(other, topic) for topic in TOPICS)
    # Two "#" also meet in a topic without words, which can't exist; but they meet in others, too.
    assert meet(one, other) == both


def test_the_fabrics_own_file_has_nothing_of_no_use() -> None:
    assert findings(load_topics(ROOT / "topics.toml")) == []


def test_what_comes_after_the_general_is_never_used() -> None:
    assert found_in("news.*", "news.world", "sport.#", "sport.*.f1") == [
        ("topic 2 (news.world)", "covered"),
        ("topic 4 (sport.*.f1)", "covered"),
    ]
    assert found_in("news.world", "news.*") == []


def test_no_topic_is_without_words_so_any_word_and_more_is_all() -> None:
    assert found_in("*.#", "#") == [("topic 2 (#)", "covered")]
    assert found_in("#.*", "#") == [("topic 2 (#)", "covered")]
    assert found_in("*.*.#", "#") == []


def test_a_pattern_that_is_there_twice_is_reported_as_that() -> None:
    (found,) = findings(table("news.*", "live.*", "news.*"))
    assert found.kind == "double"
    assert found.detail == "never used: topic 1 (news.*) comes first and has the same pattern"


def test_several_entries_may_cover_one_together() -> None:
    (found,) = findings(table("news", "live.*", "news.*", "news.*.*.#", "news.#"))
    assert found.where == "topic 5 (news.#)"
    assert found.detail == (
        "never used: topics 1 (news), 3 (news.*), 4 (news.*.*.#) come first and together match "
        "all its topics"
    )


def test_a_publishers_pattern_that_no_topic_has_is_of_no_use() -> None:
    rights = ("news.#", "news.world", "news.#", "sports.*", "*.world")
    found = findings(table("news.*", "sport.*", rights=rights))
    assert [(each.pattern, each.kind) for each in found] == [
        ("news.world", "covered"),
        ("news.#", "double"),
        ("sports.*", "unreachable"),
    ]


def test_a_topic_falls_under_the_first_entry_that_matches_it() -> None:
    found = match(table("news.breaking", "news.*", "#"), "news.braking")
    assert (found["entry"], found["pattern"], found["class"]) == (2, "news.*", "silver")
    assert found["also"] == [{"entry": 3, "pattern": "#"}]
    assert found["like"] == [{"topic": "news.breaking", "entry": 1, "class": "silver"}]
    assert found["publishers"] is None


def test_of_a_topic_that_is_spelt_right_nothing_like_it_is_reported() -> None:
    assert match(table("news.breaking", "news.*"), "news.breaking")["like"] == []


def test_who_may_publish_it_is_printed() -> None:
    of = table("news.*", "sport.*", rights=("news.#",))
    assert [match(of, topic)["publishers"] for topic in ("news.x", "sport.x")] == [["cms"], []]


def test_what_no_entry_matches_has_none() -> None:
    found = match(table("news.*"), "sport.x")
    assert (found["entry"], found["pattern"], found["class"]) == (None, None, None)


# The commands


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "topics.toml"
    entries = [("news.breaking", "gold"), ("news.*", "silver"), ("news.world", "gold")]
    file.write_text(
        "".join(f'[[topic]]\npattern = "{pattern}"\nclass = "{of}"\n' for pattern, of in entries)
    )
    return file


def run(file: Path, *words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli, ["topics", *words, "--topics", str(file)])
    return result.exit_code, result.stdout, result.stderr


def test_check_names_what_is_of_no_use_and_fails(file: Path) -> None:
    code, out, err = run(file, "check")
    assert code == 1
    assert out == (
        f"{file}: topic 3 (news.world): never used: topic 2 (news.*) comes first and matches all "
        "its topics\n"
    )
    assert err == f"error: {file}: patterns of no use: 1\n"
    code, out, _ = run(file, "check", "--json")
    assert (code, [each["kind"] for each in json.loads(out)]) == (1, ["covered"])


def test_check_of_a_good_file_says_so() -> None:
    file = ROOT / "topics.toml"
    count = len(load_topics(file).policies)
    code, out, _ = run(file, "check")
    assert (code, out) == (0, f"{file}: all {count} entries are of use\n")


def test_match_says_the_entry_and_what_may_have_been_meant(file: Path) -> None:
    code, out, _ = run(file, "match", "news.braking")
    assert code == 0
    assert out.splitlines() == [
        "news.braking: silver, by entry 2 (news.*): access public, keep 100, slow drop_oldest",
        "  did you mean news.breaking? entry 1, gold",
    ]
    code, out, _ = run(file, "match", "news.braking", "--json")
    assert (code, json.loads(out)["class"]) == (0, "silver")


@pytest.mark.parametrize(("topic", "why"), [("sport.x", "no entry matches"), ("a..b", "no topic")])
def test_match_fails_for_what_would_be_rejected(file: Path, topic: str, why: str) -> None:
    code, _, err = run(file, "match", topic)
    assert code == 1
    assert why in err
