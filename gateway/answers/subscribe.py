"""The verb ``subscribe``: past messages first, then live ones."""

from __future__ import annotations

import dataclasses
from typing import Self

from gateway.answers.verb import Pending, Port, Verb, VerbContext, answer_with, refuse
from gateway.past.replay import Question, Replay, Source
from gateway.wire.fields import VerbFields
from gateway.wire.protocol import Gap, Rewind, Subscribed


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Subscribe(Verb):
    """A subscription to ``topic``, with the messages after ``position`` or of ``rewind`` first.

    ``position`` is a token that can be decoded; ``rewind`` applies if it leaves a gap.
    """

    position: str | None = None
    rewind: Rewind | None = None

    @classmethod
    def parse(cls, fields: VerbFields) -> Self:
        """See :meth:`.Verb.parse`."""
        position, rewind = fields.position(), fields.rewind()
        return cls(topic=fields.topic, position=position, rewind=rewind, ref=fields.ref)

    def answer(self, context: VerbContext, reader: Port) -> Pending | None:
        """Answer from memory, or from the store; new messages matter more than old ones, so a
        store that can't be read is no reason to refuse, except for a mailbox."""
        refusal = reader.subscription_refusal(self.topic)
        if refusal is not None:
            refuse(reader, refusal, self)
            return None
        source = self._source(context)
        question = Question(self.topic, context.now(), self.position, self.rewind)
        return answer_with(
            reader,
            source.answer_from_memory(question),
            lambda: source.answer_from_store(question),
            lambda replay: self._join(context, reader, replay, source is not context.rewinds),
        )

    def _source(self, context: VerbContext) -> Source:
        if self.position is not None:
            return context.resumes
        if self.rewind is None and context.table.known(self.topic).access == "owner":
            return context.mailboxes
        return context.rewinds

    def _join(self, context: VerbContext, reader: Port, replay: Replay, has_all: bool) -> None:
        """Subscribe; ``has_all``: without a gap, the replay is all that the reader lacks."""
        gap = replay.gap
        recovered = has_all and gap is None
        fitting = replay.newest_within(context.replay_bytes)
        if recovered and len(fitting) < len(replay.publications):
            recovered, gap = False, Gap.TOO_LARGE
        if self.position is not None:
            context.resumes.count_answer(self.topic, gap, reader.reader_count)
        position: str | None = context.hub.position(context.now())
        if recovered and fitting:
            # The reader doesn't have the replay yet, and must not lose it if it is cut off now.
            position = self.position
        reader.subscribe(Subscribed(self.topic, self.ref, position, recovered, gap), replay)
