"""The store of one process and its tests: nothing survives that; all else is as in the others.

Bounded in bytes, not per topic: the topics ``user.<id>`` alone can be millions. At the bound the
oldest twentieth of all rows is deleted, and its numbers are GONE.
"""

from __future__ import annotations

import bisect
import collections
import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

from newsfabric.errors import StoreError
from newsfabric.messages.envelope import MAX_MS, Envelope, identity_of_id, ms_of_id
from newsfabric.messages.mailbox import MARK_KINDS, KeptMessage, MarkKind, UserMark, is_individual
from newsfabric.store import rules
from newsfabric.store.logs import DirectoryRow, Log, Number, NumberState
from newsfabric.topics import TopicTable

DEFAULT_MAX_BYTES: Final = 128 * 1024 * 1024
# Bytes of an envelope's objects beside its body, roughly, and of its places in our tables.
_OVERHEAD_BYTES: Final = 1_500
# Above this bound the mark that was written first is forgotten.
_MOST_MARKS: Final = 200_000
# Above this bound the oldest log that has ended is forgotten, or the oldest of all.
_MOST_LOGS: Final = 10_000
# No row has this key.
_NOTHING: Final[rules.RowKey] = ("", "", 0, 0)


@dataclasses.dataclass(frozen=True, slots=True)
class _Row:
    envelope: Envelope
    life: rules.Lifetime

    @property
    def cost(self) -> int:
        return len(self.envelope.body) + _OVERHEAD_BYTES


class _LogRows:
    """The numbers of one log. Numbers up to ``dropped`` without a row are GONE."""

    def __init__(self) -> None:
        self.messages: dict[int, rules.RowKey] = {}
        self.void: set[int] = set()
        self.dropped = 0

    def within(self, first: int, last: int, limit: int) -> list[int]:
        """Return the first ``limit`` of the numbers ``first`` to ``last`` that are present."""
        numbers = range(first, last + 1)
        there = (n for n in numbers if n <= self.dropped or n in self.messages or n in self.void)
        return list(itertools.islice(there, max(limit, 0)))


