"""The hub: topic → subscriptions, recent messages, identities seen. Pure; one per gateway.

Each copy of a message is offered, and one is published: :meth:`Hub.offer` returns None for the
others. The caller sends the publication to the topic's audience (:mod:`gateway.memory.kept_topics`)
**before anything else is offered or subscribed**. So readers get each topic in the order of
arrival, and no message twice.

``now`` is in seconds since the epoch throughout; expiry and positions use it. The time since a
message was seen is measured by ``clock``, which is monotonic. Otherwise one step of the machine's
clock would make a gateway forget all messages that it gave, or remember them for hours.
"""

from __future__ import annotations

import dataclasses
import enum
import time
from collections.abc import Callable, Iterable

from gateway.logs.logs import Logs
from gateway.memory.forgotten import ForgottenVector
from gateway.memory.identities import SeenIdentities
from gateway.memory.kept_topics import TopicMemories
from gateway.memory.memory import TopicMemory
from gateway.wire.position import copy_of, log_of
from gateway.wire.publication import Publication
from newsfabric.messages.envelope import Envelope
from newsfabric.topics import TopicTable
from newsfabric.topology.times import TIMES


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HubLimits:
    """The limits of the hub's memory. At ``keys`` a topic forgets the key renewed longest ago."""

    topics: int = 20_000
    memory_bytes: int = 256 << 20
    keys: int = 1_000
    # One region routes at most 5,000 messages/s, which fill this in 310 s. Groups of ten seconds
    # are dropped, so 300 s remain: as long as two queues hold a copy back. The limit is reached
    # from 1,722 messages/s on. An identity takes 20 bytes in each I/O thread of the data plane (30
    # MB together; its table doubles at 1,572,864), and 90 bytes in Python (140 MB).
    identities: int = 1_550_000
    identity_seconds: float = TIMES.identity_ms / 1000


class Dropped(enum.Enum):
    """The reason why an offered envelope isn't published."""

    #: Its number was seen before, or readers here were given another copy of the message.
    DUPLICATE = enum.auto()
    #: As DUPLICATE, but its body isn't the published one, as far as that is remembered.
    DIFFERING = enum.auto()
    UNKNOWN_TOPIC = enum.auto()


