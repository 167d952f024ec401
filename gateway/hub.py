"""The hub: topic → subscriptions, recent messages, identities seen. Pure; one per gateway.

An envelope is offered once per copy and published once: :meth:`Hub.offer` returns None for
copies. Whoever calls it sends the publication to :meth:`Hub.audience` **before anything else is
offered or subscribed**; that is what makes "each topic in the order of arrival, nobody
twice" true.

What the store has of a topic (:meth:`Hub.past`) counts as far as it was given here, or was past
when this gateway began (:meth:`gateway.logs.Logs.gave`). Everything else comes live, to everyone
who is subscribed: its number is missing until then.

``now`` is in seconds since the epoch throughout.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from gateway.forgotten import Forgotten
from gateway.identities import SeenIdentities
from gateway.kept_topics import Audience, KeptTopics, Subscriber, Subscription
from gateway.logs import Logs
from gateway.memory import TopicMemory
from gateway.position import copy_of, log_of
from gateway.publication import Publication
from newsfabric.envelope import Envelope, ms_of_id
from newsfabric.topics import TopicTable


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HubLimits:
    """What the hub keeps, at most.

    What happens at ``topics`` or ``memory_bytes``: :mod:`gateway.kept_topics`. At ``keys`` a topic
    forgets the key renewed longest ago.
    """

    topics: int = 20_000
    memory_bytes: int = 256 << 20
    keys: int = 1_000
    # At the 5,000 messages/s that one region routes at most they last for 310 s, of which a group
    # of ten goes at a time: 300 s, as long as two queues hold a copy back. Reached from 1,722
    # messages/s on. 20 bytes each in the data plane, for each I/O thread (30 MB; 1,572,864 is
    # where its table doubles), 90 in Python (140 MB).
    identities: int = 1_550_000
    # Longer than a copy can be on its way (tests/test_topology.py adds it up).
    identity_seconds: float = 900.0


class Hub:
    """All topics of one gateway."""

    def __init__(self, topics: TopicTable, logs: Logs, limits: HubLimits | None = None) -> None:
        self.limits = limits or HubLimits()
        self.logs = logs
        self.copies = 0
        # Copies with another body than the one that was published, as far as that is remembered.
        self.differing = 0
        self.unknown_topics = 0
        self._table = topics
        self._seen = SeenIdentities(
            seconds=self.limits.identity_seconds, limit=self.limits.identities
        )
        keys = self.limits.keys
        self._topics = KeptTopics(
            self.limits.topics,
            self.limits.memory_bytes,
            topics.of_any,
            lambda policy: TopicMemory(policy, keys, Forgotten(logs.tops)),
        )

    @property
    def memory_bytes(self) -> int:
        """What all that is remembered of topics weighs."""
        return self._topics.memory_bytes

    @property
    def topics(self) -> int:
        """How many topics are remembered."""
        return len(self._topics)

    @property
    def identities(self) -> int:
        """How many identities are remembered."""
        return len(self._seen)

    @property
    def evicted_early(self) -> int:
        """How many identities were forgotten before their time, because they were too many."""
        return self._seen.evicted_early

    def offer(self, envelope: Envelope, now: float) -> Publication | None:
        """The publication of ``envelope``; None if it is a copy, or of a topic we don't know.

        Its number counts as seen from now on.
        """
        copy = copy_of(envelope)
        if self.logs.has(copy.log, copy.seq):
            self.copies += 1
            return None
        policy = self._table.of_any(envelope.topic)
        if policy is None:
            self.unknown_topics += 1
            self.logs.saw(copy.log, copy.seq)
            return None
        if self.knows(envelope):
            self.drop(envelope)
            return None
        # What a new memory lacks is what was seen until now.
        known = self._topics.keep_if_room(envelope.topic)
        self.logs.saw(copy.log, copy.seq)
        self._seen.add(envelope.identity, now)
        publication = Publication(envelope, policy, self.position(now))
        if known is not None:
            self._topics.add(publication, known)
        return publication

    def knows(self, envelope: Envelope) -> bool:
        """Whether readers here were given this message, as far as that is remembered."""
        if envelope.identity in self._seen:
            return True
        # A quiet topic remembers messages for longer than the window lasts.
        known = self._topics.find(envelope.topic)
        return known is not None and known.memory.holds(envelope.identity, envelope.key)

    def drop(self, envelope: Envelope) -> None:
        """``envelope`` is another copy of what readers here were given."""
        copy = copy_of(envelope)
        self.logs.saw(copy.log, copy.seq)
        self.copies += 1
        known = self._topics.find(envelope.topic)
        if known is not None:
            known.memory.note_copy(envelope)
            self.differing += known.memory.differs(envelope)

    def position(self, now: float) -> str:
        """The position of a reader who was given everything until now."""
        return self.logs.position(int(now * 1000))

    def subscribe(self, topic: str, subscriber: Subscriber) -> Subscription:
        """From now on ``subscriber`` is in the audience of ``topic`` (one of topics.toml)."""
        return self._topics.subscribe(topic, subscriber)

    def unsubscribe(self, subscription: Subscription) -> None:
        """Take a subscription back; harmless when it was before."""
        self._topics.unsubscribe(subscription)

    def audience(self, topic: str) -> Audience:
        """Who is subscribed to ``topic`` now."""
        known = self._topics.find(topic)
        return () if known is None else known.audience

    def is_warm(self, topic: str) -> bool:
        """Whether the store was asked for ``topic``'s past."""
        known = self._topics.find(topic)
        return known is not None and known.warm

    def memory(self, topic: str) -> TopicMemory:
        """What is remembered of ``topic`` (one of topics.toml)."""
        return self._topics.keep(topic).memory

    def warm(
        self,
        topic: str,
        history: Iterable[Envelope],
        latest: Iterable[Envelope],
        *,
        complete: bool,
        now: float,
    ) -> None:
        """Seed ``topic`` with what the store has, oldest first; once for each topic.

        ``complete`` says that the store has nothing before ``history``.
        """
        known = self._topics.keep(topic)
        holds = known.memory.holds
        older = self.past(topic, (e for e in history if not holds(e.identity, e.key)), now)
        versions = self.past(topic, (e for e in latest if not holds(e.identity, e.key)), now)
        before = known.memory.weight
        known.memory.put_before(older, complete=complete)
        known.memory.put_latest(versions)
        known.warm = True
        for publication in older:
            self._seen.add(publication.envelope.identity, now)
        self._topics.grown(topic, known.memory.weight - before)

    def past(
        self, topic: str, stored: Iterable[Envelope], now: float, *, remembered: bool = False
    ) -> list[Publication]:
        """What of ``stored``, read of the store, is past here, in its order; without the recent
        messages that are remembered here, unless ``remembered``.

        Whoever is given these mustn't get them twice: a copy that comes later isn't published.
        """
        known = None if remembered else self._topics.find(topic)
        policy = self._table.of_any(topic)
        assert policy is not None
        older = [
            Publication(envelope, policy, None)
            for envelope in stored
            if self.was_given(envelope)
            and not (known is not None and envelope.identity in known.memory)
        ]
        self._given(older, now)
        return older

    def was_given(self, envelope: Envelope) -> bool:
        """Whether this copy was given to readers here, or is past; anything else comes live."""
        return self.logs.gave(log_of(envelope), envelope.seq)

    def is_void(self, envelope: Envelope) -> bool:
        """Whether its number was passed over as void: its message comes under another one."""
        log = log_of(envelope)
        return self.logs.has(log, envelope.seq) and not self.logs.gave(log, envelope.seq)

    def recollect(self, topic: str, stored: Iterable[Envelope], now: float) -> list[Publication]:
        """Each message in ``stored`` that is past here, with all its copies, in order of id.

        ``stored`` has every copy, as :meth:`newsfabric.store.Store.since` gives them. A copy of any
        of these that comes later isn't published again: whoever is given them now must not get
        them twice.
        """
        memory = self.memory(topic)
        found: dict[int, Publication] = {}
        for envelope in stored:
            if not self.was_given(envelope):
                continue
            # One of its own, without a position: in order of id, one that it got here in order of
            # arrival would cover messages that are sent after it.
            known = found.get(envelope.identity)
            if known is None:
                known = found[envelope.identity] = Publication(envelope, memory.policy, None)
                self._seen.add(envelope.identity, now)
            known.add_copy(copy_of(envelope))
        return list(found.values())

    def _given(self, older: Iterable[Publication], now: float) -> None:
        """Some reader is given these now: a copy of any that comes later must not be published.

        Copies are routed within minutes of each other, so only the newest are noted. A rewind of
        days would push out identities that are needed.
        """
        since_ms = int((now - self.limits.identity_seconds) * 1000)
        for publication in older:
            if ms_of_id(publication.envelope.id) >= since_ms:
                self._seen.add(publication.envelope.identity, now)
