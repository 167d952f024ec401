"""Request bodies that are being received from readers: bounded for each, and in total. Pure.

sockjs-client puts all messages of a page since its last request into one body. So a body may be as
large as all verbs that a reader may send at once. There is room for few such bodies: a reader whose
body is dropped is asked to retry.

The decision that may be questioned: the largest body is dropped, not the newest. Otherwise sixteen
strangers could send 4 MiB each, a byte now and then, and keep all others from sending.
"""

from __future__ import annotations

import enum


class BodyState(enum.Enum):
    """The state of a body: accepted, or dropped for this reason."""

    TAKEN = "taken"
    TOO_LARGE = "too large"
    NO_ROOM = "no room"


class RequestBodies:
    """All bodies that one process is receiving: at most ``most`` bytes together."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = 0
        # Bodies that hold bytes.
        self._bodies: set[RequestBody] = set()

    def reserve(self, body: RequestBody, size: int) -> bool:
        """Hold ``size`` more bytes for ``body``, and drop larger bodies to make room for them.

        Return False, and hold nothing more, if ``body`` itself would be the largest."""
        after = len(body.data) + size
        while self.held + size > self.most:
            largest = max(self._bodies, key=lambda one: len(one.data), default=body)
            if len(largest.data) <= after:
                return False
            largest.close(BodyState.NO_ROOM)
        self.held += size
        self._bodies.add(body)
        return True

    def release(self, body: RequestBody) -> None:
        """Stop counting the bytes of ``body``. Idempotent if the caller then empties ``body``."""
        self.held -= len(body.data)
        self._bodies.discard(body)


class RequestBody:
    """A body of at most ``most`` bytes. Its owner must :meth:`close` it in every case."""

    def __init__(self, bodies: RequestBodies, most: int) -> None:
        self.state = BodyState.TAKEN
        #: All bytes received, until the body is closed. Not a list of chunks: a chunk of one byte
        #: would cost 40.
        self.data = bytearray()
        self._bodies = bodies
        self._most = most

    def append(self, chunk: bytes) -> None:
        """Append ``chunk``; without room for it, drop the whole body."""
        if self.state is not BodyState.TAKEN:
            return
        if len(self.data) + len(chunk) > self._most:
            self.close(BodyState.TOO_LARGE)
        elif self._bodies.reserve(self, len(chunk)):
            self.data += chunk
        else:
            self.close(BodyState.NO_ROOM)

    def close(self, state: BodyState | None = None) -> None:
        """Drop the bytes, and set ``state`` if one is given. Idempotent."""
        self.state = state or self.state
        self._bodies.release(self)
        self.data = bytearray()
