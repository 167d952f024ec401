"""Storage of routed envelopes: one protocol, several stores, one contract suite (tests/store).

Writes are idempotent upserts, so "when in doubt, write again" is always safe. An envelope can be
found in two ways: by topic and time (history, resume), and by its number in the log of its router
(:mod:`newsfabric.store.logs`).

Two envelopes are the same if their ids *and* their places in a log (router, epoch, seq) are equal.
The id alone isn't enough: two routers that route copies of one message in the same millisecond give
both copies the same id. A gateway that lacks a number needs the copy of that log.

The same write keeps individual messages (:mod:`newsfabric.messages.mailbox`) for their users as
well. Users' marks on these messages are kept too.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from newsfabric.errors import ConfigError
from newsfabric.messages.envelope import MAX_MS, Envelope
from newsfabric.messages.mailbox import KeptMessage, UserMark
from newsfabric.store.logs import DirectoryRow, Log, Number
from newsfabric.topics import TopicTable


class Store(Protocol):
    """A place where routed envelopes are kept. Every method may raise StoreUnavailable: retry.

    After :meth:`close` every method may raise StoreError.
    """

    async def write(self, envelopes: Sequence[Envelope]) -> None:
        """Keep ``envelopes`` for their topics' ttl; after the return every process can read them.

        The write is idempotent, and not atomic: after an error or a cancelled call some may be
        written, so write all of them again.
        """

    async def history(
        self, topic: str, *, limit: int, since_ms: int = 0, before: str | None = None
    ) -> list[Envelope]:
        """Return the newest ``limit`` envelopes of ``topic``, oldest first, one per identity.

        ``since_ms`` leaves out envelopes routed before it (the time in their id); ``before`` is an
        id: only older envelopes are returned (to page backwards), ValueError if it is no id. Rows
        are read from the newest back until there are ``limit`` messages. Of several copies the
        oldest one read is returned, as connected readers received the first copy. Expired envelopes
        are left out. An envelope that can't be read has an empty body, as in :meth:`since` and
        :meth:`latest` (:mod:`newsfabric.store.sound`).
        """

    async def since(
        self,
        topic: str,
        *,
        from_ms: int,
        to_ms: int = MAX_MS + 1,
        limit: int,
        region: str | None = None,
    ) -> list[Envelope]:
        """Return every copy of every message of ``topic`` routed in [from_ms, to_ms), in id order.

        For readers who resume: whether a reader has a message depends on all of its copies, so all
        copies are returned (order: id, router, epoch, seq). If there are more than ``limit``, the
        newest ``limit``; exactly ``limit`` envelopes mean that there may be older ones. Expired
        envelopes are left out. StoreError if some had to be dropped before they expired: the result
        may be incomplete.

        With ``region`` the read is at quorum in that region, and raises StoreUnavailable if that
        region doesn't answer: only such a read finds everything that the region's routers wrote.
        Without ``region`` the read is as all others.
        """

    async def latest(self, topic: str, *, limit: int) -> list[Envelope]:
        """Return the newest envelope of each key of ``topic``, oldest first: at most ``limit``, and
        at most 1,000.

        The newest has the highest version, then the highest id; an envelope without a version is
        older than any with one. Envelopes without a key are left out. A newest envelope that has
        expired hides its key: the envelope that it replaced isn't shown again.
        """

    async def numbers(
        self, log: Log, *, first: int, last: int, limit: int, at_home: bool = False
    ) -> list[Number]:
        """Return the state of the numbers ``first`` to ``last`` of ``log``, in order; ValueError
        for more than 4,096 numbers.

        Only numbers with an index row are returned, the first ``limit`` of them; fewer than
        ``limit`` are all. With ``at_home`` the read is at quorum in the region that wrote the log,
        and raises StoreUnavailable if that region doesn't answer: a number that isn't found there
        doesn't exist. Without ``at_home`` the read is as all others, and a number that isn't found
        may still arrive. Messages with a shorter life (the topic's ttl, the publisher's expiration)
        are read here for ten minutes at least. Index rows outlive their messages by two days, in
        which the number is GONE. A message that can't be read is counted, and its number is HALF;
        everywhere else that is a StoreError.
        """

    async def void(self, log: Log, numbers: Sequence[int]) -> None:
        """Make each of ``numbers`` VOID; after the return every process reads it so. After an
        error, call again. For numbers whose messages can't be written, or are lost for good.
        StoreError for a log of another region than this store's."""

    async def list_log(self, log: Log) -> bool:
        """Put the first row of ``log`` into the directory; False if the log has a row already.

        After an error the row may be there: then give the log up and begin another one.
        """

    async def change_log(self, row: DirectoryRow) -> bool:
        """Replace the log's row by ``row``, if :meth:`DirectoryRow.may_replace` allows it.

        True if ``row`` stands now: the call is idempotent. False if the log has ended or moved, or
        isn't listed. StoreError for a log of another region than this store's.
        """

    async def log_days(self, *, at_home: bool = False) -> list[tuple[str, int]]:
        """Return (region, day) of every part of the directory that has rows, in order.

        With ``at_home`` as this region has them, or StoreUnavailable: its own are complete.
        """

    async def directory(
        self, region: str, day: int, *, but: Collection[Log] = (), at_home: bool = False
    ) -> list[DirectoryRow]:
        """Return the logs of ``region`` that began on ``day``, by router and epoch.

        Logs in ``but`` are left out: the caller knows that they have ended, so their rows don't
        change. Rows that aren't read ``at_home``, in ``region`` itself, may be stale.
        """

    async def mailboxes(self, topics: Sequence[str], *, limit: int) -> list[list[KeptMessage]]:
        """Return the mailbox of each of ``topics``: the newest ``limit`` messages, at most 1,000.

        A mailbox has the messages that are neither dismissed nor expired, oldest first, each once,
        with its marks. One call reads many: crowds reconnect together, each reader with its own
        mailbox.
        """

    async def kept(self, topic: str, id: str) -> KeptMessage | None:
        """Return the individual message of ``topic`` that ``id`` is a copy of, dismissed or not.

        The message returned may be another copy. None if there is none, or it has expired;
        ValueError if ``id`` isn't an id.
        """

    async def mark(self, marks: Sequence[UserMark]) -> None:
        """Keep ``marks`` as long as their messages; after the return every process can read them.

        Of two marks of one kind on one message the earlier stands, whichever is written first. No
        mark is ever removed. After an error, write all of ``marks`` again.
        """

    async def clocks_ms(self) -> list[int]:
        """Return the clocks of some of the store's nodes, in ms since the epoch; an empty list if
        the store has no clock but this machine's."""

    async def check(self) -> None:
        """Return if the store answers; StoreUnavailable otherwise. For readiness."""

    async def close(self) -> None:
        """Finish the work under way and disconnect. Idempotent."""