class Hub:
    """All topics of one gateway (``topics``): their subscriptions and remembered messages.
    ``clock`` gives seconds; ``dropped`` is called for each envelope that isn't published."""

    def __init__(
        self,
        table: TopicTable,
        logs: Logs,
        limits: HubLimits | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        dropped: Callable[[Dropped], None] = lambda reason: None,
    ) -> None:
        self.table = table
        self._clock = clock
        self.limits = limits or HubLimits()
        self.logs = logs
        self._dropped = dropped
        self.topics = TopicMemories(self.limits.topics, self.limits.memory_bytes, self._new_memory)
        self.seen = SeenIdentities(
            seconds=self.limits.identity_seconds, limit=self.limits.identities
        )

    def _new_memory(self, topic: str) -> TopicMemory:
        policy = self.table.of_any(topic)
        if policy is None:
            raise ValueError(f"no such topic: {topic!r}")
        return TopicMemory(policy, self.limits.keys, ForgottenVector(self.logs.highest_numbers))

    def offer(self, envelope: Envelope, now: float) -> Publication | None:
        """Return the publication of ``envelope``; None for a copy, and for an unknown topic.

        The envelope's number counts as seen from now on.
        """
        copy = copy_of(envelope)
        if self.logs.is_done(copy.log, copy.seq):
            self._dropped(Dropped.DUPLICATE)
            return None
        policy = self.table.of_any(envelope.topic)
        if policy is None:
            self._dropped(Dropped.UNKNOWN_TOPIC)
            self.logs.mark_seen(copy.log, copy.seq)
            return None
        if self.was_published(envelope):
            self.note_duplicate(envelope)
            return None
        # Before ``mark_seen``: a new memory lacks all numbers seen until now, and has this one.
        is_kept = self.topics.keep_if_room(envelope.topic)
        self.logs.mark_seen(copy.log, copy.seq)
        self.seen.add(envelope.identity, self._clock())
        publication = Publication(envelope, policy, self.position(now))
        if is_kept:
            self.topics.add(publication)
        return publication

    def was_published(self, envelope: Envelope) -> bool:
        """Return whether readers here were given this message, as far as that is remembered."""
        if envelope.identity in self.seen:
            return True
        # The memory of a quiet topic has messages for longer than identities are kept.
        memory = self.topics.find(envelope.topic)
        return memory is not None and memory.holds(envelope.identity, envelope.key)

    def note_duplicate(self, envelope: Envelope) -> None:
        """Note ``envelope`` as another copy of a message that readers here were given."""
        copy = copy_of(envelope)
        self.logs.mark_seen(copy.log, copy.seq)
        memory = self.topics.find(envelope.topic)
        differs = memory is not None and memory.note_copy(envelope)
        self._dropped(Dropped.DIFFERING if differs else Dropped.DUPLICATE)

    def spread_ms(self, now: float) -> int:
        """Return by how much routers' clocks have differed (:meth:`.LogTimes.spread_ms`)."""
        return self.logs.times.spread_ms(int(now * 1000), self._clock())

    def position(self, now: float) -> str:
        """Return the position of a reader that was given everything until now."""
        return self.logs.listing.token(int(now * 1000))

    def memory(self, topic: str) -> TopicMemory:
        """Return the memory of ``topic``, which is a topic of topics.toml."""
        return self.topics.keep(topic)

    def seed(
        self,
        topic: str,
        history: Iterable[Envelope],
        latest: Iterable[Envelope],
        *,
        complete: bool,
        now: float,
    ) -> None:
        """Seed ``topic`` with messages from the store, oldest first; once for each memory of it.
        ``complete``: the store has no message before ``history``."""
        memory = self.memory(topic)
        older = self.take_past(
            topic, (e for e in history if not memory.holds(e.identity, e.key)), now
        )
        newest = self.take_past(
            topic, (e for e in latest if not memory.holds(e.identity, e.key)), now
        )
        before = memory.weight
        memory.put_before(older, newest, complete=complete)
        memory.seeded = True
        seen_at = self._clock()
        for publication in older:
            self.seen.add(publication.envelope.identity, seen_at)
        self.topics.add_weight(topic, memory.weight - before)

    def take_past(self, topic: str, stored: Iterable[Envelope], now: float) -> list[Publication]:
        """Return the messages of ``stored``, read from the store, that are past here, in its order.

        A reader is given these now, so later copies of them must not be published. Copies are
        routed within minutes of each other, so only the newest identities are noted. Those of a
        rewind over days would push out identities that are needed.
        """
        policy = self.memory(topic).policy
        older = [Publication(one, policy, None) for one in stored if self.was_given(one)]
        seen_at = self._clock()
        # By the earliest of all clocks (gateway/logs/log_times.py): a clock that is ahead makes no
        # message old.
        certain_ms = self.logs.times.certain_ms(int(now * 1000), seen_at)
        oldest_ms = certain_ms - int(self.limits.identity_seconds * 1000)
        for publication in older:
            if publication.routed_ms >= oldest_ms:
                self.seen.add(publication.envelope.identity, seen_at)
        return older

    def was_given(self, envelope: Envelope) -> bool:
        """Return whether this copy was given to readers here, or is past; else it arrives live."""
        return self.logs.was_given(log_of(envelope), envelope.seq)

    def is_void(self, envelope: Envelope) -> bool:
        """Return whether the copy's number was skipped as void: another copy is to be given."""
        log = log_of(envelope)
        return self.logs.is_done(log, envelope.seq) and not self.logs.was_given(log, envelope.seq)

    def past_with_copies(self, topic: str, stored: Iterable[Envelope]) -> dict[int, Publication]:
        """Return, by identity, each message of ``stored`` that is past here, with all its copies.

        ``stored`` has every copy, as :meth:`newsfabric.store.Store.since` returns them. A later
        copy of any of these isn't published, however old it is.
        """
        policy, seen_at = self.memory(topic).policy, self._clock()
        found: dict[int, Publication] = {}
        for envelope in filter(self.was_given, stored):
            # A publication of its own, without a position. These are sent in order of id. So a
            # position from its arrival here would cover messages that are sent after it.
            known = found.get(envelope.identity)
            if known is None:
                known = found[envelope.identity] = Publication(envelope, policy, None)
                self.seen.add(envelope.identity, seen_at)
            known.add_copy(copy_of(envelope))
        return found
