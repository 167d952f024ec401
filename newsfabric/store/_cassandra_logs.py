"""Logs and their directory in Cassandra: reads and changes.

Index rows are written with the messages (:func:`newsfabric.store._cassandra_rows.plan`). The
directory is changed by lightweight transactions of the region's own nodes (LOCAL_SERIAL), so of two
concurrent changes one is refused. A transaction without a reply may have been applied.

Each log is a partition of its own, since transactions of one partition hinder each other. Measured
on one node of Cassandra 5.0.4: one after the other 23 a second; two at a time 2 a second, of which
nine in ten timed out. So tables ``log_days`` and ``log_names`` list the logs: by days, since most
logs ended long ago and needn't be read again. A day is that of the router's clock, right or wrong.
"""

from __future__ import annotations

import collections
import itertools
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final

import orjson

from newsfabric.errors import StoreError
from newsfabric.messages.envelope import Envelope, ms_of_id
from newsfabric.store import _cassandra_rows as rows
from newsfabric.store import rules
from newsfabric.store._cassandra_presence import SHORT_WAIT
from newsfabric.store._cassandra_session import PAGE_ROWS, CassandraSession, Row, together
from newsfabric.store._unreadable import left_out, readable, readable_rows
from newsfabric.store.logs import DirectoryRow, Log, Number, NumberState
from newsfabric.topics import TopicTable

# Names of logs in one page, and logs of one router in one query: each log is a partition.
_PAGE_NAMES: Final = 1_000
_TOGETHER: Final = 50
# (region, day) pairs: far more than any ttl makes.
_MOST_DAYS: Final = 10_000
# Size of a row without a topic.
_VOID_BYTES: Final = 128
# Names are written again once a day: each change of a log's row extends the row's TTL.
_NAME_AGAIN_S: Final = 86_400.0
_NO_ID: Final = uuid.UUID(int=0)


