"""How a box leaves: a state machine as a table. Pure.

The feed stays until the readers are gone, so that nobody misses a line while
moving to another box. What the box made on the core is taken away last; if it can't be
(the core is away, the box is killed), the queues' ``x-expires`` does it.

==========  ========  ==========================================================
from        event     to
==========  ========  ==========================================================
serving     stop      telling: reports say ``draining``, the gateway is told
telling     told      emptying: readers are leaving
telling     gone      cleaning: no gateway, no readers
emptying    empty     cleaning
emptying    gone      cleaning: the gateway has exited
telling, …  overdue   the next step all the same
cleaning    cleaned   done: shovels and the queues on the core are deleted
==========  ========  ==========================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

State = Literal["serving", "telling", "emptying", "cleaning", "done"]
Event = Literal["stop", "told", "gone", "empty", "cleaned", "overdue"]

TRANSITIONS: Final[Mapping[tuple[State, Event], State]] = {
    ("serving", "stop"): "telling",
    ("telling", "told"): "emptying",
    ("telling", "gone"): "cleaning",
    ("telling", "overdue"): "cleaning",
    ("emptying", "empty"): "cleaning",
    ("emptying", "gone"): "cleaning",
    ("emptying", "overdue"): "cleaning",
    ("cleaning", "cleaned"): "done",
    ("cleaning", "overdue"): "done",
}

# A gateway that doesn't answer so often, one after the other, is gone.
MISSES: Final = 3


class Drain:
    """Where a box is on its way out."""

    def __init__(self) -> None:
        self.state: State = "serving"
        # Whether there may be readers left: until the gateway says that there is none, or has gone
        # after it was told to let them go.
        self.left = True
        self._misses = 0

    @property
    def draining(self) -> bool:
        """Whether the box has begun to leave."""
        return self.state != "serving"

    def on(self, event: Event) -> State:
        """Follow the table; ValueError, and no change, where it has no such line."""
        after = TRANSITIONS.get((self.state, event))
        if after is None:
            raise ValueError(f"a box that is {self.state} can't take {event!r}")
        if (self.state, event) in (("emptying", "empty"), ("emptying", "gone")):
            self.left = False
        self.state = after
        return after

    def told(self, accepted: bool) -> State:
        """The gateway took ``POST /drain``, or didn't answer."""
        if not accepted:
            return self._missed()
        self._misses = 0
        return self.on("told")

    def counted(self, connections: int | None) -> State:
        """The gateway has so many connections left; None: it didn't answer."""
        if connections is None:
            return self._missed()
        self._misses = 0
        return self.on("empty") if connections == 0 else self.state

    def _missed(self) -> State:
        self._misses += 1
        return self.on("gone") if self._misses >= MISSES else self.state
