"""The verb ``subscribe``: past messages first, then live ones."""

from __future__ import annotations

import dataclasses
from typing import Self

from gateway.answers.verb import Parts, Pending, Port, Verb, refuse
from gateway.past.recalled import Recalled
from gateway.wire.fields import Fields
from gateway.wire.protocol import Gap, Rewind, Subscribed


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Subscribe(Verb):
    """A subscription to ``topic``, with the messages after ``position`` or of ``rewind`` first.

    ``position`` is a token that can be decoded; ``rewind`` applies if it leaves a gap.
    """

    position: str | None = None
    rewind: Rewind | None = None

    @classmethod
    def parse(cls, fields: Fields) -> Self:
        """See :meth:`.Verb.parse`."""
        position, rewind = fields.position(), fields.rewind()
        return cls(topic=fields.topic, position=position, rewind=rewind, ref=fields.ref)

    def answer(self, parts: Parts, reader: Port) -> Pending | None:
        """Answer from memory, or from the store; new messages matter more than old ones, so a
        store that can't be read is no reason to refuse, except for a mailbox."""
        refusal = reader.subscription_refusal(self.topic)
        if refusal is not None:
            refuse(reader, refusal, self)
            return None
        if self.position is not None:
            return self._resume(parts, reader, self.position)
        if self.rewind is None and parts.table.known(self.topic).access == "owner":
            return self._open_mailbox(parts, reader)
        asked_at = parts.now()
        found = parts.past.recall(self.topic, self.rewind, asked_at)
        if found is None:
            return self._rewind(parts, reader, asked_at, None)
        self._join(parts, reader, found, recovered=False)
        return None

    async def _rewind(self, parts: Parts, reader: Port, asked_at: float, gap: Gap | None) -> None:
        """Subscribe to past and live messages; ``gap``: why the position couldn't be used."""
        found = await reader.read_when_room(
            lambda: parts.past.recover(self.topic, self.rewind, asked_at)
        )
        self._join(parts, reader, found, recovered=False, gap=gap)

    async def _open_mailbox(self, parts: Parts, reader: Port) -> None:
        kept = await reader.read_when_room(lambda: parts.mailroom.collect(self.topic))
        self._join(parts, reader, kept, recovered=kept.recovered, gap=kept.gap)

    def _resume(self, parts: Parts, reader: Port, position: str) -> Pending | None:
        missed = parts.resumer.recall(self.topic, position)
        if missed is None or not missed.recovered:
            return self._resume_with_store(parts, reader, position)
        self._join(parts, reader, missed, recovered=True)
        return None

    async def _resume_with_store(self, parts: Parts, reader: Port, position: str) -> None:
        asked_at = parts.now()
        missed = await reader.read_when_room(lambda: self._recover(parts, position))
        if missed.gap is not None and self.rewind is not None:
            await self._rewind(parts, reader, asked_at, missed.gap)
        else:
            self._join(parts, reader, missed, recovered=missed.recovered, gap=missed.gap)

    async def _recover(self, parts: Parts, position: str) -> Recalled:
        """Return the missed messages; with a gap, the known ones and the newest of each key."""
        missed = await parts.resumer.recover(self.topic, position)
        if missed.gap is None or not parts.table.known(self.topic).latest:
            return missed
        await parts.past.try_to_warm(self.topic)
        return parts.resumer.salvage(self.topic, position, missed.gap, with_latest=True)

    def _join(
        self,
        parts: Parts,
        reader: Port,
        replay: Recalled,
        *,
        recovered: bool,
        gap: Gap | None = None,
    ) -> None:
        fitting = replay.that_fit(parts.replay_bytes)
        if recovered and len(fitting) < len(replay.publications):
            recovered, gap = False, Gap.TOO_LARGE
        if self.position is not None:
            parts.resumer.answered(self.topic, gap, reader.reader_count)
        position: str | None = parts.hub.position(parts.now())
        if recovered and fitting:
            # The reader doesn't have the replay yet, and must not lose it if it is cut off now.
            position = self.position
        reader.subscribe(Subscribed(self.topic, self.ref, position, recovered, gap), replay)
