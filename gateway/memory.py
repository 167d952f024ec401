"""What a gateway remembers of one topic: recent messages in the order of arrival, latest by key.

Pure, and it doesn't read the store: it says whether it can answer (:class:`Selection`), and
is given what the store had to :meth:`TopicMemory.put_before` what arrived since.

``complete`` says that nothing older than the oldest recent message exists; it holds from the
moment when the store's answer was shorter than what was asked for until something is trimmed.

Whether it can answer a reader who resumes from a position is another question, and answered by
numbers: see ``forgotten`` (:mod:`gateway.forgotten`).
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
from collections.abc import Iterable, Iterator
from typing import ClassVar, Final, NamedTuple

from gateway.forgotten import Forgotten
from gateway.position import Copy, copy_of
from gateway.publication import Publication
from newsfabric.envelope import Envelope, ms_of_id
from newsfabric.topics import TopicPolicy

# Copies that reads of the store may lack: of a cut's backlog that comes at 100 a second for as long
# as a read takes and is used soon.
_NEW_COPIES: Final = 1_024


class NewCopy(NamedTuple):
    """A further copy of a message, routed at ``ms``. The message was the ``arrival``-th that
    arrived; 0 if memory doesn't have it, or has it from the store."""

    identity: int
    copy: Copy
    ms: int
    arrival: int


@dataclasses.dataclass(frozen=True, slots=True)
class Selection:
    """Publications oldest first. If ``covered`` is False the store may have more of them."""

    publications: list[Publication]
    covered: bool


