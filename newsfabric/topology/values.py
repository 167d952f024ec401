"""What the topology is made of: exchanges, queues with bounds, bindings, shovels, brokers."""

from __future__ import annotations

import dataclasses
from typing import Any, Final, Literal

VHOST: Final = "/"
ALL: Final = "#"

PUBLISH: Final = "publish"
RECEIPTS: Final = "receipts"
INTAKE: Final = "intake"
POSTOFFICE: Final = "postoffice"
OUTBOUND: Final = "outbound"
UPSTREAM: Final = "upstream"
ORDERS: Final = "orders"
REJECTED: Final = "rejected"
# AMQP 0-9-1 section 3.1.3.1: what is published to it goes to the queue that the key names. Nobody
# can bind to it.
TO_QUEUES: Final = ""
GATEWAY_QUEUE: Final = "gateway"
UPSTREAM_QUEUE: Final = "shovel.upstream"

# A shovel's URI for the very node it runs on: no socket, no login, no TLS.
DIRECT: Final = "amqp://"

MIB: Final = 1 << 20

Role = Literal["client", "core", "proxy"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much a queue may hold, and how long. At ``max_length`` or ``max_bytes`` the head goes.

    The head is the oldest: news that waited longest is worth least, and what was
    dropped is found again by its stream's numbers or by a missing receipt.
    ``message_ttl_ms`` drops a message that waited that long; ``expires_ms`` deletes the queue
    after it had no consumer for that long. None: no such bound.
    """

    max_length: int
    max_bytes: int
    message_ttl_ms: int | None = None
    expires_ms: int | None = None

    def arguments(self) -> dict[str, Any]:
        """The ``x-arguments`` of queue.declare."""
        arguments: dict[str, Any] = {
            # Said aloud, because a virtual host of RabbitMQ 4 may have another default.
            "x-queue-type": "classic",
            "x-max-length": self.max_length,
            "x-max-length-bytes": self.max_bytes,
            "x-overflow": "drop-head",
        }
        if self.message_ttl_ms is not None:
            arguments["x-message-ttl"] = self.message_ttl_ms
        if self.expires_ms is not None:
            arguments["x-expires"] = self.expires_ms
        return arguments

    def policy(self) -> dict[str, int]:
        """The ``definition`` of an operator policy, which can say how much and how long only."""
        said = self.arguments().items()
        return {key.removeprefix("x-"): value for key, value in said if isinstance(value, int)}


ROUTER_BOUNDS: Final = Bounds(
    # 20 s of a region's whole input at one router's 5,000 a second.
    max_length=100_000,
    # Half of the smallest broker's memory, so that 100,000 large messages can't stop publishers.
    max_bytes=256 * MIB,
    # A copy that was held back for longer could be one that readers have had: times.py adds up all
    # that a copy can wait on its way.
    message_ttl_ms=150_000,
)
REJECTED_BOUNDS: Final = Bounds(
    # Evidence for a person, not a queue that anyone must empty: the newest 10,000 of the last hour.
    max_length=10_000,
    max_bytes=64 * MIB,
    message_ttl_ms=3_600_000,
)
REGION_BOUNDS: Final = Bounds(
    max_length=100_000,
    max_bytes=256 * MIB,
    # Twice on a copy's way; see above.
    message_ttl_ms=150_000,
    # What a region missed for longer its gateways read from the store, by number.
    expires_ms=1_800_000,
)
PROXY_BOUNDS: Final = Bounds(
    max_length=100_000,
    max_bytes=256 * MIB,
    # What a publisher waits for before it has sent again; with all queues behind it, see above.
    message_ttl_ms=20_000,
    expires_ms=1_800_000,
)
RECEIPT_BOUNDS: Final = Bounds(
    max_length=100_000,
    max_bytes=64 * MIB,
    # A publisher that has waited a minute has sent again.
    message_ttl_ms=60_000,
    expires_ms=1_800_000,
)
BOX_BOUNDS: Final = Bounds(
    # As long as the gateway's own queue can use it.
    max_length=100_000,
    max_bytes=128 * MIB,
    # What a box missed for longer than a minute it reads from the store, by number.
    message_ttl_ms=60_000,
    # A box that died leaves nothing behind; a restart of its broker takes some ten seconds.
    expires_ms=120_000,
)
GATEWAY_BOUNDS: Final = Bounds(
    max_length=100_000,
    max_bytes=128 * MIB,
    # What a gateway missed for longer than a minute it reads from the store, by number.
    message_ttl_ms=60_000,
)
MAILBOX_BOUNDS: Final = Bounds(
    # A reader who got no answer marks again; what others did ten minutes ago helps nobody now.
    max_length=100_000,
    max_bytes=64 * MIB,
    message_ttl_ms=600_000,
)
UPSTREAM_BOUNDS: Final = Bounds(
    # Load reports (one a second) and the actions of a box's readers for a minute.
    max_length=50_000,
    max_bytes=32 * MIB,
    message_ttl_ms=60_000,
)
# Queues of publishers' (and of boxes' on a core) making, whatever they say when they declare one.
# Receipts are 500 bytes and read at once; a publisher that has waited a minute has sent again.
OTHERS_BOUNDS: Final = Bounds(
    max_length=10_000,
    max_bytes=8 * MIB,
    message_ttl_ms=60_000,
    expires_ms=1_800_000,
)
# All of a broker's. RabbitMQ 3.10 can't say it of one user's.
MAX_QUEUES: Final = 10_000


@dataclasses.dataclass(frozen=True, slots=True)
class Exchange:
    """A durable exchange."""

    name: str
    type: Literal["topic", "direct"] = "topic"


@dataclasses.dataclass(frozen=True, slots=True)
class Queue:
    """A durable classic queue."""

    name: str
    bounds: Bounds


@dataclasses.dataclass(frozen=True, slots=True)
class Binding:
    """``queue`` gets what matches ``key`` from ``exchange``."""

    exchange: str
    queue: str
    key: str = ALL


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ShovelLink:
    """A dynamic shovel: from a queue elsewhere to an exchange here (``upstream``: here to there).

    ``source`` and ``destinations`` are AMQP URLs without credentials or :data:`DIRECT`; the shovel
    picks any of several each time it connects. Routing keys stay as they are. ``confirmed``: a
    message is at its source until the destination has it.
    """

    name: str
    source: str
    queue: Queue
    exchange: str
    destinations: tuple[str, ...] = (DIRECT,)
    confirmed: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """What one broker holds."""

    exchanges: tuple[Exchange, ...] = ()
    queues: tuple[Queue, ...] = ()
    bindings: tuple[Binding, ...] = ()
    shovels: tuple[ShovelLink, ...] = ()

    def __add__(self, other: Part) -> Part:
        return Part(
            _union(self.exchanges, other.exchanges),
            _union(self.queues, other.queues),
            _union(self.bindings, other.bindings),
            _union(self.shovels, other.shovels),
        )


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Cluster:
    """A region's client or core brokers, or a proxy's, where ``region`` is the proxy's name.

    They stand side by side: none of them knows the others, so they are no cluster to RabbitMQ.
    """

    region: str
    role: Role

    def __str__(self) -> str:
        return f"{self.region}/{self.role}"


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Broker:
    """One broker of a cluster; ``name`` is that of its :class:`~newsfabric.settings.Node`."""

    cluster: Cluster
    name: str

    def __str__(self) -> str:
        return self.name


def _union(first: tuple[Any, ...], second: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(first + second))
