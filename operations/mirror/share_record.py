"""The outcome of each message of the share, here and there, and the sums. Pure.

A side is *watched* for a message under two conditions. Its observer had been subscribed to the
topic for a second when the mirror heard the message. It wasn't disconnected until the message was
judged. Without both, the side doesn't count the message: neither as delivered nor as missing.

A message is judged ``patience`` seconds after the mirror heard it, or when there is no room for
another. Times are seconds since the epoch, of one clock that doesn't jump.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from typing import Any, Final, Literal, get_args

from newsfabric.topics import CLASSES, TopicClass
from operations.mirror.delays import DelayHistogram

Side = Literal["here", "there"]
SIDES: Final[tuple[Side, ...]] = get_args(Side)
#: ``waiting`` in the mirror; ``sent`` without a confirm yet; ``taken``: confirmed. The others are
#: final: ``dropped`` by the mirror at its bound, ``refused`` by the broker, ``unconfirmed`` because
#: the link broke.
Outcome = Literal["waiting", "sent", "taken", "dropped", "refused", "unconfirmed"]

_MOST_ENTRIES: Final = 100_000
_MOST_EARLY: Final = 10_000
# The age (s) of a subscription after which a message that doesn't arrive counts as missing.
SETTLED: Final = 1.0


@dataclasses.dataclass(slots=True)
class _Sight:
    """A message on one side."""

    watched: bool = False
    connection: int | None = None
    doubled: int = 0


@dataclasses.dataclass(slots=True)
class _Entry:
    topic_class: TopicClass
    heard: float
    taken: float
    identity_there: int
    here: _Sight
    there: _Sight
    sent: float | None = None
    outcome: Outcome = "waiting"

    def sight(self, side: Side) -> _Sight:
        return self.here if side == "here" else self.there


class SideSums:
    """Sums of one class on one side. ``delays`` are the run's, ``recent`` since :meth:`turn`."""

    def __init__(self) -> None:
        self.watched = 0
        self.delivered = 0
        self.doubled = 0
        #: By the outcome of the sending; on the original's side all are ``taken``.
        self.missing: collections.Counter[str] = collections.Counter()
        self.delays = DelayHistogram()
        self.recent = DelayHistogram()

    def side_document(self) -> dict[str, Any]:
        """Return this side's part of the mirror's JSON document; delays are in ms."""
        return {
            "watched": self.watched,
            "delivered": self.delivered,
            "missing": self.missing.total(),
            "missing_by_outcome": dict(self.missing),
            "doubled": self.doubled,
            "delay_p50_ms": self.delays.ms(0.5),
            "delay_p99_ms": self.delays.ms(0.99),
        }


class ClassSums:
    """The sums of one class: messages in the share, outcomes of the sending, both sides."""

    def __init__(self) -> None:
        self.shared = 0
        self.outcomes: collections.Counter[Outcome] = collections.Counter()
        self.sides: dict[Side, SideSums] = {side: SideSums() for side in SIDES}

    def class_document(self) -> dict[str, Any]:
        """Return this class's part of the mirror's JSON document."""
        sides: dict[str, Any] = {
            side: class_sums.side_document() for side, class_sums in self.sides.items()
        }
        return {"shared": self.shared, "outcomes": dict(self.outcomes)} | sides


