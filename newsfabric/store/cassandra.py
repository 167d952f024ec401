"""The store in Cassandra, for production: one cluster with a data centre for each region.

Tables and their reasons are in ``cassandra/README.md``; ``newsfabric schema apply`` makes them. A
process writes only to the nodes of its own region, and waits while too few of them live. Its writes
reach the other regions a little later; a gateway that lacks a number there asks again. A process
reads in its own region, or in another one while its own can't answer.

A finished write is on a majority of this region's replicas: the death of any single node doesn't
undo it, and every reader of this region finds it. Bronze too: all classes share the numbers of a
log, and gateways would look for a lost number for ever.

The difference to the other stores: of two *different* envelopes with one id and one place in a log,
which no router makes, either may stand.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from newsfabric.messages.envelope import MAX_MS, Envelope, ms_of_id
from newsfabric.messages.mailbox import KeptMessage, UserMark
from newsfabric.store import _cassandra_rows as rows
from newsfabric.store import rules
from newsfabric.store._cassandra_logs import Logs
from newsfabric.store._cassandra_mailboxes import Mailboxes
from newsfabric.store._cassandra_session import PAGE_ROWS, CassandraSession, Row, together
from newsfabric.store._cassandra_url import Address, login_from
from newsfabric.store.logs import DirectoryRow, Log, Number
from newsfabric.topics import TopicTable

# Days of a topic that are read together, after the first: few messages, many days.
_MOST_DAYS: Final = 8
# Nodes whose clocks are read, and rounds of as many reads for that.
_CLOCKS: Final = 3
_CLOCK_ROUNDS: Final = 3
# Partitions that a topic can have; far more than any ttl makes.
_MOST_SLOTS: Final = 10_000
# Partitions known to be noted; to forget one costs writing a row again.
_MOST_NOTED: Final = 50_000
# A note is repeated after this time: where there is a single node, its sudden death may undo a
# write just accepted, and the partition would stay unread.
DEFAULT_NOTE_AGAIN_S: Final = 60.0


class CassandraStore:
    """A :class:`~newsfabric.store.Store` in the Cassandra cluster at ``address``.

    It connects when first used. ``environ`` has user and password
    (:func:`~newsfabric.store._cassandra_url.login_from`).
    """

    def __init__(
        self,
        address: Address,
        topics: TopicTable,
        *,
        environ: Mapping[str, str],
        note_again_s: float = DEFAULT_NOTE_AGAIN_S,
        now_ms: Callable[[], int] = rules.clock_ms,
    ) -> None:
        self._address = address
        self._topics = topics
        self._now_ms = now_ms
        self._session = CassandraSession(address, login_from(environ))
        self._mailboxes = Mailboxes(self._session, topics, now_ms)
        self._logs = Logs(self._session, topics, now_ms)
        self._note_again_s = note_again_s
        # The end of each note, on the monotonic clock; the oldest first.
        self._noted: dict[rows.Slot, float] = {}

    async def write(self, envelopes: Sequence[Envelope]) -> None:
        """See :meth:`newsfabric.store.Store.write`: by a quorum of this region's replicas."""
        if not envelopes:
            return
        plan = rows.plan(envelopes, self._topics, now_ms=self._now_ms())
        now = time.monotonic()
        new = {s: ttl for s, ttl in plan.slots.items() if self._noted.get(s, now) <= now}
        if new:
            # The notes first: a partition without a note isn't read.
            await self._session.write(
                [rows.Batch(rows.INSERT_SLOT, [(*slot, ttl)]) for slot, ttl in new.items()]
            )
            self._note(new, until=now + self._note_again_s)
        await self._session.write(plan.batches)

    def _note(self, slots: Iterable[rows.Slot], *, until: float) -> None:
        for slot in slots:
            self._noted.pop(slot, None)
            self._noted[slot] = until
        while len(self._noted) > _MOST_NOTED:
            del self._noted[next(iter(self._noted))]

    async def history(
        self, topic: str, *, limit: int, since_ms: int = 0, before: str | None = None
    ) -> list[Envelope]:
        """See :meth:`newsfabric.store.Store.history`."""
        span = rows.first_place(MAX_MS + 1), MAX_MS
        if before is not None:
            span = rows.place_before(before), ms_of_id(before)
        # Twice as many as wanted: a gold message has a copy of each region here.
        backwards = self._backwards(topic, since_ms, *span, page_rows=2 * limit)
        return await backwards.read(limit, rules.oldest_of_each)

    async def since(
        self,
        topic: str,
        *,
        from_ms: int,
        to_ms: int = MAX_MS + 1,
        limit: int,
        region: str | None = None,
    ) -> list[Envelope]:
        """See :meth:`newsfabric.store.Store.since`."""
        end = rows.first_place(to_ms)
        backwards = self._backwards(topic, from_ms, end, to_ms, page_rows=limit, at=region)
        return await backwards.read(
            limit, lambda newest, most: list(itertools.islice(newest, most))
        )

    def _backwards(
        self,
        topic: str,
        since_ms: int,
        end: rows.Place,
        until_ms: int,
        *,
        page_rows: int,
        at: str | None = None,
    ) -> _Backwards:
        now = self._now_ms()
        # Messages older than the ttl aren't shown any more.
        since_ms = max(since_ms, now - rules.ttl_ms(topic, self._topics) + 1, 0)
        return _Backwards(
            session=self._session,
            topics=self._topics,
            topic=topic,
            days=(since_ms // rows.DAY_MS, until_ms // rows.DAY_MS),
            start=rows.first_place(since_ms),
            end=end,
            now=now,
            page_rows=min(page_rows, PAGE_ROWS),
            at=at,
        )

    async def latest(self, topic: str, *, limit: int) -> list[Envelope]:
        """See :meth:`newsfabric.store.Store.latest`."""
        now = self._now_ms()
        most = rules.latest_limit(limit)
        newest: list[tuple[rules.RowKey, Envelope]] = []
        after = ""
        while most:
            page = await self._session.read(rows.LATEST, (topic, after, PAGE_ROWS))
            shown = (
                e for _, row in page if now < self._end_of(e := rows.envelope_or_blank(topic, row))
            )
            newest = heapq.nlargest(
                most, [*newest, *((rules.row_key(e), e) for e in shown)], key=lambda pair: pair[0]
            )
            if len(page) < PAGE_ROWS:
                break
            after = page[-1][0]
        return [e for _, e in reversed(newest)]

    def _end_of(self, e: Envelope) -> int:
        return rules.lifetime(e, self._topics).readable_until

    async def numbers(
        self, log: Log, *, first: int, last: int, limit: int, at_home: bool = False
    ) -> list[Number]:
        """See :meth:`newsfabric.store.Store.numbers`."""
        rules.check_span(first, last)
        return await self._logs.numbers(log, first=first, last=last, limit=limit, at_home=at_home)

    async def void(self, log: Log, numbers: Sequence[int]) -> None:
        """See :meth:`newsfabric.store.Store.void`."""
        await self._logs.void(log, numbers)

    async def list_log(self, log: Log) -> bool:
        """See :meth:`newsfabric.store.Store.list_log`; StoreError for a log of another region."""
        return await self._logs.list_log(log)

    async def change_log(self, row: DirectoryRow) -> bool:
        """See :meth:`newsfabric.store.Store.change_log`."""
        return await self._logs.change_log(row)

    async def log_days(self, *, at_home: bool = False) -> list[tuple[str, int]]:
        """See :meth:`newsfabric.store.Store.log_days`."""
        return await self._logs.log_days(at_home=at_home)

    async def directory(
        self, region: str, day: int, *, but: Collection[Log] = (), at_home: bool = False
    ) -> list[DirectoryRow]:
        """See :meth:`newsfabric.store.Store.directory`."""
        return await self._logs.directory(region, day, but=but, at_home=at_home)

    async def mailboxes(self, topics: Sequence[str], *, limit: int) -> list[list[KeptMessage]]:
        """See :meth:`newsfabric.store.Store.mailboxes`."""
        return await self._mailboxes.read(topics, limit=limit)

    async def kept(self, topic: str, id: str) -> KeptMessage | None:
        """See :meth:`newsfabric.store.Store.kept`."""
        return await self._mailboxes.kept(topic, id)

    async def mark(self, marks: Sequence[UserMark]) -> None:
        """See :meth:`newsfabric.store.Store.mark`: by a quorum of this region's replicas."""
        if marks:
            batches = rows.mark_batches(marks, self._topics, now_ms=self._now_ms())
            await self._session.write(batches)

    async def clocks_ms(self) -> list[int]:
        """See :meth:`newsfabric.store.Store.clocks_ms`, of this region's nodes: the driver sends
        each read to the next node, or to the same while others read. Each node counts once."""
        at = self._address.centre
        clocks_ms: dict[uuid.UUID, int] = {}
        for _ in range(_CLOCK_ROUNDS):
            asked = (self._session.read(rows.CLOCK, (), at=at) for _ in range(_CLOCKS))
            clocks_ms |= {node: ms for ((node, ms),) in await together(asked)}
            if len(clocks_ms) >= _CLOCKS:
                break
        return list(clocks_ms.values())

    async def check(self) -> None:
        """See :meth:`newsfabric.store.Store.check`, of this region's nodes alone."""
        # Routers write only here, so readiness needs this region.
        asked = (rows.topic_scope(""), 0, 0, 1)
        await self._session.read(rows.SLOTS, asked, at=self._address.centre)

    async def close(self) -> None:
        """See :meth:`newsfabric.store.Store.close`."""
        await self._session.close()


# A choice of at most so many envelopes; arguments and result are newest first.
Choose = Callable[[Iterable[Envelope], int], list[Envelope]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Backwards:
    """A reader of one topic's partitions, from the newest row in [``start``, ``end``) back."""

    session: CassandraSession
    topics: TopicTable
    topic: str
    days: tuple[int, int]
    start: rows.Place
    end: rows.Place
    now: int
    page_rows: int
    at: str | None

    async def read(self, limit: int, choose: Choose) -> list[Envelope]:
        """Return the envelopes that ``choose`` selects of those shown, oldest first."""
        if limit <= 0:
            return []
        asked = (rows.topic_scope(self.topic), *self.days, _MOST_SLOTS)
        noted = await self.session.read(rows.SLOTS, asked, at=self.at)
        days = [day for (day,) in reversed(noted)]
        found: list[Envelope] = []
        at_once = 1
        while days and len(found) < limit:
            some, days = days[:at_once], days[at_once:]
            at_once = min(2 * at_once, _MOST_DAYS)
            pages = await together(self._page(day, self.end) for day in some)
            for day, first in zip(some, pages, strict=True):
                page = first
                while len(found) < limit:
                    found = choose([*found, *self._shown(page)], limit)
                    if len(page) < self.page_rows:
                        break
                    page = await self._page(day, rows.place(page[-1]))
        return found[::-1]

    async def _page(self, day: int, end: rows.Place) -> list[Row]:
        values = (self.topic, day, *end, *self.start, self.page_rows)
        return await self.session.read(rows.HISTORY, values, at=self.at)

    def _shown(self, page: Iterable[Row]) -> Iterator[Envelope]:
        for row in page:
            e = rows.envelope_or_blank(self.topic, row)
            if self.now < rules.lifetime(e, self.topics).readable_until:
                yield e
