"""The verb ``history``: the newest messages of a topic, or those before an id."""

from __future__ import annotations

import dataclasses
from typing import Self

from gateway.answers.verb import Pending, Port, Verb, VerbContext, answer_with
from gateway.memory.memory import Selection
from gateway.past.bounded import newest_that_fit
from gateway.wire.fields import VerbFields
from gateway.wire.frames import Framing, messages_push
from gateway.wire.publication import push_bytes


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class History(Verb):
    """A request for the newest ``limit`` messages of ``topic``, before id ``before`` if given."""

    limit: int
    before: str | None = None

    @classmethod
    def parse(cls, fields: VerbFields) -> Self:
        """See :meth:`.Verb.parse`."""
        limit = fields.whole("limit", fields.limits.history, 20)
        before = fields.message_id("before") if fields.values.get("before") is not None else None
        return cls(topic=fields.topic, limit=limit, before=before, ref=fields.ref)

    def answer(self, context: VerbContext, reader: Port) -> Pending | None:
        """Answer from memory, or from the store."""
        rewinds = context.rewinds
        return answer_with(
            reader,
            rewinds.history_from_memory(self.topic, self.limit, self.before),
            lambda: rewinds.history_from_store(self.topic, self.limit, self.before),
            lambda found: reader.push(self._push(found, context.replay_bytes)),
        )

    def _push(self, found: Selection, most_bytes: int) -> bytes:
        fitting = newest_that_fit(found.publications, push_bytes, most_bytes)
        more = len(found.publications) >= self.limit or len(fitting) < len(found.publications)
        messages = [publication.frame(Framing.RAW) for publication in fitting]
        return messages_push(self.ref, self.topic, messages, more or found.cut, found.missing)
