"""Checks of the fields of a reader's verb. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from gateway.wire.position import decode
from gateway.wire.protocol import ReaderLimits, Ref, Rewind
from newsfabric.closing import ErrorCode
from newsfabric.messages.envelope import identity_of_id
from newsfabric.numbers import is_whole
from newsfabric.topics import TopicTable, is_topic, parse_duration


class BadVerb(Exception):
    """A refusal's code and reason, raised by checks; never leaves the parser of verbs."""

    def __init__(self, reason: str, code: ErrorCode = ErrorCode.BAD_REQUEST) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


@dataclasses.dataclass(frozen=True, slots=True)
class VerbFields:
    """The fields of one verb, of an untrusted reader. Each method raises :class:`BadVerb`.

    ``topic`` is checked, and "" for a verb that has none.
    """

    values: Mapping[str, Any]
    topic: str
    ref: Ref
    table: TopicTable
    limits: ReaderLimits

    def text(self, name: str) -> str:
        """Return a required string."""
        value = self.values.get(name)
        if not isinstance(value, str):
            raise BadVerb(f"{name} must be a string")
        return value

    def whole(self, name: str, most: int, default: int) -> int:
        """Return a whole number from 1 to ``most``."""
        value = self.values.get(name, default)
        if not is_whole(value, 1, most):
            raise BadVerb(f"{name} must be a whole number from 1 to {most}")
        return value

    def message_id(self, name: str) -> str:
        """Return the id of a message."""
        value = self.values.get(name)
        if isinstance(value, str) and len(value) == 36:
            try:
                identity_of_id(value)
            except ValueError:
                pass
            else:
                return value
        raise BadVerb(f"{name} must be a message's id")

    def position(self) -> str | None:
        """Return a position that can be decoded; None if there is none."""
        if self.values.get("position") is None:
            return None
        value = self.text("position")
        try:
            decode(value)
        except ValueError as exc:
            code = ErrorCode.UNRECOVERABLE_POSITION
            raise BadVerb("not a position of this fabric", code) from exc
        return value

    def rewind(self) -> Rewind | None:
        """Return a start in the past; None if there is none."""
        value = self.values.get("rewind")
        if value is None:
            return None
        if is_whole(value, 1, self.limits.rewind):
            return Rewind(count=value)
        if isinstance(value, str):
            try:
                seconds = parse_duration(value)
            except ValueError as exc:
                raise BadVerb("rewind must be a number of messages, or like 90s, 5m, 2h") from exc
            if 0 < seconds <= self.limits.rewind_seconds:
                return Rewind(seconds=seconds)
        raise BadVerb(f"rewind must be 1 to {self.limits.rewind} messages, or like 90s, 5m, 2h")


def ref_of(values: Mapping[str, Any], limits: ReaderLimits) -> Ref:
    """Return the ``ref`` of a verb."""
    ref = values.get("ref")
    if isinstance(ref, str) and len(ref.encode()) > limits.ref_bytes:
        raise BadVerb(f"ref has more than {limits.ref_bytes} bytes")
    if ref is None or isinstance(ref, str | int | float | bool):
        return ref
    raise BadVerb("ref must be a string or a number")


def topic_of(values: Mapping[str, Any]) -> str:
    """Return the ``topic`` of a verb, which is well-formed."""
    topic = values.get("topic")
    if not isinstance(topic, str) or not is_topic(topic):
        raise BadVerb("topic must be dotted words of A-Z a-z 0-9 _ and -")
    return topic
