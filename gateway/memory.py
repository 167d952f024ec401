"""What a gateway remembers of one topic: recent messages in the order of arrival, latest by key.

Pure, and it doesn't read the store: it says whether it can answer (:class:`Selection`; for readers
who resume from a position :mod:`gateway.forgotten`), and is given what the store had to
:meth:`TopicMemory.put_before` what arrived since.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Reversible, Sequence
from typing import Any, Final

from gateway.forgotten import Forgotten
from gateway.position import copy_of
from gateway.publication import Publication
from gateway.windows import Window
from newsfabric.messages.envelope import Envelope
from newsfabric.topics import TopicPolicy

# Shared by all topics that have none, and never changed: a gateway has thousands of them.
_NONE: Final[OrderedDict[Any, Publication]] = OrderedDict()
_versions = itertools.count()
Publications = Sequence[Publication]


@dataclasses.dataclass(frozen=True, slots=True)
class Selection:
    """Publications oldest first. If ``covered`` is False the store may have more of them. Those of
    ``missing`` (ids, of what was read from the store) nobody can be given; ``cut``: so many that no
    more was read."""

    publications: list[Publication]
    covered: bool
    missing: tuple[str, ...] = ()
    cut: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Recent:
    """A topic's recent messages as they arrived, without those that have expired ``now``; nothing
    older exists if they are ``complete``."""

    messages: Reversible[Publication]
    complete: bool
    now: float

    def __iter__(self) -> Iterator[Publication]:
        return _alive(self.messages, self.now)

    def last(self, count: int, *, before: str | None = None) -> Selection:
        """The newest ``count`` of all, or of those that arrived before the one with this id."""
        newest_first = reversed(self.messages)
        if before is not None and before not in (p.envelope.id for p in newest_first):
            return Selection([], covered=False)
        # What ``in`` has left: those that are older.
        found = list(itertools.islice(_alive(newest_first, self.now), count))
        return Selection(found[::-1], self.complete or len(found) >= count)

    def since(self, since_ms: int) -> Selection:
        """Everything that was routed at ``since_ms`` or later."""
        found = [p for p in self if p.routed_ms >= since_ms]
        oldest = next(iter(self.messages), None)
        reaches = oldest is not None and oldest.routed_ms < since_ms
        return Selection(found, self.complete or reaches)

    def lately(self, arrived: int, since_ms: int) -> list[Publication]:
        """What has come after the first ``arrived`` messages or was routed since; without what is
        :attr:`~TopicMemory.lost`."""
        return [p for p in self if p.arrival > arrived or p.routed_ms >= since_ms]


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class TopicMemory:
    """Recent messages and latest versions of one topic, bounded by its policy and ``max_keys``.

    ``warm``: the store was asked for what came before. ``complete``: nothing older than the oldest
    recent message exists, since the store's answer was shorter than what was asked for, and nothing
    was trimmed since. ``forgotten`` says what was there before the memory was made; what it trims
    is added. ``arrived`` messages were given to :meth:`add`, of which the first ``lost`` are not
    remembered any more. ``version`` is another one after whatever changes what a reader who resumes
    is given, and no other memory ever has it.
    """

    policy: TopicPolicy
    max_keys: int
    forgotten: Forgotten
    warm: bool = False
    complete: bool = False
    weight: int = 0
    arrived: int = 0
    lost: int = 0
    version: int = dataclasses.field(default_factory=_versions.__next__)
    _windows: weakref.WeakSet[Window] | None = None
    # How many had arrived when the last one was begun.
    _read_at: int = 0
    # How much more than policy.keep may be remembered, for each who holds it.
    _held: tuple[int, ...] = ()
    _recent: OrderedDict[int, Publication] = dataclasses.field(default_factory=lambda: _NONE)
    # By key, the one that was renewed last at the end.
    _latest: OrderedDict[str, Publication] = dataclasses.field(default_factory=lambda: _NONE)

    def find(self, identity: int) -> Publication | None:
        """The recent message with this identity."""
        return self._recent.get(identity)

    def holds(self, identity: int, key: str | None) -> bool:
        """Whether this message is among those remembered."""
        if identity in self._recent:
            return True
        latest = None if key is None else self._latest.get(key)
        return latest is not None and latest.envelope.identity == identity

    def add(self, publication: Publication) -> None:
        """Remember a message that has just arrived."""
        self.arrived += 1
        self.version = next(_versions)
        publication.arrival = self.arrived
        if self._recent is _NONE:
            self._recent = OrderedDict()
        self._recent[publication.envelope.identity] = publication
        self.weight += publication.weight
        while len(self._recent) > self.policy.keep + max(self._held, default=0):
            self.trim()
        self._renew(publication)

    def trim(self) -> bool:
        """Forget the oldest recent message; False if there is none."""
        if not self._recent:
            return False
        _, publication = self._recent.popitem(last=False)
        self.weight -= publication.weight
        self.complete = False
        # 0 for those that were put before what arrived.
        self.lost = max(self.lost, publication.arrival)
        for copy in publication.copies:
            self.forgotten.add(copy.log, copy.seq)
        return True

    @property
    def windows(self) -> Iterable[Window]:
        """What was read of the topic, or is being read, as far as somebody keeps it."""
        return self._windows or ()

    def begin_read(self, region: str, asked_ms: int) -> Window:
        """The topic is read in ``region`` from now on, from ``asked_ms`` on."""
        if self._windows is None:
            self._windows = weakref.WeakSet()
        self._read_at = self.arrived
        window = Window(region, asked_ms, self.arrived)
        self._windows.add(window)
        return window

    @contextlib.contextmanager
    def held(self, most: int) -> Iterator[None]:
        """Inside, up to ``most`` messages beyond the policy's bound aren't forgotten: whoever reads
        the store needs what arrives meanwhile. Afterwards the next that arrives makes them go."""
        self._held += (most,)
        try:
            yield
        finally:
            at = self._held.index(most)
            self._held = self._held[:at] + self._held[at + 1 :]

    def put_before(self, older: Publications, latest: Publications, *, complete: bool) -> None:
        """Put messages, oldest first, in front of those remembered, none of which they are; and
        learn versions of keys, oldest first: never an older version over a newer."""
        kept = older[max(0, len(older) + len(self._recent) - self.policy.keep) :]
        if kept:
            before = OrderedDict((p.envelope.identity, p) for p in kept)
            self._recent = before | self._recent
            self.weight += sum(p.weight for p in kept)
        self.version = next(_versions)
        self.complete = complete and len(kept) == len(older)
        for publication in (*older, *latest):
            self._renew(publication)

    def note_copy(self, envelope: Envelope) -> bool:
        """Another copy of a message has come; whether the one that is remembered has another body.

        If it can't be noted it counts as forgotten: a position from elsewhere may lack it alone.
        """
        copy = copy_of(envelope)
        publication, arrival = self._recent.get(envelope.identity), 0
        if publication is not None and publication.add_copy(copy):
            arrival = publication.arrival
        else:
            self.forgotten.add(copy.log, copy.seq)
        if arrival <= self._read_at:
            # Memory may forget the message, and then this copy is in no read of before.
            for window in self.windows:
                window.note_copy(envelope.identity, copy, arrival)
        self.version = next(_versions)
        return publication is not None and publication.envelope.body != envelope.body

    def recent(self, now: float) -> Recent:
        """The recent messages at ``now``. To be used at once."""
        return Recent(self._recent.values(), self.complete, now)

    def with_latest(self, selected: Iterable[Publication], now: float) -> list[Publication]:
        """``selected`` and the newest version of each key, each message once, oldest first."""
        latest = _alive(self._latest.values(), now)
        wanted = {p.envelope.identity: p for p in (*latest, *selected)}
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
        elif self._latest is _NONE:
            self._latest = OrderedDict()
        self._latest[key] = publication
        self._latest.move_to_end(key)
        self.weight += publication.weight
        if len(self._latest) > self.max_keys:
            self.weight -= self._latest.popitem(last=False)[1].weight


def _alive(publications: Iterable[Publication], now: float) -> Iterator[Publication]:
    return (p for p in publications if not p.expired(now))
