"""The hub: topic → subscriptions, recent messages, identities seen. Pure; one per gateway.

An envelope is offered once per copy and published once: :meth:`Hub.offer` returns None for
copies. Whoever calls it sends the publication to its topic's audience (:mod:`gateway.kept_topics`)
**before anything else is offered or subscribed**; that is what makes "each topic in the order of
arrival, nobody twice" true.

``now`` is in seconds since the epoch throughout: what expires goes by it, and what positions say.
How long ago a message was seen goes by ``clock``, which only goes on: else one step of the
machine's clock would make a gateway forget all that it gave, or remember it for hours.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable

from gateway.forgotten import Forgotten
from gateway.identities import SeenIdentities
from gateway.kept_topics import KeptTopics
from gateway.logs import Logs
from gateway.memory import TopicMemory
from gateway.position import copy_of, log_of
from gateway.publication import Publication
from newsfabric.messages.envelope import Envelope
from newsfabric.topics import TopicTable


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HubLimits:
    """What the hub keeps, at most. At ``keys`` a topic forgets the key renewed longest ago."""

    topics: int = 20_000
    memory_bytes: int = 256 << 20
    keys: int = 1_000
    # At the 5,000 messages/s that one region routes at most they last for 310 s, of which a group
    # of ten goes at a time: 300 s, as long as two queues hold a copy back. Reached from 1,722
    # messages/s on. 20 bytes each in the data plane, for each I/O thread (30 MB; 1,572,864 is
    # where its table doubles), 90 in Python (140 MB).
    identities: int = 1_550_000
    # Longer than a copy can be on its way (tests/topology/test_topology.py adds it up).
    identity_seconds: float = 900.0


class Hub:
    """All topics of one gateway: who is subscribed, and what is remembered of each (``topics``).
    ``clock`` gives seconds."""

    def __init__(
        self,
        table: TopicTable,
        logs: Logs,
        limits: HubLimits | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.table = table
        self._clock = clock
        self.limits = limits or HubLimits()
        self.logs = logs
        self.copies = 0
        # Copies with another body than the one that was published, as far as that is remembered.
        self.differing = 0
        self.unknown_topics = 0
        self.topics = KeptTopics(self.limits.topics, self.limits.memory_bytes, self._new_memory)
        self.seen = SeenIdentities(
            seconds=self.limits.identity_seconds, limit=self.limits.identities
        )

    def _new_memory(self, topic: str) -> TopicMemory:
        policy = self.table.of_any(topic)
        if policy is None:
            raise ValueError(f"no such topic: {topic!r}")
        return TopicMemory(policy, self.limits.keys, Forgotten(self.logs.tops))

    def offer(self, envelope: Envelope, now: float) -> Publication | None:
        """The publication of ``envelope``; None if it is a copy, or of a topic we don't know.

        Its number counts as seen from now on.
        """
        copy = copy_of(envelope)
        if self.logs.has(copy.log, copy.seq):
            self.copies += 1
            return None
        policy = self.table.of_any(envelope.topic)
        if policy is None:
            self.unknown_topics += 1
            self.logs.saw(copy.log, copy.seq)
            return None
        if self.knows(envelope):
            self.drop(envelope)
            return None
        # What a new memory lacks is what was seen until now.
        is_kept = self.topics.keep_if_room(envelope.topic)
        self.logs.saw(copy.log, copy.seq)
        self.seen.add(envelope.identity, self._clock())
        publication = Publication(envelope, policy, self.position(now))
        if is_kept:
            self.topics.add(publication)
        return publication

    def knows(self, envelope: Envelope) -> bool:
        """Whether readers here were given this message, as far as that is remembered."""
        if envelope.identity in self.seen:
            return True
        # A quiet topic remembers messages for longer than the window lasts.
        memory = self.topics.find(envelope.topic)
        return memory is not None and memory.holds(envelope.identity, envelope.key)

    def drop(self, envelope: Envelope) -> None:
        """``envelope`` is another copy of what readers here were given."""
        copy = copy_of(envelope)
        self.logs.saw(copy.log, copy.seq)
        self.copies += 1
        memory = self.topics.find(envelope.topic)
        if memory is not None:
            self.differing += memory.note_copy(envelope)

    def spread_ms(self, now: float) -> int:
        """How far the clocks of routers have been apart (:meth:`.LogTimes.spread_ms`)."""
        return self.logs.times.spread_ms(int(now * 1000), self._clock())

    def position(self, now: float) -> str:
        """The position of a reader who was given everything until now."""
        return self.logs.listing.token(int(now * 1000))

    def memory(self, topic: str) -> TopicMemory:
        """What is remembered of ``topic`` (one of topics.toml)."""
        return self.topics.keep(topic)

    def warm(
        self,
        topic: str,
        history: Iterable[Envelope],
        latest: Iterable[Envelope],
        *,
        complete: bool,
        now: float,
    ) -> None:
        """Seed ``topic`` with what the store has, oldest first; ``complete``: it has nothing before
        ``history``. Once for each topic."""
        memory = self.memory(topic)
        older = self.past(topic, (e for e in history if not memory.holds(e.identity, e.key)), now)
        newest = self.past(topic, (e for e in latest if not memory.holds(e.identity, e.key)), now)
        before = memory.weight
        memory.put_before(older, newest, complete=complete)
        memory.warm = True
        seen_at = self._clock()
        for publication in older:
            self.seen.add(publication.envelope.identity, seen_at)
        self.topics.grown(topic, memory.weight - before)

    def past(self, topic: str, stored: Iterable[Envelope], now: float) -> list[Publication]:
        """What of ``stored``, read of the store, is past here, in its order.

        Some reader is given these now: a copy of any that comes later isn't published. Copies are
        routed within minutes of each other, so only the newest are noted. A rewind of days would
        push out identities that are needed.
        """
        policy = self.memory(topic).policy
        older = [Publication(one, policy, None) for one in stored if self.was_given(one)]
        seen_at = self._clock()
        # By the earliest of all clocks, as in gateway/log_times.py: one that is ahead makes no
        # message old.
        certain_ms = self.logs.times.certain_ms(int(now * 1000), seen_at)
        oldest_ms = certain_ms - int(self.limits.identity_seconds * 1000)
        for publication in older:
            if publication.routed_ms >= oldest_ms:
                self.seen.add(publication.envelope.identity, seen_at)
        return older

    def was_given(self, envelope: Envelope) -> bool:
        """Whether this copy was given to readers here, or is past; anything else comes live."""
        return self.logs.gave(log_of(envelope), envelope.seq)

    def is_void(self, envelope: Envelope) -> bool:
        """Whether its number was passed over as void: its message comes under another one."""
        log = log_of(envelope)
        return self.logs.has(log, envelope.seq) and not self.logs.gave(log, envelope.seq)

    def recollect(self, topic: str, stored: Iterable[Envelope]) -> dict[int, Publication]:
        """By identity, each message in ``stored`` that is past here, with all its copies.

        ``stored`` has every copy, as :meth:`newsfabric.store.Store.since` gives them. A copy of any
        of these that comes later isn't published again, however old it is.
        """
        policy, seen_at = self.memory(topic).policy, self._clock()
        found: dict[int, Publication] = {}
        for envelope in filter(self.was_given, stored):
            # One of its own, without a position: in order of id, one that it got here in order of
            # arrival would cover messages that are sent after it.
            known = found.get(envelope.identity)
            if known is None:
                known = found[envelope.identity] = Publication(envelope, policy, None)
                self.seen.add(envelope.identity, seen_at)
            known.add_copy(copy_of(envelope))
        return found