class TopicMemory:
    """Recent messages and latest versions of one topic, bounded by its policy and ``max_keys``.

    ``forgotten`` says what was there before the memory was made; what it trims is added.
    ``arrived`` messages were given to :meth:`add`, of which the first ``lost`` are not
    remembered any more. ``new_copies`` have come that a read of the store may lack
    (:meth:`new_copies_since`); the last such read was begun when ``read_at`` messages had arrived.
    ``changes`` counts whatever changes what a reader who resumes is given. No other memory has its
    ``serial``.
    """

    __slots__ = (
        "_held", "_latest", "_max_keys", "_new_copies", "_put_before", "_recent", "arrived",
        "changes", "complete", "forgotten", "lost", "new_copies", "policy", "read_at", "serial",
        "weight",
    )  # fmt: skip
    _serials: ClassVar = itertools.count()

    def __init__(
        self, policy: TopicPolicy, max_keys: int, forgotten: Forgotten | None = None
    ) -> None:
        self.policy = policy
        self.complete = False
        self.weight = 0
        self.forgotten = forgotten or Forgotten()
        self.arrived = 0
        self.lost = 0
        self.read_at = 0
        self.new_copies = 0
        # None as long as none has come: a gateway has thousands of topics.
        self._new_copies: collections.deque[NewCopy] | None = None
        self.serial = next(self._serials)
        self.changes = 0
        # Of the recent, the first so many were put before those that arrived.
        self._put_before = 0
        self._max_keys = max_keys
        # How much more than policy.keep may be remembered, for each who holds it.
        self._held: tuple[int, ...] = ()
        self._recent: collections.OrderedDict[int, Publication] = collections.OrderedDict()
        # By key, the one that was renewed last at the end.
        self._latest: collections.OrderedDict[str, Publication] = collections.OrderedDict()

    def __len__(self) -> int:
        return len(self._recent)

    def holds(self, identity: int, key: str | None) -> bool:
        """Whether this message is among those remembered."""
        if identity in self._recent:
            return True
        latest = None if key is None else self._latest.get(key)
        return latest is not None and latest.envelope.identity == identity

    def add(self, publication: Publication) -> None:
        """Remember a message that has just arrived."""
        self.arrived += 1
        self.changes += 1
        publication.arrival = self.arrived
        self._recent[publication.envelope.identity] = publication
        self.weight += publication.weight
        while len(self._recent) > self.policy.keep + max(self._held, default=0):
            self.trim()
        self._renew(publication)

    @contextlib.contextmanager
    def held(self, most: int) -> Iterator[None]:
        """Inside, up to ``most`` messages beyond the policy's bound aren't forgotten.

        Whoever reads the store needs what arrives meanwhile, however slow that is. What is too
        many afterwards goes when the next message arrives.
        """
        self._held += (most,)
        try:
            yield
        finally:
            at = self._held.index(most)
            self._held = self._held[:at] + self._held[at + 1 :]

    def __contains__(self, identity: int) -> bool:
        """Whether this is one of the recent messages."""
        return identity in self._recent

    def note_copy(self, envelope: Envelope) -> None:
        """Another copy of a message has come.

        If it can't be noted it counts as forgotten: a position from elsewhere may lack this copy
        alone.
        """
        copy = copy_of(envelope)
        publication = self._recent.get(envelope.identity)
        arrival = 0 if publication is None else publication.arrival
        if publication is None or not publication.add_copy(copy):
            self.forgotten.add(copy.log, copy.seq)
            arrival = 0
        if arrival <= self.read_at:
            # Memory may forget the message, and then this copy is in no read of before.
            self.new_copies += 1
            if self._new_copies is None:
                self._new_copies = collections.deque(maxlen=_NEW_COPIES)
            new = NewCopy(envelope.identity, copy, ms_of_id(envelope.id), arrival)
            self._new_copies.append(new)
        self.changes += 1

    def new_copies_since(self, count: int) -> list[NewCopy] | None:
        """Those after the first ``count``; None if they were too many.

        Who read the store before one of them came may lack it.
        """
        kept = list(self._new_copies or ())
        new = self.new_copies - count
        return None if new > len(kept) else kept[len(kept) - new :]

    def find(self, identity: int) -> Publication | None:
        """The recent message with this identity."""
        return self._recent.get(identity)

    def differs(self, envelope: Envelope) -> bool:
        """Whether the copy that is remembered has another body."""
        known = self._recent.get(envelope.identity)
        return known is not None and known.envelope.body != envelope.body

    def recent(self, now: float) -> Iterator[Publication]:
        """The recent messages that haven't expired, oldest first."""
        return self._alive(self._recent.values(), now)

    def put_before(self, older: Iterable[Publication], *, complete: bool) -> None:
        """Put messages, oldest first, in front of those remembered. None of them may be held."""
        space = max(0, self.policy.keep - len(self._recent))
        everything = list(older)
        kept = everything[len(everything) - space :] if space < len(everything) else everything
        for publication in reversed(kept):
            self._recent[publication.envelope.identity] = publication
            self._recent.move_to_end(publication.envelope.identity, last=False)
            self.weight += publication.weight
        self._put_before += len(kept)
        self.changes += 1
        self.complete = complete and len(kept) == len(everything)
        self.put_latest(everything)

    def put_latest(self, publications: Iterable[Publication]) -> None:
        """Learn versions of keys, oldest first; never an older version over a newer."""
        for publication in publications:
            self._renew(publication)

    def trim(self) -> bool:
        """Forget the oldest recent message; False if there is none."""
        if not self._recent:
            return False
        _, publication = self._recent.popitem(last=False)
        self.weight -= publication.weight
        self.complete = False
        self.changes += 1
        if self._put_before:
            self._put_before -= 1
        else:
            self.lost += 1
        for copy in publication.copies:
            self.forgotten.add(copy.log, copy.seq)
        return True

    def last(self, count: int, now: float) -> Selection:
        """The newest ``count`` messages that haven't expired."""
        alive = self._alive(reversed(self._recent.values()), now)
        newest_first = list(itertools.islice(alive, count))
        covered = self.complete or len(newest_first) >= count
        return Selection(newest_first[::-1], covered)

    def since(self, since_ms: int, now: float) -> Selection:
        """Everything that was routed at ``since_ms`` or later and hasn't expired."""
        alive = self._alive(self._recent.values(), now)
        found = [p for p in alive if ms_of_id(p.envelope.id) >= since_ms]
        oldest = next(iter(self._recent.values()), None)
        reaches = oldest is not None and ms_of_id(oldest.envelope.id) < since_ms
        return Selection(found, self.complete or reaches)

    def lately(self, arrived: int, since_ms: int, now: float) -> list[Publication]:
        """What has come after the first ``arrived`` messages or was routed since, as it arrived.

        Nothing that has expired. What is already :attr:`lost` is missing.
        """
        recent = list(self._recent.values())
        start = len(recent) - (self.arrived - arrived)
        found = (p for n, p in enumerate(recent) if n >= start or _routed_ms(p) >= since_ms)
        return list(self._alive(found, now))

    def before(self, id_: str, count: int, now: float) -> Selection:
        """The newest ``count`` messages that arrived before the one with ``id_``."""
        recent = list(self._recent.values())
        at = next((i for i, p in enumerate(recent) if p.envelope.id == id_), None)
        if at is None:
            return Selection([], covered=False)
        alive = list(self._alive(recent[:at], now))
        found = alive[-count:]
        return Selection(found, self.complete or len(found) >= count)

    def with_latest(self, selected: Iterable[Publication], now: float) -> list[Publication]:
        """``selected`` and the newest version of each key, each message once, oldest first."""
        wanted = {p.envelope.identity: p for p in self._alive(self._latest.values(), now)}
        wanted.update((p.envelope.identity, p) for p in selected)
        older = [p for identity, p in wanted.items() if identity not in self._recent]
        recent = [p for identity, p in self._recent.items() if identity in wanted]
        return sorted(older, key=lambda p: p.envelope.id) + recent

    def _renew(self, publication: Publication) -> None:
        key = publication.envelope.key
        if key is None or not self.policy.latest:
            return
        known = self._latest.get(key)
        if known is not None:
            if not publication.supersedes(known):
                return
            self.weight -= known.weight
        self._latest[key] = publication
        self._latest.move_to_end(key)
        self.weight += publication.weight
        if len(self._latest) > self._max_keys:
            _, forgotten = self._latest.popitem(last=False)
            self.weight -= forgotten.weight

    @staticmethod
    def _alive(publications: Iterable[Publication], now: float) -> Iterator[Publication]:
        return (p for p in publications if not p.expired(now))


def _routed_ms(publication: Publication) -> int:
    return ms_of_id(publication.envelope.id)
