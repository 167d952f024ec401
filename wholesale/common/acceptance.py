"""The check whether a publisher may publish a well-formed message to its topic. Pure.

Routers decide by this check. Frontdesks use it to report a router's decision in advance.
"""

from __future__ import annotations

from newsfabric.errors import Rejected
from newsfabric.messages.control import PUBLISHER_NOT_ALLOWED
from newsfabric.topics import CANARY_TOPIC, TopicPolicy, TopicTable
from newsfabric.topology.roles import vouches


def policy_of(topics: TopicTable, topic: str) -> TopicPolicy:
    """Return the policy of ``topic`` in topics.toml. Raise Rejected if no entry matches."""
    policy = topics.of_any(topic)
    if policy is None:
        raise Rejected("topic_not_allowed", "no entry of topics.toml matches this topic")
    return policy


def check_rights(
    topics: TopicTable, *, app_id: str | None, topic: str, user_id: str | None
) -> None:
    """Raise Rejected if publisher ``app_id``, logged in as ``user_id``, may not publish there."""
    if not topics.publishers or topic == CANARY_TOPIC:
        return
    if not topics.may_publish(app_id, topic):
        raise Rejected(
            PUBLISHER_NOT_ALLOWED,
            f"app_id {app_id or ''!r} may not publish to {topic} (topics.toml, [[publisher]])",
        )
    # A broker has validated user_id (RabbitMQ, "Validated User ID"); app_id is only a claim. A
    # frontdesk vouches for a publisher that it has identified by an API key.
    if user_id != app_id and not vouches(user_id or ""):
        raise Rejected(
            PUBLISHER_NOT_ALLOWED,
            f"app_id {app_id!r} must log in as that and say so: user_id is {user_id!r}",
        )
