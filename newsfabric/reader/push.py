"""A push as a reader gets it."""

from __future__ import annotations

import dataclasses
from typing import Any

import orjson

from newsfabric.errors import Disconnected


@dataclasses.dataclass(frozen=True, slots=True)
class Push:
    """One push: its JSON ``text``, on one line, and what is in it.

    ``last_id`` is where an event stream, all its topics together, goes on after it; None on
    other transports, and as long as the stream doesn't say.
    """

    text: str
    fields: dict[str, Any]
    last_id: str | None = None

    @property
    def type(self) -> str:
        """``message``, ``subscribed``, ``error``, ``disconnect`` …"""
        return str(self.fields.get("type"))

    @property
    def is_message(self) -> bool:
        """Whether it is news, and not about the connection."""
        return self.type == "message"

    @property
    def topic(self) -> str:
        """The topic that it is about."""
        return str(self.fields.get("topic"))

    @property
    def position(self) -> str | None:
        """Where to go on after this push, for its topic; None if it doesn't say."""
        position = self.fields.get("position")
        return position if isinstance(position, str) else None


def parse_push(text: str | bytes) -> Push:
    """The push in ``text``; Disconnected (4007) when a gateway can't have sent it."""
    try:
        fields = orjson.loads(text)
    except orjson.JSONDecodeError as exc:
        raise _nonsense(f"not JSON: {exc}") from exc
    if not isinstance(fields, dict):
        raise _nonsense("not a JSON object")
    line = text.decode("utf-8") if isinstance(text, bytes) else text
    # A body may be written over several lines; strings escape theirs, so spaces say the same.
    return Push(line.replace("\r", " ").replace("\n", " "), fields)


def _nonsense(what: str) -> Disconnected:
    return Disconnected(4007, f"the gateway sent a push that is {what}", reconnect=False)
