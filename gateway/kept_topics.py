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
from collections.abc import Callable
from typing import Protocol

from gateway.frames import Variant
from gateway.memory import TopicMemory
from gateway.publication import Publication
from newsfabric.closing import CloseReason
from newsfabric.topics import TopicPolicy


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


class Subscription:
    """That ``subscriber`` gets ``topic``. Not active any more once it was taken back."""

    __slots__ = ("active", "subscriber", "topic")

    def __init__(self, topic: str, subscriber: Subscriber) -> None:
        self.topic = topic
        self.subscriber = subscriber
        self.active = True


# A snapshot by transport. Skip subscriptions that aren't active when their turn comes.
Audience = tuple[tuple[str, tuple[Subscription, ...]], ...]


class KeptTopic:
    """What is kept of one topic. ``warm``: the store was asked for what came before."""

    __slots__ = ("_audience", "_subscriptions", "memory", "warm")

    def __init__(self, memory: TopicMemory) -> None:
        self.memory = memory
        self.warm = False
        self._subscriptions: dict[Subscription, None] = {}
        self._audience: Audience | None = ()

    @property
    def is_idle(self) -> bool:
        """Whether nobody is subscribed."""
        return not self._subscriptions

    def add(self, subscription: Subscription) -> None:
        """It is in the audience from now on."""
        self._subscriptions[subscription] = None
        self._audience = None

    def remove(self, subscription: Subscription) -> None:
        """It isn't any more."""
        del self._subscriptions[subscription]
        self._audience = None

    @property
    def audience(self) -> Audience:
        """Who is subscribed now."""
        if self._audience is None:
            groups: dict[str, list[Subscription]] = {}
            for subscription in self._subscriptions:
                groups.setdefault(subscription.subscriber.transport, []).append(subscription)
            self._audience = tuple((name, tuple(group)) for name, group in groups.items())
        return self._audience


class KeptTopics:
    """At most ``most`` topics, whose memories weigh ``most_bytes`` in all.

    ``policy_of`` knows topics.toml, and ``memory_of`` makes a memory for a policy.
    """

    def __init__(
        self,
        most: int,
        most_bytes: int,
        policy_of: Callable[[str], TopicPolicy | None],
        memory_of: Callable[[TopicPolicy], TopicMemory],
    ) -> None:
        self.memory_bytes = 0
        self._most = most
        self._most_bytes = most_bytes
        self._policy_of = policy_of
        self._memory_of = memory_of
        self._topics: dict[str, KeptTopic] = {}
        # Least recently used first.
        self._idle: collections.OrderedDict[str, None] = collections.OrderedDict()

    def __len__(self) -> int:
        return len(self._topics)

    def find(self, topic: str) -> KeptTopic | None:
        """What is kept of ``topic``; None if nothing is."""
        return self._topics.get(topic)

    def keep(self, topic: str) -> KeptTopic:
        """What is kept of ``topic``, from now on at the latest; ValueError if there is none such.

        An idle one counts as used now.
        """
        known = self._topics.get(topic) or self._create(topic)
        if topic in self._idle:
            self._idle.move_to_end(topic)
        return known

    def keep_if_room(self, topic: str) -> KeptTopic | None:
        """As :meth:`keep`; None if nothing is kept of it, and there is no room for one more."""
        if topic in self._topics or len(self._topics) < self._most or self._idle:
            return self.keep(topic)
        return None

    def subscribe(self, topic: str, subscriber: Subscriber) -> Subscription:
        """From now on ``subscriber`` is in the audience of ``topic``."""
        subscription = Subscription(topic, subscriber)
        self.keep(topic).add(subscription)
        self._idle.pop(topic, None)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Take a subscription back; harmless when it was before."""
        if not subscription.active:
            return
        subscription.active = False
        known = self._topics[subscription.topic]
        known.remove(subscription)
        if known.is_idle:
            self._idle[subscription.topic] = None
            self._make_room()

    def add(self, publication: Publication, known: KeptTopic) -> None:
        """A message of ``known`` has just arrived: remember it, and forget until the bounds hold.

        If nobody is subscribed to it, it may be this topic itself that is forgotten.
        """
        before = known.memory.weight
        known.memory.add(publication)
        self.memory_bytes += known.memory.weight - before
        self._make_room()
        is_kept = self._topics.get(publication.envelope.topic) is known
        while is_kept and self.memory_bytes > self._most_bytes:
            before = known.memory.weight
            if not known.memory.trim():
                break
            self.memory_bytes -= before - known.memory.weight

    def grown(self, topic: str, by: int) -> None:
        """The memory of ``topic``, which somebody needs now, weighs so much more: forget others."""
        self.memory_bytes += by
        self._make_room(spare=topic)

    def _create(self, topic: str) -> KeptTopic:
        policy = self._policy_of(topic)
        if policy is None:
            raise ValueError(f"no such topic: {topic!r}")
        known = self._topics[topic] = KeptTopic(self._memory_of(policy))
        self._idle[topic] = None
        self._make_room(spare=topic)
        return known

    def _make_room(self, spare: str | None = None) -> None:
        """Forget idle topics, least recently used first, until the bounds hold."""
        while self._idle and (
            len(self._topics) > self._most or self.memory_bytes > self._most_bytes
        ):
            topic = next(iter(self._idle))
            if topic == spare:
                return
            del self._idle[topic]
            self.memory_bytes -= self._topics.pop(topic).memory.weight
