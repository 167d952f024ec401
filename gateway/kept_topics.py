"""The topics that a gateway remembers, within bounds: who is subscribed, and recent messages. Pure.

A topic that nobody is subscribed to is *idle*. At a bound the idle ones are forgotten, the least
recently used first; when there are none, nothing is kept of new topics, and a topic that grows
loses its oldest messages.

Example, with room for two topics: "a" has a subscriber, "b" none. A message on "c" makes the third:
"b" is forgotten. Another one on "d" forgets "c". If somebody subscribes to "d" before
that, a message on "e" is published, and nothing of it is kept.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from typing import Protocol

from gateway.frames import Variant
from gateway.memory import TopicMemory
from gateway.publication import Publication
from newsfabric.closing import CloseReason


class Subscriber(Protocol):
    """Someone who can be given publications."""

    @property
    def transport(self) -> str:
        """Its transport's name; the audience is grouped by it."""

    @property
    def variant(self) -> Variant:
        """How its frames are dressed; the same for all of one transport."""

    def deliver(self, frame: bytes, publication: Publication) -> bool:
        """Take one frame of ``publication``; whether the socket did at once. Never blocks."""

    def close(self, reason: CloseReason) -> None:
        """End the connection; it unsubscribes."""


@dataclasses.dataclass(slots=True, eq=False)
class Subscription:
    """That ``subscriber`` gets ``topic``. Not active any more once it was taken back."""

    topic: str
    subscriber: Subscriber
    active: bool = True


# A snapshot by transport. Skip subscriptions that aren't active when their turn comes.
Audience = tuple[tuple[str, tuple[Subscription, ...]], ...]


class KeptTopics:
    """At most ``most`` topics, whose memories weigh ``most_bytes`` in all.

    ``new_memory`` makes a topic's; it raises ValueError if there is no such topic.
    """

    def __init__(
        self, most: int, most_bytes: int, new_memory: Callable[[str], TopicMemory]
    ) -> None:
        #: What all memories weigh.
        self.memory_bytes = 0
        self._most = most
        self._most_bytes = most_bytes
        self._new_memory = new_memory
        self._memories: dict[str, TopicMemory] = {}
        # Of those that aren't idle.
        self._subscriptions: dict[str, dict[Subscription, None]] = {}
        # As they were when they were asked for, and are still.
        self._audiences: dict[str, Audience] = {}
        # Least recently used first.
        self._idle: collections.OrderedDict[str, None] = collections.OrderedDict()

    def __len__(self) -> int:
        return len(self._memories)

    def find(self, topic: str) -> TopicMemory | None:
        """What is remembered of ``topic``; None if nothing is."""
        return self._memories.get(topic)

    def keep(self, topic: str) -> TopicMemory:
        """The memory of ``topic``, from now on at the latest. An idle one counts as used now."""
        memory = self._memories.get(topic)
        if memory is None:
            memory = self._memories[topic] = self._new_memory(topic)
            self._idle[topic] = None
            self._make_room(spare=topic)
        elif topic in self._idle:
            self._idle.move_to_end(topic)
        return memory

    def keep_if_room(self, topic: str) -> bool:
        """As :meth:`keep`; False if nothing is kept of it, and there is no room for one more."""
        if topic in self._memories or len(self._memories) < self._most or self._idle:
            self.keep(topic)
            return True
        return False

    def add(self, publication: Publication) -> None:
        """A message has just arrived: remember it, and forget until the bounds hold.

        Its topic is kept. If nobody is subscribed to it, it may be this one that is forgotten.
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

    def grown(self, topic: str, by: int) -> None:
        """The memory of ``topic``, which somebody needs now, weighs so much more: forget others."""
        self.memory_bytes += by
        self._make_room(spare=topic)

    def subscribe(self, topic: str, subscriber: Subscriber) -> Subscription:
        """From now on ``subscriber`` is in the audience of ``topic`` (one of topics.toml)."""
        self.keep(topic)
        self._idle.pop(topic, None)
        subscription = Subscription(topic, subscriber)
        self._subscriptions.setdefault(topic, {})[subscription] = None
        self._audiences.pop(topic, None)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Take a subscription back; harmless when it was before."""
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
        """Who is subscribed to ``topic``: the same object until that changes."""
        if topic not in self._subscriptions:
            return ()
        if topic not in self._audiences:
            groups: dict[str, list[Subscription]] = {}
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
