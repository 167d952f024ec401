"""The verb ``history``: the newest messages of a topic, or those before an id."""

from __future__ import annotations

import dataclasses
from typing import Self

from gateway.answers.verb import Parts, Pending, Port, Verb
from gateway.memory.memory import Selection
from gateway.past.bounded import newest_that_fit
from gateway.wire.fields import Fields
from gateway.wire.frames import Variant, messages_push
from gateway.wire.publication import push_bytes


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class History(Verb):
    """A request for the newest ``limit`` messages of ``topic``, before id ``before`` if given."""

    limit: int
    before: str | None = None

    @classmethod
    def parse(cls, fields: Fields) -> Self:
        """See :meth:`.Verb.parse`."""
        limit = fields.whole("limit", fields.limits.history, 20)
        before = fields.message_id("before") if fields.values.get("before") is not None else None
        return cls(topic=fields.topic, limit=limit, before=before, ref=fields.ref)

    def answer(self, parts: Parts, reader: Port) -> Pending | None:
        """Answer from memory, or from the store."""
        found = parts.past.recall_history(self.topic, self.limit, self.before)
        if found is None:
            return self._answer_from_store(parts, reader)
        reader.push(self._push(found, parts.replay_bytes))
        return None

    async def _answer_from_store(self, parts: Parts, reader: Port) -> None:
        found = await reader.read_when_room(
            lambda: parts.past.recover_history(self.topic, self.limit, self.before)
        )
        reader.push(self._push(found, parts.replay_bytes))

    def _push(self, found: Selection, most_bytes: int) -> bytes:
        fitting = newest_that_fit(found.publications, push_bytes, most_bytes)
        more = len(found.publications) >= self.limit or len(fitting) < len(found.publications)
        messages = [publication.frame(Variant.RAW) for publication in fitting]
        return messages_push(self.ref, self.topic, messages, more or found.cut, found.missing)
