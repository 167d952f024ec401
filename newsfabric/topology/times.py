"""Times that depend on each other, such as the wait of a copy and the memory of identities. Pure.

One table, :data:`TIMES`, for all services: each time that follows from others is derived here, and
times that don't fit together are refused at import (:meth:`Times.__post_init__`).

Example. The longest path of a copy has six queues, which keep it for 20, 150, 150, 150, 60 and 60
s; a router holds it for 150 s, and 10 s pass between these. So two copies of one message get their
numbers up to 750 s apart. Identities are remembered for 900 s, and clocks are wrong by up to 30 s:
a copy of a message older than 120 s may be forgotten. If routers held messages for 200 s, copies
would be 800 s apart, and messages older than 70 s would have to be looked up.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Final

from newsfabric.topology.values import (
    BOX_BOUNDS,
    GATEWAY_BOUNDS,
    PROXY_BOUNDS,
    REGION_BOUNDS,
    ROUTER_BOUNDS,
    Bounds,
)

# The queues of the longest path, in its order: at a proxy, to a core, to a router, to another
# region, to a box, to its gateway. The region's bounds count twice.
LONGEST_WAY: Final = (
    PROXY_BOUNDS,
    REGION_BOUNDS,
    ROUTER_BOUNDS,
    REGION_BOUNDS,
    BOX_BOUNDS,
    GATEWAY_BOUNDS,
)


# Without slots: derived times are computed once.
@dataclasses.dataclass(frozen=True, kw_only=True)
class Times:
    """Times that depend on each other, in ms; ``waiting_speed`` is a fraction.

    ``queues``: the queues of the longest path; each must have a time to live.
    ``between_ms``: the time of a copy outside queues, on wires and in processes.
    ``hold_ms``: the longest time for which a router may hold a message after it arrived.
    ``identity_ms``: the time for which routers and gateways remember a message's identity.
    ``clock_ms``: the greatest difference between the clock of a router that routes and its
    store's, and the greatest step that may stay unnoticed. ``waiting_speed``: the speed of a
    router's log clock while it waits for the wall clock.

    Raises :class:`ValueError` for times of which one doesn't leave room for the others.
    """

    queues: tuple[Bounds, ...] = LONGEST_WAY
    between_ms: int = 10_000
    hold_ms: int = 150_000
    identity_ms: int = 900_000
    clock_ms: int = 30_000
    waiting_speed: float = 0.9

    def __post_init__(self) -> None:
        if not all(bounds.message_ttl_ms for bounds in self.queues):
            raise ValueError("a queue on a copy's way keeps messages for ever")
        if self.late_ms <= 0:
            raise ValueError(
                f"copies of a message get their numbers up to {self.apart_ms} ms apart, by clocks "
                f"{self.clock_ms} ms from right: identities must be remembered for longer than "
                f"{self.identity_ms} ms (S4)"
            )
        if self.late_ms >= self.hold_ms:
            raise ValueError(
                f"a message that a router held for {self.hold_ms} ms must be late, which begins at "
                f"{self.late_ms} ms: remember identities for less than {self.identity_ms} ms"
            )
        if self.late_ms / self.waiting_speed + self.apart_ms > self.identity_ms:
            raise ValueError(
                f"by the time of a router that waits for its clock (speed {self.waiting_speed}), a "
                f"message that isn't late yet may be older than identities are remembered"
            )

    @functools.cached_property
    def queues_ms(self) -> int:
        """The longest time that a message may wait in queues and between them."""
        return sum(bounds.message_ttl_ms or 0 for bounds in self.queues) + self.between_ms

    @functools.cached_property
    def apart_ms(self) -> int:
        """The longest time between the numbering of copies of one message (S4)."""
        return self.queues_ms + self.hold_ms

    @functools.cached_property
    def margin_ms(self) -> int:
        """The greatest difference of the times in two copies: one router ahead, and one behind."""
        return self.apart_ms + 2 * self.clock_ms

    @functools.cached_property
    def late_ms(self) -> int:
        """The age at which a message becomes late: another copy may be forgotten, as that may be
        older by :attr:`apart_ms`, and its time may be ahead of all known ones by ``clock_ms``."""
        return self.identity_ms - self.apart_ms - self.clock_ms


TIMES: Final = Times()
