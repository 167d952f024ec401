"""Routed envelopes for tests: each field has a default, and a test gives those that matter."""

from __future__ import annotations

import dataclasses
from typing import Any

from newsfabric.messages.envelope import Envelope, id_of, identity_of

# 2025-01-01T00:00:00Z
START_MS = 1_735_689_600_000


def envelope(number: int = 1, *, at: int = 0, **fields: Any) -> Envelope:
    """Return envelope ``number`` of a stream, routed ``at`` ms after START_MS.

    ``message_id`` (by default made from the number) decides the identity. Other fields
    of :class:`Envelope` may be given as they are.
    """
    ms = START_MS + at
    message_id = fields.pop("message_id", f"message-{number}")
    identity = identity_of(
        app_id=None, message_id=message_id, topic="", published_ms=None, body=b""
    )
    made = Envelope(
        id=id_of(ms, identity),
        identity=identity,
        topic="news.breaking",
        body=b'{"headline": %d}' % number,
        published_ms=ms - 5,
        origin="oregon",
        router="oregon-router-1",
        epoch=START_MS,
        seq=number,
        path=(f"oregon-router-1@{ms}",),
        message_id=message_id,
    )
    return dataclasses.replace(made, **fields)


class Clock:
    """A clock in ms that moves only when a test sets it."""

    def __init__(self, at: int = 0) -> None:
        self.ms = START_MS + at

    def __call__(self) -> int:
        return self.ms
