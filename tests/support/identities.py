"""A message's identity and an id, for tests."""

from __future__ import annotations

from newsfabric.messages.envelope import id_of, identity_of

NOW_MS = 1_735_689_600_000
GOOD_ID = id_of(NOW_MS, 12345)


def identify(**fields: object) -> int:
    """Return the identity of a message with these ``fields``, and default values for the others."""
    asked = {
        "app_id": "cms",
        "message_id": "m-1",
        "topic": "news.breaking",
        "published_ms": NOW_MS,
        "body": b"{}",
    }
    return identity_of(**(asked | fields))
