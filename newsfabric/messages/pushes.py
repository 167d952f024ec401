"""The form of a message for readers, both pushed by a gateway and in a history."""

from __future__ import annotations

from typing import Any

from newsfabric.messages.envelope import Envelope
from newsfabric.topics import TopicClass


def message_fields(envelope: Envelope, topic_class: TopicClass) -> dict[str, Any]:
    """Return the fields of a ``message`` push but ``body`` and ``position``.

    The body is left out because its bytes are passed on unchanged, the position because it belongs
    to the gateway that sends the push. ``identity`` is left out too: readers find it in ``id``, and
    it would cost each delivery 33 bytes.
    """
    return {
        "type": "message",
        "topic": envelope.topic,
        "id": envelope.id,
        "key": envelope.key,
        "version": envelope.version,
        "published": envelope.published_ms,
        "origin": envelope.origin,
        "class": topic_class,
    }