class MemoryStore:
    """A :class:`~newsfabric.store.Store` in dicts and sorted lists.

    Expiry is by the clock ``now_ms``; expired envelopes are hidden at once and freed at the bound.
    """

    def __init__(
        self,
        topics: TopicTable,
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        now_ms: Callable[[], int] = rules.clock_ms,
    ) -> None:
        self.bytes_kept = 0
        # Messages routed until this time may be missing here.
        self._dropped_ms = 0
        self._topics = topics
        self._max_bytes = max_bytes
        self._now_ms = now_ms
        self._rows: dict[rules.RowKey, _Row] = {}
        # Row keys sort by time first; nearly all are inserted at the end.
        self._by_time: list[rules.RowKey] = []
        self._by_topic: dict[str, list[rules.RowKey]] = {}
        self._latest: dict[str, dict[str, _Row]] = {}
        self._marks: dict[tuple[str, int, MarkKind], UserMark] = {}
        self._logs: dict[tuple[str, int], _LogRows] = {}
        self._directory: dict[Log, DirectoryRow] = {}

    async def write(self, envelopes: Sequence[Envelope]) -> None:
        """See :meth:`newsfabric.store.Store.write`; above ``max_bytes`` the oldest are deleted."""
        for envelope in envelopes:
            key = rules.row_key(envelope)
            if key not in self._rows:
                self._add(key, _Row(envelope, rules.lifetime(envelope, self._topics)))
        if self.bytes_kept > self._max_bytes:
            self._shrink()

    async def history(
        self, topic: str, *, limit: int, since_ms: int = 0, before: str | None = None
    ) -> list[Envelope]:
        """See :meth:`newsfabric.store.Store.history`."""
        end = None if before is None else rules.checked_id(before)
        newest_first = self._readable(topic, since_ms, end)
        return rules.oldest_of_each(newest_first, limit)[::-1]

    async def since(
        self,
        topic: str,
        *,
        from_ms: int,
        to_ms: int = MAX_MS + 1,
        limit: int,
        region: str | None = None,
    ) -> list[Envelope]:
        """See :meth:`newsfabric.store.Store.since`. ``region`` makes no difference here."""
        if from_ms <= self._dropped_ms and self._dropped_ms:
            raise StoreError(f"what was routed until {self._dropped_ms} had to be dropped")
        newest_first = self._readable(topic, from_ms, rules.first_id(to_ms))
        return list(itertools.islice(newest_first, max(limit, 0)))[::-1]

    async def latest(self, topic: str, *, limit: int) -> list[Envelope]:
        """See :meth:`newsfabric.store.Store.latest`."""
        now = self._now_ms()
        rows = self._latest.get(topic, {}).values()
        shown = [row.envelope for row in rows if now < row.life.readable_until]
        shown.sort(key=rules.row_key)
        return shown[max(0, len(shown) - rules.latest_limit(limit)) :]

    async def numbers(
        self, log: Log, *, first: int, last: int, limit: int, at_home: bool = False
    ) -> list[Number]:
        """See :meth:`newsfabric.store.Store.numbers`; a number whose row was dropped is GONE."""
        rules.check_span(first, last)
        rows = self._logs.get((log.router, log.epoch))
        if rows is None:
            return []
        return [self._number(seq, rows) for seq in rows.within(first, last, limit)]

    def _number(self, seq: int, rows: _LogRows) -> Number:
        if seq in rows.void:
            return Number(seq, NumberState.VOID)
        row = self._rows.get(rows.messages.get(seq, _NOTHING))
        if row is None or self._now_ms() >= row.life.kept_until:
            return Number(seq, NumberState.GONE)
        return Number(seq, NumberState.MESSAGE, row.envelope)

    async def void(self, log: Log, numbers: Sequence[int]) -> None:
        """See :meth:`newsfabric.store.Store.void`, of any region's log."""
        self._log(log.router, log.epoch).void.update(numbers)

    def _log(self, router: str, epoch: int) -> _LogRows:
        return self._logs.setdefault((router, epoch), _LogRows())

    async def list_log(self, log: Log) -> bool:
        """See :meth:`newsfabric.store.Store.list_log`; above 10,000 the oldest that ended is
        deleted."""
        if log in self._directory:
            return False
        self._directory[log] = DirectoryRow(log)
        while len(self._directory) > _MOST_LOGS:
            # Ended logs first.
            ended = (row.log for row in self._directory.values() if row.ended is not None)
            oldest = next(ended, next(iter(self._directory)))
            del self._directory[oldest]
            self._logs.pop((oldest.router, oldest.epoch), None)
        return True

    async def change_log(self, row: DirectoryRow) -> bool:
        """See :meth:`newsfabric.store.Store.change_log`, of any region's log."""
        old = self._directory.get(row.log)
        if old is not None and row.may_replace(old):
            self._directory[row.log] = row
        return self._directory.get(row.log) == row

    async def log_days(self, *, at_home: bool = False) -> list[tuple[str, int]]:
        """See :meth:`newsfabric.store.Store.log_days`."""
        return sorted({(log.region, log.day) for log in self._directory})

    async def directory(
        self, region: str, day: int, *, but: Collection[Log] = (), at_home: bool = False
    ) -> list[DirectoryRow]:
        """See :meth:`newsfabric.store.Store.directory`."""
        found = [log for log in self._directory if (log.region, log.day) == (region, day)]
        return [self._directory[log] for log in sorted(found) if log not in but]

    async def mailboxes(self, topics: Sequence[str], *, limit: int) -> list[list[KeptMessage]]:
        """See :meth:`newsfabric.store.Store.mailboxes`."""
        most = rules.mailbox_limit(limit)
        return [self._mailbox(topic, most) for topic in topics]

    def _mailbox(self, topic: str, most: int) -> list[KeptMessage]:
        policy = self._topics.find(topic)
        newest_first = (
            envelope
            for envelope in self._readable(topic, 0, None)
            if is_individual(envelope, policy)
            and (topic, envelope.identity, "dismiss") not in self._marks
        )
        return [self._kept(e) for e in rules.newest_of_each(newest_first, most)[::-1]]

    async def kept(self, topic: str, id: str) -> KeptMessage | None:
        """See :meth:`newsfabric.store.Store.kept`."""
        identity = identity_of_id(id)
        policy = self._topics.find(topic)
        found = (e for e in self._readable(topic, 0, None) if e.identity == identity)
        return next((self._kept(e) for e in found if is_individual(e, policy)), None)

    def _kept(self, e: Envelope) -> KeptMessage:
        marks = (self._marks.get((e.topic, e.identity, kind)) for kind in MARK_KINDS)
        return KeptMessage(e, tuple(mark for mark in marks if mark is not None))

    async def mark(self, marks: Sequence[UserMark]) -> None:
        """See :meth:`newsfabric.store.Store.mark`; above 200,000 marks the first is deleted."""
        for mark in marks:
            place = (mark.topic, mark.identity, mark.kind)
            known = self._marks.get(place)
            if known is None or (mark.at_ms, mark.id) < (known.at_ms, known.id):
                self._marks[place] = mark
        while len(self._marks) > _MOST_MARKS:
            del self._marks[next(iter(self._marks))]

    async def clocks_ms(self) -> list[int]:
        """See :meth:`newsfabric.store.Store.clocks_ms`: this store has no clock of its own."""
        return []

    async def check(self) -> None:
        """See :meth:`newsfabric.store.Store.check`: never fails."""

    async def close(self) -> None:
        """See :meth:`newsfabric.store.Store.close`: does nothing."""

    def _add(self, key: rules.RowKey, row: _Row) -> None:
        envelope = row.envelope
        self._rows[key] = row
        self.bytes_kept += row.cost
        bisect.insort(self._by_time, key)
        bisect.insort(self._by_topic.setdefault(envelope.topic, []), key)
        self._log(envelope.router, envelope.epoch).messages.setdefault(envelope.seq, key)
        if envelope.key is None:
            return
        newest = self._latest.setdefault(envelope.topic, {})
        known = newest.get(envelope.key)
        if known is None or rules.rank(known.envelope) < rules.rank(envelope):
            newest[envelope.key] = row

    def _readable(self, topic: str, since_ms: int, end: str | None) -> Iterator[Envelope]:
        """Yield ``topic``'s readable envelopes with ids before ``end``, newest first."""
        now = self._now_ms()
        keys = self._by_topic.get(topic, [])
        start = bisect.bisect_left(keys, (rules.first_id(since_ms),))
        stop = len(keys) if end is None else bisect.bisect_left(keys, (end,))
        for i in range(stop - 1, start - 1, -1):
            row = self._rows[keys[i]]
            if now < row.life.readable_until:
                yield row.envelope

    def _shrink(self) -> None:
        """Drop the oldest until a twentieth of the room is free."""
        counts: collections.Counter[str] = collections.Counter()
        for key in self._by_time:
            if self.bytes_kept <= self._max_bytes * 19 // 20:
                break
            counts[self._forget(key)] += 1
        # The oldest of all are also the oldest of their topics: one cut per topic, not one per row.
        del self._by_time[: counts.total()]
        for topic, count in counts.items():
            del self._by_topic[topic][:count]
            if not self._by_topic[topic]:
                del self._by_topic[topic]
                self._latest.pop(topic, None)

    def _forget(self, key: rules.RowKey) -> str:
        """Delete one row; return its topic, whose list the caller has to cut."""
        row = self._rows.pop(key)
        if self._now_ms() < row.life.readable_until:
            self._dropped_ms = max(self._dropped_ms, ms_of_id(row.envelope.id))
        self.bytes_kept -= row.cost
        rows = self._logs.get((row.envelope.router, row.envelope.epoch))
        if rows is not None and rows.messages.get(row.envelope.seq) == key:
            del rows.messages[row.envelope.seq]
            rows.dropped = max(rows.dropped, row.envelope.seq)
        topic, story = row.envelope.topic, row.envelope.key
        if story is not None and self._latest[topic].get(story) is row:
            del self._latest[topic][story]
        return topic
