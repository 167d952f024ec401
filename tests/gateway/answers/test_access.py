"""The right to read a topic, by its policy and the reader's login."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.answers.access import may_read, refusal
from newsfabric.closing import ErrorCode
from newsfabric.tokens import Login
from newsfabric.topics import TopicPolicy, TopicTable, is_topic, load_topics

POLICIES = {
    access: TopicPolicy(pattern="#", access=access)
    for access in ("public", "registered", "owner", "granted")
}
words = st.text("abAB01_-", min_size=1, max_size=3)
topics = st.lists(words, min_size=1, max_size=4).map(".".join)
patterns = st.lists(st.lists(words | st.sampled_from("*#"), min_size=1).map(".".join), max_size=5)


def login(user: str = "42", *granted: str) -> Login:
    return Login(user=user, topics=granted, issued_ms=0, expires_ms=0, ends_ms=0)


@pytest.mark.parametrize(
    ("access", "nobody", "somebody", "with_grant"),
    [
        ("public", None, None, None),
        ("registered", 101, None, None),
        ("granted", 101, 103, None),
        ("owner", 101, 103, 103),
    ],
)
def test_access_by_policy_and_login(
    access: Any, nobody: int | None, somebody: int | None, with_grant: int | None
) -> None:
    policy = POLICIES[access]
    logins = (None, login(), login("42", "a.*"))
    found = [refusal("a.b", policy, one) for one in logins]
    assert [one and int(one.code) for one in found] == [nobody, somebody, with_grant]


@given(topics, words, patterns)
def test_an_owners_topic_is_read_by_nobody_else_whatever_is_granted(
    topic: str, user: str, granted: list[str]
) -> None:
    mine = topic.split(".")[-1] == user
    assert may_read(topic, POLICIES["owner"], login(user, *granted)) is mine


@pytest.mark.parametrize("topic", ["desk.plan", "desk.embargoes", "marks.billing"])
def test_of_the_shipped_topics_the_newsrooms_own_take_more_than_a_login(topic: str) -> None:
    policy = load_topics(Path(__file__).parents[3] / "topics.toml").find(topic)
    assert policy is not None
    assert not may_read(topic, policy, login())
    assert not may_read(topic, policy, login("editor", "live.#"))
    assert may_read(topic, policy, login("editor", topic.split(".")[0] + ".#"))


def test_the_refusal_names_the_topic() -> None:
    found = refusal("a.b", POLICIES["owner"], login())
    assert found is not None
    assert (found.topic, found.code) == ("a.b", ErrorCode.PERMISSION_DENIED)


@given(st.text(max_size=12) | st.text("_fabricevokd.", max_size=15))
def test_what_the_fabric_says_to_itself_is_no_topic_whatever_the_patterns(text: str) -> None:
    table = TopicTable([TopicPolicy(pattern="#")])
    found = table.find(text)
    assert (found is not None) is (is_topic(text) and text.split(".")[0] != "_fabric")
