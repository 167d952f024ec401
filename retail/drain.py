"""The drain of a box: a state machine as a table. Pure.

The feed stays until the readers are gone, so that no reader misses a message while moving to
another box. The queues on the core are deleted last. If they can't be (the core is away, the box is
killed), their ``x-expires`` deletes them.

==========  ========  ==========================================================
from        event     to
==========  ========  ==========================================================
serving     stop      ordering: reports have ``draining``, the gateway is sent the order
ordering    accepted  emptying: readers are leaving
ordering    gone      cleaning: the gateway is away; readers may be left
emptying    empty     cleaning
emptying    gone      cleaning: the gateway has exited
ordering, … overdue   cleaning all the same; from cleaning: done
cleaning    cleaned   done: shovels and the queues on the core are deleted
==========  ========  ==========================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

State = Literal["serving", "ordering", "emptying", "cleaning", "done"]
Event = Literal["stop", "accepted", "gone", "empty", "cleaned", "overdue"]

TRANSITIONS: Final[Mapping[tuple[State, Event], State]] = {
    ("serving", "stop"): "ordering",
    ("ordering", "accepted"): "emptying",
    ("ordering", "gone"): "cleaning",
    ("ordering", "overdue"): "cleaning",
    ("emptying", "empty"): "cleaning",
    ("emptying", "gone"): "cleaning",
    ("emptying", "overdue"): "cleaning",
    ("cleaning", "cleaned"): "done",
    ("cleaning", "overdue"): "done",
}

# A gateway that fails to reply so often in a row is gone.
MISSES: Final = 3


class Drain:
    """The state of a box's drain."""

    def __init__(self) -> None:
        self.state: State = "serving"
        # Whether readers may be left. False once the gateway has reported none, or has exited after
        # it accepted the order to drain.
        self.left = True
        self._misses = 0

    @property
    def draining(self) -> bool:
        """True once the box has begun to drain."""
        return self.state != "serving"

    def on(self, event: Event) -> State:
        """Follow the table; ValueError, and no change, if it has no such line."""
        after = TRANSITIONS.get((self.state, event))
        if after is None:
            raise ValueError(f"a box that is {self.state} can't take {event!r}")
        if (self.state, event) in (("emptying", "empty"), ("emptying", "gone")):
            self.left = False
        self.state = after
        return after

    def note_drain_reply(self, accepted: bool) -> State:
        """Note whether the gateway accepted ``POST /drain``; False if it didn't reply."""
        if not accepted:
            return self._missed()
        self._misses = 0
        return self.on("accepted")

    def note_connections(self, connections: int | None) -> State:
        """Note the gateway's number of connections; None: it didn't reply."""
        if connections is None:
            return self._missed()
        self._misses = 0
        return self.on("empty") if connections == 0 else self.state

    def _missed(self) -> State:
        self._misses += 1
        return self.on("gone") if self._misses >= MISSES else self.state
