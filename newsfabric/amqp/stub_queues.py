"""The state of a :class:`newsfabric.amqp.stub.StubBroker`: queues, and exchanges with bindings.

No I/O and no clock. Consumers, and the moments when messages move, are the broker's business.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from newsfabric.amqp.message import Message
from newsfabric.errors import LinkError
from newsfabric.topics import matches

# Numbers of queue names, unique over all brokers: no two brokers generate the same name.
NAMES: Final = itertools.count(1)

_MATCH: Final[dict[str, Callable[[str, str], bool]]] = {
    "topic": matches,
    "direct": str.__eq__,
    "fanout": lambda _pattern, _key: True,
}


@dataclasses.dataclass(slots=True)
class Stored:
    """A message in a queue; ``seq`` is its place there, kept when it is requeued."""

    seq: int
    message: Message
    expires: float | None
    redelivered: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class QueueOptions:
    """Options of a queue's declaration; a second declaration with different ones is refused."""

    durable: bool = True
    exclusive: bool = False
    auto_delete: bool = False
    arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class StubQueue:
    """A classic queue. ``owner`` is the link that has exclusive use of it, if any."""

    def __init__(self, options: QueueOptions, owner: object | None) -> None:
        self.options = options
        self.owner = owner
        self._next = 0
        self._ready: collections.deque[Stored] = collections.deque()

    def push(self, message: Message, now: float) -> None:
        """Append ``message``; the oldest messages of a full queue are dropped."""
        self._ready.append(Stored(self._next, message, self._expiry(message, now)))
        self._next += 1
        self._drop_head()

    def _expiry(self, message: Message, now: float) -> float | None:
        limits = [
            int(ms)
            for ms in (
                self.options.arguments.get("x-message-ttl"),
                message.properties.expiration,
            )
            if ms is not None
        ]
        return now + min(limits) / 1000 if limits else None

    def _drop_head(self) -> None:
        bound = self.options.arguments.get("x-max-length")
        while bound is not None and len(self._ready) > bound:
            self._ready.popleft()

    def pop(self, now: float) -> Stored | None:
        """Return the oldest message that hasn't expired, if there is one."""
        while self._ready:
            stored = self._ready.popleft()
            if stored.expires is None or now < stored.expires:
                return stored
        return None

    def put_back(self, returned: Iterable[Stored]) -> None:
        """Requeue deliveries, each in its old place."""
        for stored in returned:
            stored.redelivered = True
            self._ready.append(stored)
        self._ready = collections.deque(sorted(self._ready, key=lambda stored: stored.seq))
        self._drop_head()

    def depth(self, now: float) -> int:
        """Return the number of messages that haven't expired."""
        return sum(1 for stored in self._ready if stored.expires is None or now < stored.expires)


class StubExchanges:
    """The exchanges, and the queues bound to each."""

    def __init__(self) -> None:
        self._kinds: dict[str, str] = {}
        self._bindings: list[tuple[str, str, str]] = []

    def declare(self, name: str, kind: str) -> None:
        """Declare an exchange: topic, direct or fanout; LinkError if it has another type."""
        if kind not in _MATCH:
            raise LinkError(f"503 COMMAND_INVALID - unknown exchange type '{kind}'")
        if self._kinds.setdefault(name, kind) != kind:
            raise LinkError(f"406 PRECONDITION_FAILED - exchange '{name}' has another type")

    def delete(self, name: str) -> None:
        """Delete an exchange with its bindings, if there is one."""
        self._kinds.pop(name, None)
        self._bindings = [binding for binding in self._bindings if binding[0] != name]

    def bind(self, queue: str, exchange: str, key: str) -> None:
        """Bind a queue; LinkError if there is no such exchange."""
        if exchange not in self._kinds:
            raise LinkError(f"404 NOT_FOUND - no exchange '{exchange}'")
        if (exchange, queue, key) not in self._bindings:
            self._bindings.append((exchange, queue, key))

    def unbind(self, queue: str) -> None:
        """Forget all bindings of ``queue``."""
        self._bindings = [binding for binding in self._bindings if binding[1] != queue]

    def route(self, exchange: str, key: str) -> list[str]:
        """Return the names of the queues for a message; LinkError if there is no such exchange."""
        if exchange not in self._kinds:
            raise LinkError(f"404 NOT_FOUND - no exchange '{exchange}'")
        match = _MATCH[self._kinds[exchange]]
        found = [q for e, q, pattern in self._bindings if e == exchange and match(pattern, key)]
        return list(dict.fromkeys(found))
