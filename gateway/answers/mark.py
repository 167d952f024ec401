"""The verbs ``ack``, ``read`` and ``dismiss``: user marks."""

from __future__ import annotations

import dataclasses
from typing import Self, cast

from gateway.answers.verb import Port, Verb, VerbContext
from gateway.wire.fields import BadVerb, VerbFields
from gateway.wire.frames import encode_push
from newsfabric.messages.mailbox import MarkKind, UserMark
from newsfabric.store.rules import clock_ms


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SetMark(Verb):
    """A user mark on message ``id`` of ``topic``, a user's own: received, read or dismissed."""

    id: str
    kind: MarkKind

    @classmethod
    def parse(cls, fields: VerbFields) -> Self:
        """See :meth:`.Verb.parse`."""
        if fields.table.known(fields.topic).access != "owner":
            raise BadVerb("only individual messages can be marked")
        id_, kind = fields.message_id("id"), cast(MarkKind, fields.values["action"])
        try:
            UserMark(topic=fields.topic, id=id_, kind=kind, at_ms=0)
        except ValueError as exc:
            raise BadVerb("this topic's messages can't be marked") from exc
        return cls(topic=fields.topic, id=id_, kind=kind, ref=fields.ref)

    async def answer(self, context: VerbContext, reader: Port) -> None:
        """Answer when the mark is on its way to the core."""
        mark = UserMark(topic=self.topic, id=self.id, kind=self.kind, at_ms=clock_ms())
        await context.upstream.send(mark)
        reader.push(
            encode_push("marked", ref=self.ref, topic=self.topic, id=self.id, mark=self.kind)
        )
