"""Bad input of strangers: it is answered and counted, and never fatal."""

from __future__ import annotations

import json

import pika
import pytest
from worlds import World

pytestmark = [pytest.mark.world, pytest.mark.timeout(420)]

BAD = {
    "not_json": ("news.world", "{not json"),
    "topic_not_allowed": ("nobody.knows", "{}"),
    "empty_body": ("news.world", ""),
    "bad_topic": ("news..world", "{}"),
}


@pytest.mark.parametrize("reason", BAD)
def test_a_bad_message_is_rejected_with_its_reason(world: World, reason: str, tmp_path) -> None:
    topic, body = BAD[reason]
    file = tmp_path / "body"
    file.write_text(body)
    published = world.run("publish", topic, f"@{file}", "--region", "oregon")
    assert published.returncode == 1
    assert reason in published.stderr
    assert len(published.stderr.strip().splitlines()) == 1
    rejected = world.run("rejected", "--region", "oregon", "--json", "--limit", "100")
    reasons = {json.loads(line)["reason"] for line in rejected.stdout.splitlines()}
    assert reason in reasons


STRANGE = {
    "not_utf8": (b'{"headline": "\xff"}', {}),
    "too_large": (json.dumps({"text": "x" * 70_000}).encode(), {}),
    "bad_header": (b"{}", {"headers": {"version": "the newest"}}),
    "bad_property": (b"{}", {"content_type": "text/plain"}),
}


@pytest.mark.parametrize("reason", STRANGE)
def test_what_a_stranger_sends_is_kept_with_its_bytes(world: World, reason: str) -> None:
    body, properties = STRANGE[reason]
    with pika.BlockingConnection(pika.URLParameters(world.amqp_url("oregon", "core"))) as core:
        channel = core.channel()
        evidence = channel.queue_declare("", exclusive=True).method.queue
        channel.queue_bind(evidence, "rejected", reason)
        with pika.BlockingConnection(pika.URLParameters(world.amqp_url("oregon"))) as client:
            client.channel().basic_publish(
                "publish", "news.world", body, pika.BasicProperties(**properties)
            )
        found = next(channel.consume(evidence, inactivity_timeout=60))
    assert found[2] == body
    assert found[1].headers["reason"] == reason
    assert found[1].headers["topic"] == "news.world"


def test_what_is_too_large_is_not_even_sent(world: World, tmp_path) -> None:
    file = tmp_path / "body"
    file.write_text(json.dumps({"text": "x" * 200_000}))
    published = world.run("publish", "news.world", f"@{file}", "--region", "oregon")
    assert published.returncode == 1
    assert "too_large: 200012 bytes, at most 65536; it was not sent" in published.stderr


def test_the_fabric_still_carries_messages_after_all_that(world: World) -> None:
    assert world.run("publish", "news.world", '{"headline": "still here"}').returncode == 0
