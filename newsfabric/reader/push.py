"""A push as a reader gets it."""

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
    def identity(self) -> str | None:
        """Which message it is: the same in every region, also where their ids differ.

        It is what one compares, as in a receipt; None if the push has no id.
        """
        try:
            return identity_text(identity_of_id(str(self.fields.get("id"))))
        except ValueError:
            return None

    @property
    def text_with_identity(self) -> str:
        """The ``text`` with a field ``identity`` at its end, if it has an id.

        Its other bytes stay: numbers of a body, read and written again, might change.
        """
        if self.identity is None or "identity" in self.fields:
            return self.text
        return f'{self.text.rstrip()[:-1]},"identity":"{self.identity}"}}'

    @property
    def position(self) -> str | None:
        """Where to go on after this push, for its topic; None if it doesn't say."""
        position = self.fields.get("position")
        return position if isinstance(position, str) else None


def parse_pushes(texts: Iterable[str | bytes]) -> list[Push]:
    """The pushes in ``texts``. What can't be read is counted in :data:`DROPPED` and left out.

    A connection doesn't end for it: the next one would be sent the same again.
    """
    found = []
    for text in texts:
        try:
            found.append(parse_push(text))
        except ValueError:
            DROPPED.inc()
    return found


def parse_push(text: str | bytes) -> Push:
    """The push in ``text``; ValueError for what can't be read."""
    fields = orjson.loads(text)
    if not isinstance(fields, dict):
        raise ValueError("not a JSON object")
    line = text.decode("utf-8") if isinstance(text, bytes) else text
    # A body may be written over several lines; strings escape theirs, so spaces say the same.
    return Push(line.replace("\r", " ").replace("\n", " "), fields)
