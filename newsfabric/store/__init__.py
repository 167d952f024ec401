"""What the fabric remembers: one protocol, several stores, one contract suite (tests/store).

Writes are idempotent upserts, so "when in doubt, write again" is always safe.
Every envelope is found in two ways: by topic and time (history, resume), and by its number in the
log of its router (:mod:`newsfabric.store.logs`).

An envelope is the same as another if its id *and* its place in a log (router, epoch, seq) are.
The id alone won't do: routers that route copies of one message in the same millisecond give them
the same id, and a gateway that lacks a number needs the one of that log.

Individual messages (:mod:`newsfabric.messages.mailbox`) are kept for their users as well, by the
same write, with the marks that the users have put on them.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from newsfabric.errors import ConfigError
from newsfabric.messages.envelope import MAX_MS, Envelope
from newsfabric.messages.mailbox import Kept, UserMark
from newsfabric.store.logs import DirectoryRow, Log, Number
from newsfabric.topics import TopicTable


class Store(Protocol):
    """Where routed envelopes last. Every method may raise StoreUnavailable: try again.

    After :meth:`close` they may raise StoreError.
    """

    async def write(self, envelopes: Sequence[Envelope]) -> None:
        """Keep ``envelopes`` for their topics' ttl; on return they are readable by everyone.

        Writing one again changes nothing. All or nothing isn't promised: after an error, write
        all of them again. So too after a cancelled call, which may or may not have written.
        """

    async def history(
        self, topic: str, *, limit: int, since_ms: int = 0, before: str | None = None
    ) -> list[Envelope]:
        """The newest ``limit`` envelopes of ``topic``, oldest first, one per identity.

        ``since_ms`` leaves out those routed before it (the time in their id);
        ``before`` is an id: only older ones (to page backwards), ValueError if it is none.
        Of several copies the oldest among those read stands for all, as connected readers had the
        first: it is read from the newest back until there are ``limit`` messages. Expired ones are
        left out. One that can't be read has an empty body, as in :meth:`since` and :meth:`latest`
        (:mod:`newsfabric.store.sound`).
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
        """Every copy of every message of ``topic`` routed in [from_ms, to_ms), in id order.

        For readers who resume: whether they have a message depends on all of its copies, so
        none stands for another here (order: id, router, epoch, seq). With more than ``limit``
        of them, the newest ``limit``; exactly ``limit`` means that there may be older ones.
        Expired ones are left out. StoreError if some had to be dropped before they
        expired: what is here may not be all.

        With ``region`` it is read at quorum in that region, and StoreUnavailable if that can't be
        asked: only so is everything found that its routers wrote. Else as everything is read.
        """

    async def latest(self, topic: str, *, limit: int) -> list[Envelope]:
        """The newest envelope of each key of ``topic``, oldest first, at most ``limit`` and 1,000.

        Newest is the highest version, then the highest id; one without a version is older than
        any with one. Those without a key aren't among them. A newest one that has expired
        hides its key: what it replaced doesn't come back.
        """

    async def numbers(
        self, log: Log, *, first: int, last: int, limit: int, at_home: bool = False
    ) -> list[Number]:
        """What is there of the numbers ``first`` to ``last`` of ``log``, in order; ValueError for
        more than 4,096 of them.

        The first ``limit`` of those that have an index row; fewer than ``limit`` are all. With
        ``at_home`` they are read at quorum in the region that wrote them, and StoreUnavailable if
        that can't be asked: only there does a number that isn't found not exist. Else as everything
        is read, where a number that isn't found may come yet. What topics with a short ttl or the
        publisher's expiration end sooner is read here for ten minutes at least. Index rows outlive
        their messages by two days, in which the number is GONE. A message that can't be read is
        counted, and its number is HALF; everywhere else that is a StoreError.
        """

    async def void(self, log: Log, numbers: Sequence[int]) -> None:
        """Each of ``numbers`` is VOID; on return everyone reads it so. After an error, say it
        again. For numbers whose messages can't be written, or are lost for good. StoreError for a
        log of another region than this store's."""

    async def list_log(self, log: Log) -> bool:
        """Put the first row of ``log`` into the directory; False if there is one already.

        After an error it may be there: then the log is given up and another one begun.
        """

    async def change_log(self, row: DirectoryRow) -> bool:
        """Have ``row`` replace the one there, where it may (:meth:`DirectoryRow.may_replace`).

        True if ``row`` stands now: saying it again does no harm. False if the log has ended or
        moved, or isn't listed. StoreError for a log of another region than this store's.
        """

    async def log_days(self, *, at_home: bool = False) -> list[tuple[str, int]]:
        """(region, day) of every part of the directory that has rows, in order.

        With ``at_home`` as this region itself has them, or StoreUnavailable: its own are all there.
        """

    async def directory(
        self, region: str, day: int, *, but: Collection[Log] = (), at_home: bool = False
    ) -> list[DirectoryRow]:
        """The logs of ``region`` that began on ``day``, by router and epoch.

        Without those in ``but``, which the caller knows to have ended: they don't change any more.
        What isn't read ``at_home``, in ``region`` itself, may be what was there some time ago.
        """

    async def mailboxes(self, topics: Sequence[str], *, limit: int) -> list[list[Kept]]:
        """What is kept on each of ``topics``, users' own: the newest ``limit``, at most 1,000.

        Neither dismissed nor expired, oldest first, each message once, with its marks. For many at
        once, because of a crowd that comes back each reader asks for a mailbox of its own.
        """

    async def kept(self, topic: str, id: str) -> Kept | None:
        """The individual message of ``topic`` that ``id`` is a copy of, dismissed or not.

        It may be given as another copy of it. None if there is none, or it has expired; ValueError
        if ``id`` isn't an id.
        """

    async def mark(self, marks: Sequence[UserMark]) -> None:
        """Keep ``marks`` for as long as what they mark; on return they are readable by everyone.

        Of two marks of one kind on one message the earlier stands, whichever is written first.
        Nothing is ever taken back. After an error, write all of them again.
        """

    async def clocks_ms(self) -> list[int]:
        """What the clocks of some of its nodes read, in ms since the epoch; none if it has no other
        clock than this machine's."""

    async def check(self) -> None:
        """Return if the store answers; StoreUnavailable otherwise. For readiness."""

    async def close(self) -> None:
        """Finish what was begun and let go. Idempotent."""


def open_store(url: str, topics: TopicTable, *, environ: Mapping[str, str] = os.environ) -> Store:
    """The store that ``url`` names: ``sqlite:PATH``, ``memory:`` (one process only), or
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
    """ConfigError unless the store at ``url`` is that of ``region``: its data centre is called so.

    A log is listed and closed by its own region's nodes.
    """
    if not url.startswith("cassandra:"):
        return
    from newsfabric.store._cassandra_url import parse_address

    centre = parse_address(url).centre
    if centre != region:
        raise ConfigError(
            f"--store says dc={centre}, and this service is of region {region}:"
            " data centres are called as the regions are"
        )
