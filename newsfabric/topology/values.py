"""The parts of the topology: exchanges, queues with bounds, bindings, shovels, brokers."""

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
# AMQP 0-9-1 section 3.1.3.1: the default exchange sends a message to the queue that the key names.
# No user can bind to it.
TO_QUEUES: Final = ""
GATEWAY_QUEUE: Final = "gateway"
UPSTREAM_QUEUE: Final = "shovel.upstream"

# A shovel's URI for its own node: no socket, no login, no TLS.
DIRECT: Final = "amqp://"

MIB: Final = 1 << 20

Role = Literal["client", "core", "proxy"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The bounds of a queue. At ``max_length`` or ``max_bytes`` its head is dropped.

    The head is the oldest message: the oldest news is worth least, and a dropped message is found
    by its log's numbers or by a missing receipt. ``message_ttl_ms`` drops a message that waited
    that long; ``expires_ms`` deletes the queue after that time without a consumer. None: no such
    bound.
    """

    max_length: int
    max_bytes: int
    message_ttl_ms: int | None = None
    expires_ms: int | None = None

    def arguments(self) -> dict[str, Any]:
        """Return the ``x-arguments`` of queue.declare."""
        arguments: dict[str, Any] = {
            # Explicit, because a virtual host of RabbitMQ 4 may have another default.
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
        """Return the ``definition`` of an operator policy, which can bound only size and time."""
        arguments = self.arguments().items()
        return {key.removeprefix("x-"): value for key, value in arguments if isinstance(value, int)}


ROUTER_BOUNDS: Final = Bounds(
    # 20 s of a region's whole input at one router's 5,000 a second.
    max_length=100_000,
    # Half of the smallest broker's memory, so that 100,000 large messages can't stop publishers.
    max_bytes=256 * MIB,
    # A copy that waited longer could be one that readers have already: times.py adds up all waits
    # of a copy on its path.
    message_ttl_ms=150_000,
)
REJECTED_BOUNDS: Final = Bounds(
    # Evidence for a person, not a queue that must be emptied: the newest 10,000 of the last hour.
    max_length=10_000,
    max_bytes=64 * MIB,
    message_ttl_ms=3_600_000,
)
REGION_BOUNDS: Final = Bounds(
    max_length=100_000,
    max_bytes=256 * MIB,
    # Twice on a copy's path; see above.
    message_ttl_ms=150_000,
    # After a longer loss the region's gateways read the messages from the store, by number.
    expires_ms=1_800_000,
)
PROXY_BOUNDS: Final = Bounds(
    max_length=100_000,
    max_bytes=256 * MIB,
    # After this time a publisher has sent again; for the sum with all later queues, see above.
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
    # The same as the gateway's own queue.
    max_length=100_000,
    max_bytes=128 * MIB,
    # After a longer loss a box reads the messages from the store, by number.
    message_ttl_ms=60_000,
    # A box that died leaves no queue; a restart of its broker takes some ten seconds.
    expires_ms=120_000,
)
GATEWAY_BOUNDS: Final = Bounds(
    max_length=100_000,
    max_bytes=128 * MIB,
    # After a longer loss a gateway reads the messages from the store, by number.
    message_ttl_ms=60_000,
)
MAILBOX_BOUNDS: Final = Bounds(
    # A reader without a reply marks again; user marks that waited ten minutes help no one.
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
# Queues that publishers (and boxes on a core) declare, with any arguments. Receipts are 500 bytes
# and read at once; a publisher that has waited a minute has sent again.
OTHERS_BOUNDS: Final = Bounds(
    max_length=10_000,
    max_bytes=8 * MIB,
    message_ttl_ms=60_000,
    expires_ms=1_800_000,
)
# All queues of a broker. RabbitMQ 3.10 has no such limit per user.
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
    """A binding: ``queue`` gets the messages of ``exchange`` that match ``key``."""

    exchange: str
    queue: str
    key: str = ALL


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ShovelLink:
    """A dynamic shovel: from a queue elsewhere to an exchange here (``upstream``: here to there).

    ``source`` and ``destinations`` are AMQP URLs without credentials or :data:`DIRECT`; the shovel
    picks any of several each time it connects. Routing keys stay unchanged. ``confirmed``: the
    source keeps a message until the destination has it.
    """

    name: str
    source: str
    queue: Queue
    exchange: str
    destinations: tuple[str, ...] = (DIRECT,)
    confirmed: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class BrokerObjects:
    """The objects of one broker."""

    exchanges: tuple[Exchange, ...] = ()
    queues: tuple[Queue, ...] = ()
    bindings: tuple[Binding, ...] = ()
    shovels: tuple[ShovelLink, ...] = ()

    def __add__(self, other: BrokerObjects) -> BrokerObjects:
        return BrokerObjects(
            _union(self.exchanges, other.exchanges),
            _union(self.queues, other.queues),
            _union(self.bindings, other.bindings),
            _union(self.shovels, other.shovels),
        )


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Cluster:
    """A region's client or core brokers, or a proxy's, where ``region`` is the proxy's name.

    The brokers stand side by side, without knowledge of each other: no cluster to RabbitMQ.
    """

    region: str
    role: Role

    def __str__(self) -> str:
        return f"{self.region}/{self.role}"


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Broker:
    """A broker of a cluster; ``name`` is that of its :class:`~newsfabric.settings.Node`."""

    cluster: Cluster
    name: str

    def __str__(self) -> str:
        return self.name


def _union(first: tuple[Any, ...], second: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(first + second))
