"""The promises that examples/README.md makes about newsday.jsonl."""

import collections
import itertools
import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from newsfabric.topics import load_topics

ROOT = Path(__file__).parents[2]
NEWSDAY = ROOT / "examples" / "newsday.jsonl"
FIELDS = {"at", "topic", "key", "version", "message_id", "app_id", "type", "body"}
BODY_FIELDS = {"headline", "summary", "section", "lang", "updated"}
SCRIPTS = {
    "ARABIC",
    "CJK",
    "CYRILLIC",
    "DEVANAGARI",
    "GREEK",
    "HANGUL",
    "HEBREW",
    "HIRAGANA",
    "KATAKANA",
    "LATIN",
}
DAY = 24 * 3600

Message = dict[str, Any]


@pytest.fixture(scope="module")
def messages() -> list[Message]:
    return [json.loads(line) for line in NEWSDAY.read_text(encoding="utf-8").splitlines()]


def body_bytes(message: Message) -> int:
    compact = json.dumps(message["body"], ensure_ascii=False, separators=(",", ":"))
    return len(compact.encode())


def stories(messages: list[Message]) -> dict[tuple[str, str], list[int]]:
    """Return the versions of each story, in the order of the file."""
    found = collections.defaultdict(list)
    for message in messages:
        found[message["topic"], message["key"]].append(message["version"])
    return found


def test_every_message_has_its_fields_and_no_others(messages: list[Message]) -> None:
    assert {frozenset(message) for message in messages} == {frozenset(FIELDS)}
    assert [m["message_id"] for m in messages if BODY_FIELDS - set(m["body"])] == []


def test_there_are_at_least_600_messages_over_at_least_ten_topics(messages: list[Message]) -> None:
    assert len(messages) >= 600
    assert len({message["topic"] for message in messages}) >= 10


def test_the_readme_counts_right(messages: list[Message]) -> None:
    topics = len({message["topic"] for message in messages})
    readme = (NEWSDAY.parent / "README.md").read_text(encoding="utf-8")
    assert f"{len(messages)} messages over {topics} topics" in readme


def test_topics_toml_lets_everyone_read_every_topic(messages: list[Message]) -> None:
    table = load_topics(ROOT / "topics.toml")
    policies = {topic: table.find(topic) for topic in {message["topic"] for message in messages}}
    assert {t: p.access if p else None for t, p in policies.items()} == dict.fromkeys(
        policies, "public"
    )


def test_time_only_moves_forward_through_the_whole_day(messages: list[Message]) -> None:
    times = [message["at"] for message in messages]
    assert times == sorted(times)
    assert 0 <= times[0] < 1800
    assert DAY - 1800 < times[-1] < DAY


def test_there_are_bursts_and_quiet_times(messages: list[Message]) -> None:
    per_minute = collections.Counter(int(message["at"] // 60) for message in messages)
    assert max(per_minute.values()) >= 20
    assert DAY // 60 - len(per_minute) >= 600  # minutes in which nothing happens


def test_message_ids_are_unique(messages: list[Message]) -> None:
    ids = [message["message_id"] for message in messages]
    assert len(set(ids)) == len(ids)


def test_versions_of_a_story_count_up_from_one(messages: list[Message]) -> None:
    for versions in stories(messages).values():
        assert versions == list(range(1, len(versions) + 1))


def test_several_live_blogs_have_many_versions_of_one_key(messages: list[Message]) -> None:
    blogs = {topic: len(v) for (topic, _), v in stories(messages).items() if "live." in topic}
    assert len(blogs) >= 3
    assert min(blogs.values()) >= 10
    assert max(blogs.values()) >= 30


def test_a_correction_is_a_later_version_of_its_story(messages: list[Message]) -> None:
    corrections = [message for message in messages if message["type"] == "story.correction"]
    assert len(corrections) >= 5
    assert all(message["version"] > 1 for message in corrections)
    assert all(message["body"]["correction"] for message in corrections)


def test_bodies_are_from_200_bytes_to_20_kilobytes(messages: list[Message]) -> None:
    sizes = sorted(body_bytes(message) for message in messages)
    assert 200 <= sizes[0] < 300
    assert 18_000 < sizes[-1] <= 20_480
    assert sum(size > 4096 for size in sizes) >= 30
    assert NEWSDAY.stat().st_size < 2_000_000


def test_the_news_comes_in_many_languages_and_scripts(messages: list[Message]) -> None:
    languages = {message["body"]["lang"] for message in messages}
    assert languages >= {"en", "es", "fr", "de", "ar", "he", "hi", "ja", "zh", "ko", "el", "ru"}
    letters = set(itertools.chain.from_iterable(m["body"]["headline"] for m in messages))
    assert {unicodedata.name(c, "").split(" ")[0] for c in letters} >= SCRIPTS


def test_there_are_emoji_beyond_the_basic_plane(messages: list[Message]) -> None:
    text = "".join(message["body"]["summary"] for message in messages)
    assert {"🗳", "🎻", "🚇"} <= set(text)
    assert any(ord(c) > 0xFFFF for c in text)


def test_no_story_is_told_twice_in_the_same_words(messages: list[Message]) -> None:
    found = collections.Counter(
        (m["body"]["headline"], m["body"]["summary"])
        for m in messages
        if m["type"] in {"story", "live.post", "video", "warning"}
    )
    assert [words for words, times in found.items() if times > 1] == []
