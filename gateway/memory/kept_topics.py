"""The topics that a gateway remembers, within bounds: subscriptions and recent messages. Pure.

A topic without subscribers is *idle*. At a bound, idle topics are forgotten, the least recently
used first. If none is idle, nothing is kept of new topics, and a topic that grows loses its oldest
messages.

Example, with room for two topics: "a" has a subscriber, "b" none. A message on "c" would make three
topics: "b" is forgotten. After a message on "d", "c" is forgotten. When a reader has subscribed to
"d", a message on "e" is published, and nothing of it is kept.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from typing import Protocol

from gateway.memory.memory import TopicMemory
from gateway.wire.frames import Framing
from gateway.wire.publication import Publication
from newsfabric.closing import CloseReason


class Subscriber(Protocol):
    """A connection to which publications can be sent."""

    @property
    def transport(self) -> str:
        """The name of its transport; an audience is grouped by it."""

    @property
    def framing(self) -> Framing:
        """The framing of its pushes; the same for all connections of one transport."""

    def deliver(self, frame: bytes, publication: Publication) -> bool:
        """Take one frame of ``publication``; return whether it was sent at once. Never block."""

    def close(self, reason: CloseReason) -> None:
        """Close the connection, which then unsubscribes."""


@dataclasses.dataclass(slots=True, eq=False)
class TopicSubscription:
    """The subscription of ``subscriber`` to ``topic``; ``active`` until it has ended."""

    topic: str
    subscriber: Subscriber
    active: bool = True


# A snapshot by transport. Senders skip subscriptions that aren't active when their turn comes.
Audience = tuple[tuple[str, tuple[TopicSubscription, ...]], ...]


class TopicMemories:
    """The remembered topics: at most ``most``, with memories of at most ``most_bytes`` in all.

    ``new_memory`` makes a topic's memory; it raises ValueError if there is no such topic.
    """

    def __init__(
        self, most: int, most_bytes: int, new_memory: Callable[[str], TopicMemory]
    ) -> None:
        #: The weight of all memories.
        self.memory_bytes = 0
        self._most = most
        self._most_bytes = most_bytes
        self._new_memory = new_memory
        self._memories: dict[str, TopicMemory] = {}
        # Topics that aren't idle.
        self._subscriptions: dict[str, dict[TopicSubscription, None]] = {}
        # A cache, of topics whose subscriptions haven't changed since.
        self._audiences: dict[str, Audience] = {}
        # Least recently used first.
        self._idle: collections.OrderedDict[str, None] = collections.OrderedDict()

    def __len__(self) -> int:
        return len(self._memories)

    def find(self, topic: str) -> TopicMemory | None:
        """Return the memory of ``topic``; None if it isn't kept."""
        return self._memories.get(topic)

    def keep(self, topic: str) -> TopicMemory:
        """Return the memory of ``topic``, made now if needed. An idle topic counts as used now."""
        memory = self._memories.get(topic)
        if memory is None:
            memory = self._memories[topic] = self._new_memory(topic)
            self._idle[topic] = None
            self._make_room(spare=topic)
        elif topic in self._idle:
            self._idle.move_to_end(topic)
        return memory

    def keep_if_room(self, topic: str) -> bool:
        """Keep ``topic`` as :meth:`keep` does; return False if it is new and there is no room."""
        if topic in self._memories or len(self._memories) < self._most or self._idle:
            self.keep(topic)
            return True
        return False

    def add(self, publication: Publication) -> None:
        """Remember a message that has just arrived, and forget others until the bounds hold.

        Its topic must be kept already. If that is idle, it may itself be forgotten.
        """
        memory = self._memories[publication.envelope.topic]
        before = memory.weight
        memory.add(publication)
        self.memory_bytes += memory.weight - before
        self._make_room()
        is_kept = publication.envelope.topic in self._memories
        while is_kept and self.memory_bytes > self._most_bytes:
            before = memory.weight
            if not memory.trim():
                break
            self.memory_bytes -= before - memory.weight

    def add_weight(self, topic: str, by: int) -> None:
        """Count ``by`` more bytes of the memory of ``topic``, needed now: forget other topics."""
        self.memory_bytes += by
        self._make_room(spare=topic)

    def subscribe(self, topic: str, subscriber: Subscriber) -> TopicSubscription:
        """Add ``subscriber`` to the audience of ``topic``, which is a topic of topics.toml."""
        self.keep(topic)
        self._idle.pop(topic, None)
        subscription = TopicSubscription(topic, subscriber)
        self._subscriptions.setdefault(topic, {})[subscription] = None
        self._audiences.pop(topic, None)
        return subscription

    def unsubscribe(self, subscription: TopicSubscription) -> None:
        """End a subscription. Idempotent."""
        if not subscription.active:
            return
        subscription.active = False
        topic = subscription.topic
        del self._subscriptions[topic][subscription]
        self._audiences.pop(topic, None)
        if not self._subscriptions[topic]:
            del self._subscriptions[topic]
            self._idle[topic] = None
            self._make_room()

    def audience(self, topic: str) -> Audience:
        """Return the subscriptions to ``topic``: the same object until they change."""
        if topic not in self._subscriptions:
            return ()
        if topic not in self._audiences:
            groups: dict[str, list[TopicSubscription]] = {}
            for subscription in self._subscriptions[topic]:
                groups.setdefault(subscription.subscriber.transport, []).append(subscription)
            self._audiences[topic] = tuple((name, tuple(group)) for name, group in groups.items())
        return self._audiences[topic]

    def _make_room(self, spare: str | None = None) -> None:
        """Forget idle topics, least recently used first, until the bounds hold."""
        while self._idle and (
            len(self._memories) > self._most or self.memory_bytes > self._most_bytes
        ):
            topic = next(iter(self._idle))
            if topic == spare:
                return
            del self._idle[topic]
            self.memory_bytes -= self._memories.pop(topic).weight