class Logs:
    """The logs behind ``session``. Expiry is by the clock ``now_ms``."""

    def __init__(
        self, session: CassandraSession, topics: TopicTable, now_ms: Callable[[], int]
    ) -> None:
        self._session = session
        self._topics = topics
        self._now_ms = now_ms
        # The log named last, and until when its name needn't be written again (monotonic).
        self._named: dict[Log, float] = {}

    async def numbers(
        self, log: Log, *, first: int, last: int, limit: int, at_home: bool
    ) -> list[Number]:
        """See :meth:`newsfabric.store.Store.numbers`."""
        region = log.region if at_home else None
        found: list[Number] = []
        for block in range(first // rows.LOG_BLOCK, last // rows.LOG_BLOCK + 1):
            start = max(first, block * rows.LOG_BLOCK)
            end = min(last, (block + 1) * rows.LOG_BLOCK - 1)
            while start <= end and len(found) < limit:
                size = min(limit - len(found), PAGE_ROWS)
                asked = (log.router, log.epoch, block, start, end, size)
                read = self._session.read(rows.NUMBERS, asked, wait=SHORT_WAIT, at=region)
                page = await read
                found += await self._with_messages(log, page, region)
                start = page[-1][0] + 1 if len(page) == size else end + 1
        return found

    async def _with_messages(
        self, log: Log, page: Sequence[Row], region: str | None
    ) -> list[Number]:
        now = self._now_ms()
        wanted: dict[tuple[str, int], list[rows.Place]] = collections.defaultdict(list)
        for seq, topic, id_ in page:
            if self._state(topic, id_, now) is NumberState.MESSAGE:
                place = (id_, log.router, log.epoch, seq)
                wanted[topic, ms_of_id(str(id_)) // rows.DAY_MS].append(place)
        there = await together(
            self._messages(topic, day, places, region) for (topic, day), places in wanted.items()
        )
        messages = {envelope.seq: envelope for part in there for envelope in part}
        return [self._number(fields, messages, now) for fields in page]

    async def _messages(
        self, topic: str, day: int, places: list[rows.Place], region: str | None
    ) -> list[Envelope]:
        asked = (topic, day, places)
        found = await self._session.read(rows.MESSAGES, asked, wait=SHORT_WAIT, at=region)
        return list(readable(found, lambda row: rows.envelope(topic, row)))

    def _number(self, fields: Row, messages: dict[int, Envelope], now: int) -> Number:
        seq, topic, id_ = fields
        state, envelope = self._state(topic, id_, now), messages.get(seq)
        if state is NumberState.MESSAGE and envelope is None:
            state = NumberState.HALF
        elif state is NumberState.HALF:
            left_out(fields, ValueError("it names no message"))
        return Number(seq, state, envelope)

    def _state(self, topic: str | None, id_: uuid.UUID | None, now: int) -> NumberState:
        """Return the state that the row gives the number; HALF if the row names no message.

        Cassandra has a checksum for each block of rows, so its rows are as they were written.
        """
        if not topic:
            return NumberState.VOID
        if id_ is None or id_.version != 7:
            return NumberState.HALF
        gone = rules.is_gone(str(id_), topic, self._topics, now)
        return NumberState.GONE if gone else NumberState.MESSAGE

    async def void(self, log: Log, numbers: Iterable[int]) -> None:
        """See :meth:`newsfabric.store.Store.void`."""
        self._check_home(log)
        now, ttl = self._now_ms(), self._directory_ttl()
        batches = rows.Batches()
        for seq in numbers:
            block = seq // rows.LOG_BLOCK
            # Later than the timestamp of any message at this place, even if a clock was set back.
            row = (log.router, log.epoch, block, seq, "", _NO_ID, (now + rows.AHEAD_MS) * 1000, ttl)
            batches.add(rows.INSERT_LOG, (log.router, log.epoch, block), row, _VOID_BYTES)
        await self._session.write(batches.all)

    async def list_log(self, log: Log) -> bool:
        """See :meth:`newsfabric.store.Store.list_log`."""
        self._check_home(log)
        # The name first: rows without a name aren't found.
        await self._name(log)
        values = (*log, self._directory_ttl())
        return bool((await self._session.transact(rows.LIST_LOG, values))[0])

    async def _name(self, log: Log) -> None:
        """Write ``log`` into the tables of names, for as long as its row lasts."""
        now = time.monotonic()
        if self._named.get(log, now) > now:
            return
        ttl = self._directory_ttl()
        await self._session.write(
            [
                rows.Batch(rows.INSERT_LOG_DAY, [(log.region, log.day, ttl)]),
                rows.Batch(rows.INSERT_LOG_NAME, [(log.region, log.day, *log[1:], ttl)]),
            ]
        )
        self._named = {log: now + _NAME_AGAIN_S}

    def _check_home(self, log: Log) -> None:
        if log.region != self._session.centre:
            raise StoreError(
                f"a log of region {log.region} is changed through its own data centre:"
                f" this store's URL has dc={self._session.centre}"
            )

    async def change_log(self, row: DirectoryRow) -> bool:
        """See :meth:`newsfabric.store.Store.change_log`."""
        self._check_home(row.log)
        await self._name(row.log)
        values = (self._directory_ttl(), row.version, row.low, orjson.dumps(row.voids).decode())
        if row.ended is None:
            answer = await self._session.transact(rows.CHANGE_LOG, (*values, *row.log, row.version))
        else:
            ending = (*values, row.ended, *row.log, row.version)
            answer = await self._session.transact(rows.END_LOG, ending)
        # A refusal may mean that an earlier try was applied, and its reply lost.
        return bool(answer[0]) or await self._rows(row.log, [row.log.epoch], row.log.region) == [
            row
        ]

    async def log_days(self, *, at_home: bool) -> list[tuple[str, int]]:
        """See :meth:`newsfabric.store.Store.log_days`."""
        at = self._session.centre if at_home else None
        found = await self._session.read(rows.LOG_DAYS, (_MOST_DAYS,), at=at)
        return [(region, day) for region, day in found]

    async def directory(
        self, region: str, day: int, *, but: Collection[Log], at_home: bool
    ) -> list[DirectoryRow]:
        """See :meth:`newsfabric.store.Store.directory`."""
        epochs: dict[str, list[int]] = collections.defaultdict(list)
        at = region if at_home else None
        for router, epoch in await self._names(region, day, at):
            if Log(region, router, epoch) not in but:
                epochs[router].append(epoch)
        parts = await together(
            self._rows(Log(region, router, 0), some, at)
            for router, every in epochs.items()
            for some in _in_parts(every, _TOGETHER)
        )
        return sorted(itertools.chain.from_iterable(parts), key=lambda row: row.log)

    async def _names(self, region: str, day: int, at: str | None) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        while True:
            after = found[-1] if found else ("", 0)
            asked = (region, day, *after, _PAGE_NAMES)
            page = await self._session.read(rows.LOG_NAMES, asked, at=at)
            found += [(router, epoch) for router, epoch in page]
            if len(page) < _PAGE_NAMES:
                return found

    async def _rows(self, log: Log, epochs: list[int], at: str | None) -> list[DirectoryRow]:
        """Return the rows of one router's logs with ``epochs``; the epoch of ``log`` is ignored."""
        found = await self._session.read(rows.LOGS, (log.region, log.router, epochs), at=at)
        return list(readable_rows(log.region, found))

    def _directory_ttl(self) -> int:
        now = self._now_ms()
        return rows.ttl_s(rules.directory_ends(now, self._topics) - now)


def _in_parts(every: list[int], most: int) -> Iterator[list[int]]:
    for start in range(0, len(every), most):
        yield every[start : start + most]
