"""The account of a chaos run: every message against every reader that should receive it. Pure.

Times are seconds since the run began. All readers are subscribed before the first message is sent.
So a reader should receive each message of its topics that a publisher tried to send; it is *owed*
those with a receipt. Bronze may be dropped under pressure, so missing bronze is reported, and
breaks no promise. A reader that resumed and got ``recovered: true`` must receive all messages with
an earlier receipt. A message dismissed on one device is owed to no other any more, but the device
that dismissed it must be notified.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal

from localfabric.chaos.answers import ResumeAnswer, promised_wrongly
from newsfabric.topics import CLASSES, TopicClass

#: The kind of a delivery for its reader: the first of its identity, one that an earlier connection
#: had delivered (dropped, as every library does), or a second one on the same connection.
Sort = Literal["new", "repeat", "double"]
Broken = Literal["lost", "doubled", "told wrongly"]
#: The habit of readers that leave early and come back after the last fault.
ABSENT: Final = "absent"


@dataclasses.dataclass(slots=True, kw_only=True)
class RecordedMessage:
    """A message from its publisher's side: ``sent`` is the first try, ``receipted`` its receipt."""

    n: int
    topic: str
    klass: TopicClass
    region: str
    sent: float
    receipted: float | None = None
    id: str | None = None
    router: str | None = None
    rejected: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReaderProfile:
    """A reader. ``habit`` is staying, reconnecting, roaming, absent, or a kind of device.

    A reader that ``goes_away`` for a while receives late, so it has no part in the delays.
    """

    name: str
    habit: str
    topics: frozenset[str]
    goes_away: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Arrival:
    """A delivery: ``reader``'s ``connection``-th connection brought message ``n`` at ``at``."""

    reader: str
    connection: int
    n: int
    at: float
    sort: Sort


@dataclasses.dataclass(frozen=True, slots=True)
class RecordedConnection:
    """A reader's ``number``-th connection, begun at ``at`` with the gateway at ``url``."""

    number: int
    at: float
    url: str


@dataclasses.dataclass(frozen=True, slots=True)
class ReportedGap:
    """A resume of ``topic`` that was answered ``recovered: false``, with the reason."""

    reader: str
    connection: int
    topic: str
    at: float
    reason: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """A broken promise: message ``n`` and the readers for which it was broken.

    ``told wrongly``: a reader that resumed was promised all messages, and didn't get this one.
    """

    n: int
    what: Broken
    readers: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryDelays:
    """Seconds from the publisher's first try to readers, over ``count`` first deliveries."""

    count: int
    p50: float
    p99: float
    worst: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> DeliveryDelays | None:
        """Compute them from ``samples``; None if there are none."""
        if not samples:
            return None
        ordered = sorted(samples)

        def at(share: float) -> float:
            return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

        return cls(count=len(ordered), p50=at(0.5), p99=at(0.99), worst=ordered[-1])


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryAccount:
    """The results. ``owed`` and ``paid`` count pairs of a receipted message and a reader.

    ``missing_bronze`` are pairs too; ``unreceipted`` messages are owed to nobody. ``repeats`` were
    dropped by identity. ``gaps`` counts the answers ``recovered: false``, ``recovered`` the answers
    ``true``; ``reread`` deliveries are from a history that was read for such a gap. ``shed`` counts
    bronze dropped before it was stored, with a receipt that asks the publisher to send again. The
    dismissal of ``unheard`` of the ``dismissed`` messages was never announced.
    """

    published: int
    receipted: int
    rejected: int
    unreceipted: int
    readers: int
    connections: int
    owed: int
    paid: int
    repeats: int
    gaps: int
    reread: int
    recovered: int
    shed: int
    missing_bronze: int
    dismissed: int
    unheard: int
    wrong: tuple[Wrong, ...]
    delays: Mapping[str, DeliveryDelays]

    @property
    def kept(self) -> bool:
        """True if every promise was kept."""
        return not self.wrong

    def count(self, what: Broken) -> int:
        """Return the number of messages with this broken promise for at least one reader."""
        return sum(wrong.what == what for wrong in self.wrong)