def open_store(url: str, topics: TopicTable, *, environ: Mapping[str, str] = os.environ) -> Store:
    """Return the store that ``url`` names: ``sqlite:PATH``, ``memory:`` (one process only), or
    ``cassandra://HOST[:PORT],…/KEYSPACE?dc=NAME[&tls=FILE]``, with the user and password in
    ``environ``."""
    scheme, _, rest = url.partition(":")
    if scheme == "sqlite" and rest:
        from newsfabric.store.sqlite import SqliteStore

        return SqliteStore(Path(rest), topics)
    if scheme == "memory" and not rest:
        from newsfabric.store.memory import MemoryStore

        return MemoryStore(topics)
    if scheme == "cassandra":
        from newsfabric.store._cassandra_url import parse_address

        address = parse_address(url)
        from newsfabric.store.cassandra import CassandraStore

        return CassandraStore(address, topics, environ=environ)
    raise ConfigError(
        f"unknown store {url!r}: write sqlite:PATH or memory: or "
        "cassandra://HOST[:PORT],…/KEYSPACE?dc=NAME"
    )


def check_region(url: str, region: str) -> None:
    """Raise ConfigError unless the data centre of the store at ``url`` has the name ``region``.

    Only a region's own nodes list and close its logs.
    """
    if not url.startswith("cassandra:"):
        return
    from newsfabric.store._cassandra_url import parse_address

    centre = parse_address(url).centre
    if centre != region:
        raise ConfigError(
            f"--store has dc={centre}, and this service is of region {region}:"
            " data centres are called as the regions are"
        )
