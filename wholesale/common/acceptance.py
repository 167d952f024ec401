"""Whether a message that is well formed may be published where its publisher wants it. Pure.

Routers decide by it, and frontdesks tell by it what a router would say.
"""

from __future__ import annotations

from newsfabric.errors import Rejected
from newsfabric.messages.control import PUBLISHER_NOT_ALLOWED
from newsfabric.topics import CANARY_TOPIC, TopicPolicy, TopicTable
from newsfabric.topology.roles import vouches


def policy_of(topics: TopicTable, topic: str) -> TopicPolicy:
    """What topics.toml says of ``topic``; Rejected if it says nothing."""
    policy = topics.of_any(topic)
    if policy is None:
        raise Rejected("topic_not_allowed", "no entry of topics.toml matches this topic")
    return policy


def check_rights(
    topics: TopicTable, *, app_id: str | None, topic: str, user_id: str | None
) -> None:
    """Rejected if publisher ``app_id``, who logged in as ``user_id``, may not publish there."""
    if not topics.publishers or topic == CANARY_TOPIC:
        return
    if not topics.may_publish(app_id, topic):
        raise Rejected(
            PUBLISHER_NOT_ALLOWED,
            f"app_id {app_id or ''!r} may not publish to {topic} (topics.toml, [[publisher]])",
        )
    # A broker has checked it (RabbitMQ, "Validated User ID"); app_id is just a word. A frontdesk
    # says it of whom it knows by a key.
    if user_id != app_id and not vouches(user_id or ""):
        raise Rejected(
            PUBLISHER_NOT_ALLOWED,
            f"app_id {app_id!r} must log in as that and say so: user_id is {user_id!r}",
        )