class DeliveryRecord:
    """The record of sent messages and deliveries, entered in any order, and the account of them."""

    def __init__(self, readers: Iterable[ReaderProfile]) -> None:
        self.readers = {reader.name: reader for reader in readers}
        self.messages: dict[int, RecordedMessage] = {}
        self.doubles: list[Arrival] = []
        self.first: dict[int, dict[str, float]] = collections.defaultdict(dict)
        #: By message, the readers that first got it from a history: no gateway delivered it.
        self.from_history: dict[int, set[str]] = collections.defaultdict(set)
        #: First deliveries so far.
        self.arrivals = 0
        #: Receipts that asked a publisher of bronze to send again later.
        self.shed = 0
        self._repeats = 0
        self.reported_gaps: list[ReportedGap] = []
        # By reader and topic, in order.
        self._answers: dict[tuple[str, str], list[ResumeAnswer]] = collections.defaultdict(list)
        self._dismissed: set[int] = set()
        #: Dismissed messages whose dismissal wasn't announced yet to the device concerned.
        self.unheard: set[int] = set()
        self._connections: dict[str, list[RecordedConnection]] = {name: [] for name in self.readers}
        self._by_topic: dict[str, list[str]] = collections.defaultdict(list)
        for reader in self.readers.values():
            for topic in reader.topics:
                self._by_topic[topic].append(reader.name)

    def sent(self, message: RecordedMessage) -> None:
        """Enter a publisher's first try to send ``message``; the publisher completes it later."""
        self.messages[message.n] = message

    def connected(self, reader: str, connection: RecordedConnection) -> None:
        """Enter a reader's new connection."""
        self._connections[reader].append(connection)

    def connections(self, reader: str, *, since: float, until: float) -> list[RecordedConnection]:
        """Return the connections that ``reader`` had or began between the two times."""
        before = [c for c in self._connections[reader] if c.at < since][-1:]
        return before + [c for c in self._connections[reader] if since <= c.at < until]

    def gap(self, gap: ReportedGap) -> None:
        """Enter a gateway's answer to a resuming reader that messages may be missing."""
        self.reported_gaps.append(gap)
        answer = ResumeAnswer(asked=gap.at, at=gap.at, recovered=False)
        self._answers[gap.reader, gap.topic].append(answer)

    def recovered(self, reader: str, topic: str, *, asked: float, at: float) -> None:
        """Enter a gateway's promise of all missed messages to a reader that had ``asked``."""
        url = self._connections[reader][-1].url if self._connections[reader] else ""
        answer = ResumeAnswer(asked=asked, at=at, recovered=True, url=url)
        self._answers[reader, topic].append(answer)

    def disconnected(self, reader: str, at: float) -> None:
        """Enter the end of the connection of ``reader``."""
        for topic in self.readers[reader].topics:
            if answers := self._answers.get((reader, topic)):
                answers[-1].until = min(answers[-1].until, at)

    def gaps(self, reader: str) -> list[ReportedGap]:
        """Return the gaps reported to ``reader``."""
        return [gap for gap in self.reported_gaps if gap.reader == reader]

    def arrived(self, arrival: Arrival) -> None:
        """Enter a delivery. A message that is new to its reader by identity, but whose number it
        has had, is a double too: the two copies had different identities."""
        if arrival.sort == "repeat":
            self._repeats += 1
        elif arrival.sort == "double" or arrival.reader in self.first[arrival.n]:
            self.doubles.append(arrival)
        else:
            self.first[arrival.n][arrival.reader] = arrival.at
            self.arrivals += 1

    def reread(self, reader: str, n: int, at: float) -> None:
        """Enter a message that ``reader``, after a gap, found in the history."""
        if reader not in self.first[n]:
            self.first[n][reader] = at
            self.from_history[n].add(reader)
            self.arrivals += 1

    def dismissed(self, n: int) -> None:
        """Enter that a device is about to dismiss message ``n``, which it has."""
        self._dismissed.add(n)
        self.unheard.add(n)

    def dismissal_seen(self, n: int) -> None:
        """Enter that the device was notified that message ``n`` is dismissed."""
        self.unheard.discard(n)

    def overdue(self, *, at: float, after: float) -> Iterator[RecordedMessage]:
        """Yield the messages of :meth:`missing` whose receipts are ``after`` seconds old at ``at``.

        Messages missing only for absent readers are left out.
        """
        for message, names in self.missing():
            here = any(self.readers[name].habit != ABSENT for name in names)
            if here and message.receipted is not None and message.receipted <= at - after:
                yield message

    def missing(self) -> Iterator[tuple[RecordedMessage, tuple[str, ...]]]:
        """Yield receipted messages with the readers that haven't received them."""
        for message in self.messages.values():
            if message.receipted is None or message.rejected is not None:
                continue
            have = self.first.get(message.n, {})
            names = self.owed_to(message)
            if len(have) < len(names) and (lack := tuple(n for n in names if n not in have)):
                yield message, lack

    def readers_of(self, topic: str) -> list[str]:
        """Return the readers of ``topic``."""
        return self._by_topic.get(topic, [])

    def owed_to(self, message: RecordedMessage) -> list[str]:
        """Return the readers that should get ``message``; if dismissed, only those that got it."""
        names = self.readers_of(message.topic)
        if message.n not in self._dismissed:
            return names
        have = self.first.get(message.n, {})
        return [name for name in names if name in have]

    def settled(self) -> bool:
        """Return whether publishers and devices have all answers, and readers all messages owed."""
        answered = all(message.receipted is not None for message in self.messages.values())
        return answered and not self.unheard and next(self.missing(), None) is None

    def prompt(self, n: int) -> list[float]:
        """Return the times of message ``n``'s deliveries to readers that don't go away."""
        had = self.first.get(n, {})
        return [at for name, at in had.items() if not self.readers[name].goes_away]

    def delays(
        self, *, since: float = 0.0, until: float = float("inf"), klass: TopicClass | None = None
    ) -> list[float]:
        """Return delays of :meth:`prompt` deliveries of messages sent in ``[since, until)``."""
        return [
            at - message.sent
            for message in self.messages.values()
            if since <= message.sent < until and klass in (None, message.klass)
            for at in self.prompt(message.n)
        ]

    def account(self) -> DeliveryAccount:
        """Return the account of all entries so far."""
        messages = self.messages.values()
        routed = [m for m in messages if m.receipted is not None and m.rejected is None]
        missing = list(self.missing())
        lost = [(m, names) for m, names in missing if not CLASSES[m.klass].may_be_dropped]
        owed = sum(len(self.owed_to(m)) for m in routed)
        return DeliveryAccount(
            published=len(messages),
            receipted=len(routed),
            rejected=sum(m.rejected is not None for m in messages),
            unreceipted=sum(m.receipted is None for m in messages),
            readers=len(self.readers),
            connections=sum(map(len, self._connections.values())),
            owed=owed,
            paid=owed - sum(len(names) for _, names in missing),
            repeats=self._repeats,
            gaps=len(self.reported_gaps),
            reread=sum(map(len, self.from_history.values())),
            recovered=sum(a.recovered for answers in self._answers.values() for a in answers),
            shed=self.shed,
            missing_bronze=sum(
                len(names) for m, names in missing if CLASSES[m.klass].may_be_dropped
            ),
            dismissed=len(self._dismissed),
            unheard=len(self.unheard),
            wrong=(
                *(Wrong(n=m.n, what="lost", readers=names) for m, names in lost),
                *self._doubled(),
                *self._promised_wrongly(routed),
            ),
            delays={name: found for name, found in self._delays_by_class() if found is not None},
        )

    def _doubled(self) -> Iterator[Wrong]:
        names: dict[int, list[str]] = collections.defaultdict(list)
        for arrival in self.doubles:
            names[arrival.n].append(arrival.reader)
        for n, readers in names.items():
            yield Wrong(n=n, what="doubled", readers=tuple(dict.fromkeys(readers)))

    def _promised_wrongly(self, routed: Iterable[RecordedMessage]) -> Iterator[Wrong]:
        for message in routed:
            if CLASSES[message.klass].may_be_dropped or message.receipted is None:
                continue
            had = self.first.get(message.n, {})
            given: dict[str, float] = {}
            for name, at in had.items():
                if name in self.from_history[message.n]:
                    continue
                if here := self.connections(name, since=at, until=at):
                    given[here[-1].url] = min(at, given.get(here[-1].url, at))
            names = tuple(
                name
                for name in self.owed_to(message)
                if promised_wrongly(
                    self._answers.get((name, message.topic), ()),
                    receipted=message.receipted,
                    given=given,
                    arrived=had.get(name),
                )
            )
            if names:
                yield Wrong(n=message.n, what="told wrongly", readers=names)

    def _delays_by_class(self) -> Iterator[tuple[str, DeliveryDelays | None]]:
        for name in CLASSES:
            yield name, DeliveryDelays.of(self.delays(klass=name))
