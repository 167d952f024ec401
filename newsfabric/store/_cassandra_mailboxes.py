"""Users' mailboxes, read from tables ``inbox`` and ``inbox_marks``.

Many users come back together, each to its own mailbox, and most mailboxes are small. So one
statement reads the partitions of several users, up to a bound for each. A mailbox that reaches the
bound may have more, and is read alone, a page at a time. So each reply is bounded, and no mailbox
is silently cut.

Both tables are read at quorum, the marks too: one replica may lack rows. A missing message would be
an unnoticed gap, and a missing mark would bring back a dismissed message.
"""

from __future__ import annotations

import dataclasses
import itertools
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from newsfabric.messages.envelope import MAX_MS, ms_of_id
from newsfabric.messages.mailbox import KeptMessage, UserMark, first_of_each
from newsfabric.store import _cassandra_rows as rows
from newsfabric.store import rules
from newsfabric.store._cassandra_session import PAGE_ROWS, CassandraSession, Row, together
from newsfabric.topics import TopicTable, owner_of
from newsfabric.topology.times import TIMES

# Partitions that one statement reads, and rows of each. With the largest bodies, 128 MiB.
_USERS: Final = 16
_MESSAGES: Final = 128
_MARKS: Final = 512
# Copies of one message are never further apart: identities are remembered for this time.
_APART_MS: Final = TIMES.identity_ms


@dataclasses.dataclass(frozen=True, slots=True)
class _Inbox:
    """Rows of one user, of all topics: (topic, id, cell) and (topic, id, mark, at)."""

    messages: list[Row]
    marks: list[Row]

    def kept(self, topic: str) -> list[KeptMessage]:
        """Return the messages on ``topic``, shown or not, newest first."""
        messages = [row[1:] for row in self.messages if row[0] == topic]
        marks = [row[1:] for row in self.marks if row[0] == topic]
        return _with_marks(topic, messages, marks)


class Mailboxes:
    """Reader of mailboxes, and of the marks on single messages in them."""

    def __init__(
        self, session: CassandraSession, topics: TopicTable, now_ms: Callable[[], int]
    ) -> None:
        self._session = session
        self._topics = topics
        self._now_ms = now_ms

    async def read(self, topics: Sequence[str], *, limit: int) -> list[list[KeptMessage]]:
        """See :meth:`newsfabric.store.Store.mailboxes`."""
        most = rules.mailbox_limit(limit)
        small = await self._small(list(dict.fromkeys(map(owner_of, topics))))
        large = [topic for topic in dict.fromkeys(topics) if owner_of(topic) not in small]
        pages = await together(self._large(topic, most) for topic in large)
        apart = dict(zip(large, pages, strict=True))
        found = []
        for topic in topics:
            kept = apart.get(topic)
            if kept is None:
                shown: dict[int, KeptMessage] = {}
                self._add(shown, small[owner_of(topic)].kept(topic), most)
                kept = list(shown.values())[::-1]
            found.append(kept)
        return found

    async def kept(self, topic: str, id: str) -> KeptMessage | None:
        """See :meth:`newsfabric.store.Store.kept`."""
        place = uuid.UUID(rules.checked_id(id))
        after = uuid.UUID(int=place.int + 1)
        page = await self._session.read(rows.INBOX, (owner_of(topic), topic, after, place, 1))
        now = self._now_ms()
        found = await self._marked(topic, page)
        return next((kept for kept in found if now < self._end_of(kept)), None)

    async def _small(self, users: list[str]) -> dict[str, _Inbox]:
        """Return the mailbox of each of ``users``, without the users who may have more."""
        starts = range(0, len(users), _USERS)
        parts = await together(self._inboxes(users[at : at + _USERS]) for at in starts)
        return dict(itertools.chain.from_iterable(parts))

    async def _inboxes(self, users: list[str]) -> list[tuple[str, _Inbox]]:
        messages, marks = await together(
            self._session.read(statement, (users, most))
            for statement, most in ((rows.INBOXES, _MESSAGES), (rows.MARKS_OF_MANY, _MARKS))
        )
        found = {user: _Inbox([], []) for user in users}
        for user, *message in messages:
            found[user].messages.append(tuple(message))
        for user, *mark in marks:
            found[user].marks.append(tuple(mark))
        return [
            (user, inbox)
            for user, inbox in found.items()
            if len(inbox.messages) < _MESSAGES and len(inbox.marks) < _MARKS
        ]

    async def _large(self, topic: str, most: int) -> list[KeptMessage]:
        start = rows.first_place(max(self._now_ms() - rules.ttl_ms(topic, self._topics) + 1, 0))[0]
        end = rows.first_place(MAX_MS + 1)[0]
        size = min(2 * most, PAGE_ROWS)
        found: dict[int, KeptMessage] = {}
        while len(found) < most:
            page = await self._session.read(rows.INBOX, (owner_of(topic), topic, end, start, size))
            self._add(found, await self._marked(topic, page), most)
            if len(page) < size:
                break
            end = page[-1][0]
        return list(found.values())[::-1]

    def _add(
        self, found: dict[int, KeptMessage], newest_first: Iterable[KeptMessage], most: int
    ) -> None:
        """Add the messages that are shown, each once, until there are ``most``."""
        now = self._now_ms()
        for kept in newest_first:
            if len(found) >= most:
                return
            if kept.mark("dismiss") is None and now < self._end_of(kept):
                found.setdefault(kept.envelope.identity, kept)

    def _end_of(self, kept: KeptMessage) -> int:
        return rules.lifetime(kept.envelope, self._topics).readable_until

    async def _marked(self, topic: str, page: Sequence[Row]) -> list[KeptMessage]:
        """Return a page of the inbox with the marks on all copies of its messages, in its order."""
        if not page:
            return []
        times = [ms_of_id(str(id_)) for id_, _ in page]
        last = rows.first_place(max(times) + _APART_MS)[0]
        place = rows.first_place(min(times) - _APART_MS)[0], ""
        marks: list[Row] = []
        while True:
            some = await self._session.read(
                rows.MARKS, (owner_of(topic), topic, *place, last, PAGE_ROWS)
            )
            marks += some
            if len(some) < PAGE_ROWS:
                break
            place = some[-1][:2]
        return _with_marks(topic, page, marks)


def _with_marks(topic: str, messages: Iterable[Row], marks: Iterable[Row]) -> list[KeptMessage]:
    """Return the messages of (id, cell), each with its marks of (id, mark, at)."""
    made: dict[int, list[UserMark]] = {}
    for id_, kind, at_ms in marks:
        mark = UserMark(topic=topic, id=str(id_), kind=kind, at_ms=at_ms)
        made.setdefault(mark.identity, []).append(mark)
    envelopes = [rows.read_envelope(topic, (id_, *cell)) for id_, cell in messages]
    return [KeptMessage(e, first_of_each(made.get(e.identity, []))) for e in envelopes]
