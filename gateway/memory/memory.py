"""A topic's memory in a gateway: recent messages in order of arrival, and the latest of each key.

Pure, and without the store: it reports whether it can answer (:class:`Selection`; for readers who
resume from a position, :mod:`gateway.memory.forgotten`). Messages of the store are given to it, and
are put in front of the messages that arrived since (:meth:`TopicMemory.put_before`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from gateway.memory.forgotten import ForgottenVector
from gateway.memory.store_reads import StoreRead
from gateway.wire.position import copy_of
from gateway.wire.publication import Publication
from newsfabric.messages.envelope import Envelope
from newsfabric.topics import TopicPolicy

# Shared by all topics without messages, and never changed: a gateway has thousands of them.
_EMPTY: Final[OrderedDict[Any, Publication]] = OrderedDict()
_versions = itertools.count()
Publications = Sequence[Publication]


@dataclasses.dataclass(frozen=True, slots=True)
class Selection:
    """Publications, oldest first. Unless ``covered``, the store may have more of them. ``missing``
    has the ids of messages that were read from the store and can't be given to anybody. ``cut``: so
    many were missing that the search ended."""

    publications: list[Publication]
    covered: bool
    missing: tuple[str, ...] = ()
    cut: bool = False


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class TopicMemory:
    """Recent messages and latest versions of one topic, bounded by its policy and ``max_keys``.

    ``seeded``: the store was asked for older messages. ``complete``: no message older than the
    oldest recent one exists, since the store had fewer messages than asked for and nothing was
    trimmed since. ``forgotten`` has the numbers of before this memory was made; trimmed messages
    are added. ``arrived`` messages were given to :meth:`add`; the first ``lost`` of them are
    forgotten. No forgotten message was routed later than ``trimmed_ms``. ``version`` changes with
    everything that decides a resuming reader's replay, and is unique among all memories.
    """

    policy: TopicPolicy
    max_keys: int
    forgotten: ForgottenVector
    seeded: bool = False
    complete: bool = False
    weight: int = 0
    arrived: int = 0
    lost: int = 0
    trimmed_ms: int = 0
    version: int = dataclasses.field(default_factory=_versions.__next__)
    _store_reads: weakref.WeakSet[StoreRead] | None = None
    # The value of ``arrived`` when the last read was begun.
    _read_at: int = 0
    # For each holder, how many messages beyond policy.keep may be remembered.
    _kept_more: tuple[int, ...] = ()
    _recent: OrderedDict[int, Publication] = dataclasses.field(default_factory=lambda: _EMPTY)
    # By key; the key that was renewed last is at the end.
    _latest: OrderedDict[str, Publication] = dataclasses.field(default_factory=lambda: _EMPTY)

    def find(self, identity: int) -> Publication | None:
        """Return the recent message with this identity, or None."""
        return self._recent.get(identity)

    def holds(self, identity: int, key: str | None) -> bool:
        """Return whether this message is remembered, as recent or as the latest of its key."""
        if identity in self._recent:
            return True
        latest = None if key is None else self._latest.get(key)
        return latest is not None and latest.envelope.identity == identity

    def add(self, publication: Publication) -> None:
        """Remember a message that has just arrived."""
        self.arrived += 1
        self.version = next(_versions)
        publication.arrival = self.arrived
        if self._recent is _EMPTY:
            self._recent = OrderedDict()
        self._recent[publication.envelope.identity] = publication
        self.weight += publication.weight
        while len(self._recent) > self.policy.keep + max(self._kept_more, default=0):
            self.trim()
        self._update_latest(publication)

    def trim(self) -> bool:
        """Forget the oldest recent message; False if there is none."""
        if not self._recent:
            return False
        _, publication = self._recent.popitem(last=False)
        self.weight -= publication.weight
        self.complete = False
        # 0 for messages that were put in front.
        self.lost = max(self.lost, publication.arrival)
        self.trimmed_ms = max(self.trimmed_ms, publication.routed_ms)
        for copy in publication.copies:
            self.forgotten.add(copy.log, copy.seq)
        return True

    @property
    def store_reads(self) -> Iterable[StoreRead]:
        """Reads of the topic, finished or under way, that are still kept somewhere."""
        return self._store_reads or ()

    def begin_read(self, region: str, asked_ms: int) -> StoreRead:
        """Note a read of the topic in ``region`` that begins now, from ``asked_ms`` on."""
        if self._store_reads is None:
            self._store_reads = weakref.WeakSet()
        self._read_at = self.arrived
        store_read = StoreRead(region, asked_ms, self.arrived)
        self._store_reads.add(store_read)
        return store_read

    @contextlib.contextmanager
    def keep_more(self, most: int) -> Iterator[None]:
        """Keep up to ``most`` messages beyond the policy's limit while the context lasts: a read of
        the store needs the messages that arrive meanwhile. The next arrival after it trims them."""
        self._kept_more += (most,)
        try:
            yield
        finally:
            at = self._kept_more.index(most)
            self._kept_more = self._kept_more[:at] + self._kept_more[at + 1 :]

    def put_before(self, older: Publications, latest: Publications, *, complete: bool) -> None:
        """Put new messages, oldest first, in front of the remembered ones; and learn versions of
        keys, oldest first: an older version never replaces a newer one."""
        kept = older[max(0, len(older) + len(self._recent) - self.policy.keep) :]
        if kept:
            before = OrderedDict((p.envelope.identity, p) for p in kept)
            self._recent = before | self._recent
            self.weight += sum(p.weight for p in kept)
        for publication in older[: len(older) - len(kept)]:
            self.trimmed_ms = max(self.trimmed_ms, publication.routed_ms)
        self.version = next(_versions)
        self.complete = complete and len(kept) == len(older)
        for publication in (*older, *latest):
            self._update_latest(publication)

    def note_copy(self, envelope: Envelope) -> bool:
        """Note another copy of a message; return whether the remembered copy has another body.

        A copy that can't be noted counts as forgotten: a position may lack only that copy.
        """
        copy = copy_of(envelope)
        publication, arrival = self._recent.get(envelope.identity), 0
        if publication is not None and publication.add_copy(copy):
            arrival = publication.arrival
        else:
            self.forgotten.add(copy.log, copy.seq)
        if arrival <= self._read_at:
            # If memory forgets the message, reads that began earlier lack this copy.
            for store_read in self.store_reads:
                store_read.note_copy(envelope.identity, copy, arrival)
        self.version = next(_versions)
        return publication is not None and publication.envelope.body != envelope.body

    def messages(self, now: float) -> Iterator[Publication]:
        """Yield the recent messages in order of arrival, without those that have expired."""
        return _unexpired(self._recent.values(), now)

    def newest(self, count: int, now: float, *, before: str | None = None) -> Selection:
        """Return the newest ``count`` messages, or the newest before the one with id ``before``."""
        newest_first = reversed(self._recent.values())
        if before is not None and before not in (p.envelope.id for p in newest_first):
            return Selection([], covered=False)
        # The ``in`` has consumed the iterator up to ``before``: older messages are left.
        found = list(itertools.islice(_unexpired(newest_first, now), count))
        return Selection(found[::-1], self.complete or len(found) >= count)

    def routed_since(self, since_ms: int, now: float) -> Selection:
        """Return all messages that were routed at ``since_ms`` or later."""
        found = [p for p in self.messages(now) if p.routed_ms >= since_ms]
        oldest = next(iter(self._recent.values()), None)
        # Messages don't arrive in the order in which they were routed, so a trimmed one may be
        # younger than the oldest of these.
        reaches = oldest is not None and max(oldest.routed_ms, self.trimmed_ms) < since_ms
        return Selection(found, self.complete or reaches)

    def arrived_or_routed_since(self, arrived: int, since_ms: int, now: float) -> list[Publication]:
        """Return the messages that arrived after the first ``arrived``, or were routed at
        ``since_ms`` or later; without the :attr:`lost` ones."""
        return [p for p in self.messages(now) if p.arrival > arrived or p.routed_ms >= since_ms]

    def with_latest(self, selected: Iterable[Publication], now: float) -> list[Publication]:
        """Return ``selected`` and the newest of each key, each message once, oldest first."""
        latest = _unexpired(self._latest.values(), now)
        wanted = {p.envelope.identity: p for p in (*latest, *selected)}
        older = [p for identity, p in wanted.items() if identity not in self._recent]
        recent = [p for identity, p in self._recent.items() if identity in wanted]
        return sorted(older, key=lambda p: p.envelope.id) + recent

    def _update_latest(self, publication: Publication) -> None:
        key = publication.envelope.key
        if key is None or not self.policy.latest:
            return
        known = self._latest.get(key)
        if known is not None:
            if not publication.supersedes(known):
                return
            self.weight -= known.weight
        elif self._latest is _EMPTY:
            self._latest = OrderedDict()
        self._latest[key] = publication
        self._latest.move_to_end(key)
        self.weight += publication.weight
        if len(self._latest) > self.max_keys:
            self.weight -= self._latest.popitem(last=False)[1].weight


def _unexpired(publications: Iterable[Publication], now: float) -> Iterator[Publication]:
    return (p for p in publications if not p.expired(now))
