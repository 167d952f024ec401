"""Rights of topics.toml in RabbitMQ's form, and publishers' passwords."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st

from newsfabric.errors import ConfigError
from newsfabric.topics import CANARY_TOPIC, PublisherRights, TopicPolicy, TopicTable, matches
from newsfabric.topology import BrokerObjects, client_definitions
from newsfabric.topology.rights import publisher, topic_regex
from newsfabric.topology.roles import operator
from operations.cli.publishers import publishers
from operations.passwords import passwords_in

ROOT = Path(__file__).parents[2]

words = st.sampled_from(["a", "b", "news", "x-1", "y_2"])
patterns = st.lists(words | st.sampled_from(["*", "#"]), min_size=1, max_size=5).map(".".join)
topics = st.lists(words, min_size=1, max_size=6).map(".".join)


@given(patterns, topics)
@example("#", "a")
@example("#.#", "a.b")
@example("a.#", "a")
@example("#.a", "a")
@example("a.#.b", "a.b")
@example("a.#.#.b", "a.x-1.b")
@example("#.*", "a")
@example("a.#", "ab")
def test_the_regular_expression_matches_what_the_pattern_does(pattern: str, topic: str) -> None:
    found = re.fullmatch(topic_regex(pattern), topic) is not None
    assert found == matches(pattern, topic)


def test_a_publisher_writes_to_its_topics_and_has_queues_that_the_broker_names() -> None:
    user = publisher(PublisherRights("cms", ("news.#", "live.*")))
    assert user.topic_permissions() == [
        {
            "exchange": "publish",
            "write": r"^(news(\.[^.]+)*|live\.[^.]+)$",
            "read": "^$",
        }
    ]
    assert user.permissions() == {
        "configure": r"^(amq\.gen-.*)$",
        "write": "^(publish)$",
        "read": r"^(amq\.gen-.*)$",
    }


def test_canaries_need_no_rights_of_routers_but_brokers_give_publishers_none() -> None:
    rights = PublisherRights("cms", ("news.#",))
    [permission] = publisher(rights).topic_permissions()
    assert re.fullmatch(permission["write"], "news.a")
    assert not re.fullmatch(permission["write"], CANARY_TOPIC)
    # An operator's user has no such list: any key is allowed.
    assert operator("ada").topic_permissions() == []
    table = TopicTable([TopicPolicy(pattern="#")], [rights])
    assert table.may_publish("cms", CANARY_TOPIC)
    text = " ".join((ROOT / "docs" / "publishing.md").read_text().split())
    assert f"for the topic `{CANARY_TOPIC}`" in text
    assert "A publisher's broker user may only where its `topics` match it" in text


def test_definitions_hold_a_user_for_each_publisher_and_no_password() -> None:
    rights = [PublisherRights("cms", ("news.#",)), PublisherRights("sport", ("sport.*",))]
    passwords = {"cms": "secret-1", "sport": "secret-2"}
    document = client_definitions(BrokerObjects(), map(publisher, rights), passwords)
    assert [user["name"] for user in document["users"]] == ["cms", "sport"]
    assert [user["tags"] for user in document["users"]] == [[], []]
    assert [entry["user"] for entry in document["topic_permissions"]] == ["cms", "sport"]
    assert "secret" not in json.dumps(document)


def test_passwords_are_made_once_and_for_their_owners_eyes(tmp_path: Path) -> None:
    folder = tmp_path / "publishers"
    made = passwords_in(folder, ["cms", "sport"])
    assert len({*made.values()}) == 2
    assert all(len(password) >= 32 for password in made.values())
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "cms").stat().st_mode & 0o777 == 0o600
    assert passwords_in(folder, ["cms", "sport"]) == made


def test_an_empty_password_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "cms").write_text("\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="is empty"):
        passwords_in(tmp_path, ["cms"])


def test_the_command_prints_definitions_and_keeps_the_passwords(tmp_path: Path) -> None:
    topics_file = tmp_path / "topics.toml"
    topics_file.write_text(
        '[[topic]]\npattern = "#"\n[[publisher]]\napp_id = "cms"\ntopics = ["news.#"]\n', "utf-8"
    )
    folder = tmp_path / "passwords"
    options = ["--topics", str(topics_file), "--passwords", str(folder)]
    printed = CliRunner().invoke(publishers, options, catch_exceptions=False).output
    assert [user["name"] for user in json.loads(printed)["users"]] == ["cms"]
    assert (folder / "cms").read_text("utf-8").strip() not in printed


def test_without_publishers_the_command_says_so(tmp_path: Path) -> None:
    topics_file = tmp_path / "topics.toml"
    topics_file.write_text('[[topic]]\npattern = "#"\n', "utf-8")
    options = ["--topics", str(topics_file), "--passwords", str(tmp_path / "p")]
    with pytest.raises(ConfigError, match="everyone may publish"):
        CliRunner().invoke(publishers, options, catch_exceptions=False)
