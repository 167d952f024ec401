"""What readers are sending us over HTTP: bounded for each of them, and all together. Pure.

sockjs-client puts everything that a page said while the last request was on its way into one body,
so one may be as large as all verbs that a reader may say at once. Many of those are not kept: who
comes when there is no room any more is told to try again.

The decision that one would question: who that is. Not who comes last, or sixteen strangers who send
4 MiB each, a byte now and then, would keep everybody else from saying anything. The largest goes.
"""

from __future__ import annotations

import enum


class BodyState(enum.Enum):
    """Whether a body is taken."""

    TAKEN = "taken"
    TOO_LARGE = "too large"
    NO_ROOM = "no room"


class Bodies:
    """All that are on their way to one process: at most ``most`` bytes together."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = 0
        # Those that hold something.
        self._bodies: set[Body] = set()

    def admit(self, body: Body, size: int) -> bool:
        """Hold ``size`` bytes more for ``body``, if that leaves it smaller than what must go."""
        after = len(body.data) + size
        while self.held + size > self.most:
            largest = max(self._bodies, key=lambda one: len(one.data), default=body)
            if len(largest.data) <= after:
                return False
            largest.close(BodyState.NO_ROOM)
        self.held += size
        self._bodies.add(body)
        return True

    def release(self, body: Body) -> None:
        """What ``body`` has isn't held any more. Idempotent if it has nothing then."""
        self.held -= len(body.data)
        self._bodies.discard(body)


class Body:
    """One body, of at most ``most`` bytes. :meth:`close` it, whatever becomes of it."""

    def __init__(self, bodies: Bodies, most: int) -> None:
        self.state = BodyState.TAKEN
        #: All of it, until it is closed. Not a list of what came: a byte in a packet of its own
        #: would cost 40.
        self.data = bytearray()
        self._bodies = bodies
        self._most = most

    def take(self, chunk: bytes) -> None:
        """More has come. What isn't taken is dropped, and what came before it too."""
        if self.state is not BodyState.TAKEN:
            return
        if len(self.data) + len(chunk) > self._most:
            self.close(BodyState.TOO_LARGE)
        elif self._bodies.admit(self, len(chunk)):
            self.data += chunk
        else:
            self.close(BodyState.NO_ROOM)

    def close(self, state: BodyState | None = None) -> None:
        """Make room; with ``state`` that is what became of it. Idempotent."""
        self.state = state or self.state
        self._bodies.release(self)
        self.data = bytearray()