class ShareRecord:
    """All messages that aren't judged yet, and the sums of the judged ones.

    ``on_delay`` is called with each delay, in seconds.
    """

    def __init__(
        self,
        *,
        patience: float = 15.0,
        most: int = _MOST_ENTRIES,
        on_delay: Callable[[Side, TopicClass, float], None] = lambda *_: None,
    ) -> None:
        self.by_class: dict[TopicClass, ClassSums] = {name: ClassSums() for name in CLASSES}
        #: Messages given to the other fabric's broker.
        self.sent = 0
        #: Messages that the observer of the original received and the mirror never heard.
        self.unheard = 0
        self._closed = False
        self._patience = patience
        self._most = most
        self._on_delay = on_delay
        # By identity, the oldest first.
        self._entries: collections.OrderedDict[int, _Entry] = collections.OrderedDict()
        # The original's identity by the copy's, only where the two differ.
        self._original: dict[int, int] = {}
        # Messages that the observer received before the mirror: connection, time, whether fresh.
        self._early: collections.OrderedDict[int, tuple[int, float, bool]] = (
            collections.OrderedDict()
        )

    def __len__(self) -> int:
        """Return the number of messages that aren't judged yet."""
        return len(self._entries)

    def note_original(
        self,
        identity: int,
        *,
        topic_class: TopicClass,
        taken: float,
        now: float,
        watched_here: bool,
        watched_there: bool,
        identity_there: int | None = None,
    ) -> None:
        """Note a message of the share, heard ``now``; its router took it in at ``taken``."""
        there = identity if identity_there is None else identity_there
        entry = _Entry(topic_class, now, taken, there, _Sight(watched_here), _Sight(watched_there))
        while len(self._entries) >= self._most:
            self._judge(next(iter(self._entries)))
        self._entries[identity] = entry
        if there != identity:
            self._original[there] = identity
        self.by_class[topic_class].shared += 1
        if (early := self._early.pop(identity, None)) is not None:
            self._note(entry, "here", early[0], early[1])

    def close(self, now: float) -> None:
        """Note that the mirror hears nothing more. Messages that only the observer receives from
        ``now`` on aren't counted as unheard, nor those of the last second before."""
        self._closed = True
        while self._early and next(reversed(self._early.values()))[1] > now - SETTLED:
            self._early.popitem()

    def went(self, identity: int, outcome: Outcome, now: float) -> None:
        """Note the outcome so far of sending the copy."""
        entry = self._entries.get(identity)
        if entry is None:
            return
        entry.outcome = outcome
        if outcome == "sent":
            entry.sent = now
            self.sent += 1
        elif outcome != "waiting":
            self.by_class[entry.topic_class].outcomes[outcome] += 1

    def arrived(
        self, side: Side, identity: int, *, connection: int, now: float, fresh: bool = False
    ) -> None:
        """Note a message at an observer. ``fresh``: routed after that observer had subscribed."""
        if side == "there":
            identity = self._original.get(identity, identity)
        entry = self._entries.get(identity)
        if entry is not None:
            self._note(entry, side, connection, now)
        elif side == "here" and not self._closed:
            self._early.setdefault(identity, (connection, now, fresh))
            if len(self._early) > _MOST_EARLY:
                self._early.popitem(last=False)

    def _note(self, entry: _Entry, side: Side, connection: int, now: float) -> None:
        sight = entry.sight(side)
        if sight.connection is not None:
            sight.doubled += sight.connection == connection
            return
        sight.connection = connection
        began = entry.taken if side == "here" else entry.sent
        if sight.watched and began is not None:
            class_sums = self.by_class[entry.topic_class].sides[side]
            class_sums.delays.add(now - began)
            class_sums.recent.add(now - began)
            self._on_delay(side, entry.topic_class, now - began)

    def lost_sight(self, side: Side) -> None:
        """Note a disconnect of the observer of ``side``: missing messages aren't watched now."""
        for entry in self._entries.values():
            sight = entry.sight(side)
            if sight.connection is None:
                sight.watched = False

    def judge(self, now: float) -> None:
        """Judge the messages that are old enough; ``float("inf")`` judges all."""
        while self._entries:
            identity, entry = next(iter(self._entries.items()))
            if now - entry.heard < self._patience:
                break
            self._judge(identity)
        while self._early:
            identity, (_, at, fresh) = next(iter(self._early.items()))
            if now - at < self._patience:
                break
            del self._early[identity]
            self.unheard += fresh

    def _judge(self, identity: int) -> None:
        entry = self._entries.pop(identity)
        self._original.pop(entry.identity_there, None)
        class_sums = self.by_class[entry.topic_class]
        if entry.outcome in ("waiting", "sent"):
            class_sums.outcomes[entry.outcome] += 1
        for side in SIDES:
            sight, sums = entry.sight(side), class_sums.sides[side]
            if not sight.watched:
                continue
            sums.watched += 1
            sums.doubled += sight.doubled
            if sight.connection is not None:
                sums.delivered += 1
            else:
                sums.missing["taken" if side == "here" else entry.outcome] += 1

    def turn(self) -> None:
        """Begin a new interval."""
        for class_sums in self.by_class.values():
            for side in class_sums.sides.values():
                side.recent = DelayHistogram()
