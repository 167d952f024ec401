"""What the fabric remembers: one protocol, several stores, one contract suite (tests/store).

Writes are idempotent upserts, so "when in doubt, write again" is always safe.
Every envelope is found in two ways: by topic (history, resume) and by time in
the journal (repair).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from newsfabric.envelope import Envelope
from newsfabric.errors import ConfigError
from newsfabric.topics import TopicTable


class Store(Protocol):
    """Where routed envelopes last. Every method may raise StoreUnavailable: try again."""

    async def write(self, envelopes: Sequence[Envelope]) -> None:
        """Keep ``envelopes`` for their topics' ttl; on return they are readable by everyone.

        Writing one again changes nothing. All or nothing for a reader of the journal
        isn't promised: after an error, write all of them again.
        """

    async def history(
        self, topic: str, *, limit: int, since_ms: int = 0, before: str | None = None
    ) -> list[Envelope]:
        """The newest ``limit`` envelopes of ``topic``, oldest first, one per identity.

        ``since_ms`` leaves out those routed before it (the time in their id);
        ``before`` is an id: only older ones (to page backwards). Expired ones are left out.
        """

    async def latest(self, topic: str, *, limit: int) -> list[Envelope]:
        """The newest envelope of each key of ``topic``, oldest first, at most ``limit``.

        Newest is the highest version where both have one, else the highest id. Those
        without a key aren't among them.
        """

    async def journal(self, *, from_ms: int, to_ms: int, limit: int) -> list[Envelope]:
        """All envelopes routed in [from_ms, to_ms) by their ids' time, in id order."""

    async def check(self) -> None:
        """Return if the store answers; StoreUnavailable otherwise. For readiness."""

    async def close(self) -> None:
        """Finish what was begun and let go. Idempotent."""


def open_store(url: str, topics: TopicTable) -> Store:
    """The store that ``url`` names: ``sqlite:PATH`` or ``memory:`` (one process only)."""
    scheme, _, rest = url.partition(":")
    if scheme == "sqlite" and rest:
        from newsfabric.store.sqlite import SqliteStore

        return SqliteStore(Path(rest), topics)
    if scheme == "memory" and not rest:
        from newsfabric.store.memory import MemoryStore

        return MemoryStore(topics)
    raise ConfigError(f"unknown store {url!r}: write sqlite:PATH or memory:")
