"""What readers are sending us over HTTP: bounded for each of them, and all together. Pure.

sockjs-client puts everything that a page said while the last request was on its way into one body,
so one may be as large as all verbs that a reader may say at once. Many of those are not kept: who
comes when there is no room any more is told to try again.
"""

from __future__ import annotations

import enum


class Verdict(enum.Enum):
    """Whether a body is taken."""

    TAKEN = "taken"
    TOO_LARGE = "too large"
    NO_ROOM = "no room"


class Bodies:
    """All that are on their way to one process: at most ``most`` bytes together."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = 0


class Body:
    """One body, of at most ``most`` bytes. :meth:`close` it, whatever becomes of it."""

    def __init__(self, bodies: Bodies, most: int) -> None:
        self.verdict = Verdict.TAKEN
        self._bodies = bodies
        self._most = most
        # Not a list of what came: a byte in a packet of its own would cost 40.
        self._data = bytearray()

    def take(self, chunk: bytes) -> None:
        """More has come. What isn't taken is dropped, and what came before it too."""
        if self.verdict is not Verdict.TAKEN:
            return
        if len(self._data) + len(chunk) > self._most:
            self.verdict = Verdict.TOO_LARGE
            self.close()
        elif self._bodies.held + len(chunk) > self._bodies.most:
            self.verdict = Verdict.NO_ROOM
            self.close()
        else:
            self._data += chunk
            self._bodies.held += len(chunk)

    def whole(self) -> bytearray:
        """All of it, until it is closed."""
        return self._data

    def close(self) -> None:
        """Make room. Idempotent."""
        self._bodies.held -= len(self._data)
        self._data = bytearray()
