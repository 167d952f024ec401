"""A push as a reader receives it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, Final

import orjson

from newsfabric import metrics
from newsfabric.messages.envelope import identity_of_id, identity_text

DROPPED: Final = metrics.counter(
    "reader_dropped_pushes", "Pushes that are no JSON object, or nested too deeply to be read"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Push:
    """A push: its JSON ``text``, on one line, and its ``fields``.

    ``last_id`` is the position of an event stream, for all its topics, after this push; None on
    other transports, and until the stream has sent one.
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
        """True for news, False for pushes about the connection."""
        return self.type == "message"

    @property
    def topic(self) -> str:
        """The topic of the push."""
        return str(self.fields.get("topic"))

    @property
    def identity(self) -> str | None:
        """The message's identity: the same in every region, also where ids differ.

        Compare it with the identity in a receipt; None if the push has no id.
        """
        try:
            return identity_text(identity_of_id(str(self.fields.get("id"))))
        except ValueError:
            return None

    @property
    def text_with_identity(self) -> str:
        """The ``text`` with a field ``identity`` at its end, if the push has an id.

        The other bytes stay: numbers of a body, parsed and written again, might change.
        """
        if self.identity is None or "identity" in self.fields:
            return self.text
        return f'{self.text.rstrip()[:-1]},"identity":"{self.identity}"}}'

    @property
    def position(self) -> str | None:
        """The position after this push, for its topic; None if the push has none."""
        position = self.fields.get("position")
        return position if isinstance(position, str) else None


def parse_pushes(texts: Iterable[str | bytes]) -> list[Push]:
    """Return the pushes in ``texts``. Unreadable ones are counted in :data:`DROPPED` and left out.

    They don't end the connection: the next one would be sent the same again.
    """
    found = []
    for text in texts:
        try:
            found.append(parse_push(text))
        except ValueError:
            DROPPED.inc()
    return found


def parse_push(text: str | bytes) -> Push:
    """Return the push in ``text``; ValueError if it can't be read."""
    fields = orjson.loads(text)
    if not isinstance(fields, dict):
        raise ValueError("not a JSON object")
    line = text.decode("utf-8") if isinstance(text, bytes) else text
    # A body may have line breaks between values; strings escape theirs, so spaces do as well.
    return Push(line.replace("\r", " ").replace("\n", " "), fields)
