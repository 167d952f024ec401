"""The part of a simulated gateway that answers readers that resume."""

from __future__ import annotations

from logmodel.memory import TopicMemory
from logmodel.positions import ModelPosition
from logmodel.protocols import AnyGateway, AnyWorld
from logmodel.readers import ModelReader
from logmodel.resuming import Resuming
from logmodel.rows import Copy, ModelRow
from logmodel.settings import RESUME_PATIENCE


class Answers:
    """Replies from memory, if nothing forgotten is lacked by the reader, or else from stores."""

    def __init__(self, world: AnyWorld, gateway: AnyGateway, resuming: Resuming) -> None:
        self._world = world
        self._gateway = gateway
        self._resuming = resuming

    def resume(self, reader: ModelReader, position: ModelPosition) -> None:
        """Answer now, or after reads; the answer is a call of ``reader.resumed``."""
        if not self._gateway.is_listening:
            return
        memory = self._gateway.memory[reader.topic]
        if not memory.lacks(self._gateway.reader_at(position).has_all):
            self._world.book.counts["from_memory"] += 1
            self._answer(reader, position, {}, is_proved=True)
            return
        memory.begin_read()
        self._try(reader, position, memory, self._world.now + RESUME_PATIENCE)

    def _try(
        self, reader: ModelReader, position: ModelPosition, memory: TopicMemory, until: float
    ) -> None:
        world = self._world
        rows, is_proved = self._read(reader.topic, position, memory)
        took = world.rng.choice([0.05, 0.5, 1.5])
        world.at(
            world.now + took, self._have_read, reader, position, memory, until, rows, is_proved
        )

    def _have_read(
        self,
        reader: ModelReader,
        position: ModelPosition,
        memory: TopicMemory,
        until: float,
        rows: dict[Copy, ModelRow],
        is_proved: bool,
    ) -> None:
        if not self._gateway.is_alive or reader.waits_for is not self._gateway:
            memory.end_read()
        elif not is_proved and self._world.now < until:
            self._try(reader, position, memory, until)
        else:
            # If memory was lost meanwhile, the new one has forgotten other messages.
            is_same = memory is self._gateway.memory[reader.topic]
            self._answer(reader, position, rows, is_proved=is_proved and is_same)
            memory.end_read()
            memory.trim()

    def _read(
        self, topic: str, position: ModelPosition, memory: TopicMemory
    ) -> tuple[dict[Copy, ModelRow], bool]:
        """Read the topic where that proves something, else here; return if all is proved."""
        stores, is_proved = self._world.stores, True
        rows: dict[Copy, ModelRow] = {}
        lacking = memory.lacks(self._gateway.reader_at(position).has_all)
        wanted = self._resuming.reads(lacking, position)
        for region, since in wanted.items():
            at = region
            if not stores.can_ask(self._gateway.region, region):
                is_proved, at = False, self._gateway.region
            if at != self._gateway.region:
                self._world.book.counts["read_abroad"] += 1
            if stores.can_ask(self._gateway.region, at):
                rows |= self._found(at, topic, since)
        return rows, is_proved

    def _found(self, region: str, topic: str, since: float) -> dict[Copy, ModelRow]:
        """Return the rows that a read of the topic finds there, without those that don't count."""
        store, gateway = self._world.stores[region], self._gateway
        return {
            copy: row
            for copy, row in store.topics[topic].items()
            if row.routed_at >= since and gateway.counts_row(copy, row, read_at=region)
        }

    def _answer(
        self,
        reader: ModelReader,
        position: ModelPosition,
        rows: dict[Copy, ModelRow],
        *,
        is_proved: bool,
    ) -> None:
        copies: dict[int, set[Copy]] = {}
        for copy, row in rows.items():
            copies.setdefault(row.identity, set()).add(copy)
        for identity, held in self._gateway.memory[reader.topic].copies.items():
            copies.setdefault(identity, set()).update(held)
        given = self._resuming.given(copies, self._gateway.reader_at(position))
        for identity in given:
            self._gateway.note_replayed(identity)
        reader.resumed(self._gateway, given, is_proved=is_proved)
