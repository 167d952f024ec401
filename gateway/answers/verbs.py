"""The table of verbs, and the parser that reads readers' texts by it.

A new verb is a module beside this one, and a row here. A reader's text is untrusted:
:meth:`VerbParser.parse` returns a value for every text and never raises.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

import orjson

from gateway.answers.history import History
from gateway.answers.login import LogIn
from gateway.answers.mark import SetMark
from gateway.answers.ping import Ping
from gateway.answers.subscribe import Subscribe
from gateway.answers.unsubscribe import Unsubscribe
from gateway.answers.verb import Verb
from gateway.wire.fields import BadVerb, VerbFields, ref_of, topic_of
from gateway.wire.protocol import ReaderLimits, Ref, VerbRefusal
from newsfabric.closing import ErrorCode
from newsfabric.messages.mailbox import MARK_KINDS
from newsfabric.topics import TopicTable, is_topic

#: The checks of a verb's topic, each with those before it. "named": well-formed. "readable": in
#: topics.toml, and the reader may read it. "past": the gateway is ready to tell the topic's past.
Topic = Literal["none", "named", "readable", "past"]
#: The work shared by readers of one data plane who send the same text. "nothing": each is decided
#: alone. "answer": one for all who send it at the same moment. "text": also, the parsed text is
#: kept for later readers, unless its topic is a user's own.
Shared = Literal["nothing", "answer", "text"]


class VerbRow(NamedTuple):
    """The facts about a verb: its ``actions`` in a text, its ``label`` in the metric of verbs."""

    actions: tuple[str, ...]
    verb: type[Verb]
    topic: Topic
    shared: Shared
    label: str


TABLE: Final = (
    VerbRow(("subscribe",), Subscribe, "past", "text", "subscribe"),
    VerbRow(("unsubscribe",), Unsubscribe, "named", "text", "unsubscribe"),
    VerbRow(("history",), History, "past", "text", "history"),
    VerbRow(MARK_KINDS, SetMark, "readable", "answer", "setmark"),
    # Each login is a try of its own, and each try counts.
    VerbRow(("login", "refresh"), LogIn, "none", "nothing", "login"),
    VerbRow(("ping",), Ping, "none", "text", "ping"),
)
BY_ACTION: Final = {action: row for row in TABLE for action in row.actions}
BY_VERB: Final = {row.verb: row for row in TABLE}

#: A reader's text, parsed.
Intent = Verb | VerbRefusal


@dataclasses.dataclass(frozen=True)
class VerbParser:
    """The parser of verbs for the readers of one gateway."""

    table: TopicTable
    limits: ReaderLimits

    def parse(self, data: str | bytes) -> Intent:
        """Return the verb in a reader's text, or its refusal."""
        try:
            values = orjson.loads(data)
        except orjson.JSONDecodeError:
            return VerbRefusal(code=ErrorCode.BAD_REQUEST, reason="not JSON")
        if not isinstance(values, dict):
            return VerbRefusal(code=ErrorCode.BAD_REQUEST, reason="a verb is a JSON object")
        return self.parse_object(values)

    def parse_object(self, values: Mapping[str, Any]) -> Intent:
        """Return the verb in parsed JSON, or its refusal."""
        ref: Ref = None
        try:
            ref = ref_of(values, self.limits)
            return self._verb(values, ref)
        except BadVerb as bad:
            topic = values.get("topic")
            named = topic if isinstance(topic, str) and is_topic(topic) else None
            return VerbRefusal(code=bad.code, reason=bad.reason, topic=named, ref=ref)

    def _verb(self, values: Mapping[str, Any], ref: Ref) -> Verb:
        action = values.get("action")
        if not isinstance(action, str):
            raise BadVerb("action must be a verb")
        row = BY_ACTION.get(action)
        if row is None:
            raise BadVerb("unknown verb")
        topic = "" if row.topic == "none" else topic_of(values)
        if row.topic in ("readable", "past") and self.table.find(topic) is None:
            raise BadVerb("unknown topic", ErrorCode.UNKNOWN_TOPIC)
        return row.verb.parse(VerbFields(values, topic, ref, self.table, self.limits))
