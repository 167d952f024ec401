"""Frames that one connection has not been sent yet, and when its reader counts as too slow.

A plain data structure without socket or clock. Frames are bytes shared with other connections; a
connection adds only its entries. A frame waits here only while the transport takes nothing: the
fast path doesn't use the outbox.

Each waiting message is handled by its topic's policy:

* ``disconnect``, and our own replies, are **firm**: never dropped.
* ``conflate``: a newer version of a key replaces the waiting one. The newer one is added at the
  end, so the order of a topic stays the order of arrival.
* ``drop_oldest``: may be dropped, the oldest first.

At the hard limit, the oldest frames that aren't firm are dropped (conflated ones too: the newest
versions are sent again with the next subscribe). If that doesn't make enough room, a new frame that
isn't firm is dropped, and a firm one makes the reader too slow. The soft limit counts firm bytes
alone, and takes effect after ``soft_seconds`` above it: a burst is forgiven.

The bytes of all outboxes of a process are counted in an :class:`Account`. A frame that a thousand
readers wait for is in memory once, and counts once: readers of one topic who are all a little
behind, because the network is, take little.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from typing import Final

from gateway.wire.publication import Publication
from newsfabric.topics import SlowPolicy

# Counted for each frame in addition to its bytes, so that many small frames are bounded too:
# roughly the memory that its entry, number and key take.
ENTRY_BYTES: Final = 256


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OutboxLimits:
    """Limits of one connection: bytes that may wait, and for how long."""

    hard_bytes: int = 4 << 20
    # A replay of 1 MiB and a transport's overhead around its pushes: measured, 3 to 16 %.
    soft_bytes: int = 5 << 18
    soft_seconds: float = 10.0

    def __post_init__(self) -> None:
        if not 0 < self.soft_bytes <= self.hard_bytes:
            raise ValueError("soft_bytes must be in 1..hard_bytes")


class Account:
    """The bytes that wait in all outboxes of a process.

    ``grown`` is called when there are more than before, ``dropped`` when a message is dropped.
    """

    def __init__(
        self,
        grown: Callable[[], None] = lambda: None,
        dropped: Callable[[SlowPolicy], None] = lambda policy: None,
    ) -> None:
        self.bytes = 0
        self.dropped = dropped
        self._grown = grown
        # Waiting connections by the frame's address: while one waits, no other frame has it.
        self._frames: dict[int, int] = {}

    def add(self, frame: bytes) -> None:
        """Count one more connection that waits for ``frame``."""
        waiting = self._frames.get(id(frame), 0)
        self._frames[id(frame)] = waiting + 1
        self.bytes += ENTRY_BYTES + (0 if waiting else len(frame))
        self._grown()

    def remove(self, frame: bytes) -> None:
        """Count one connection less that waits for ``frame``."""
        waiting = self._frames.pop(id(frame)) - 1
        self.bytes -= ENTRY_BYTES + (0 if waiting else len(frame))
        if waiting:
            self._frames[id(frame)] = waiting

    def add_bytes(self, size: int) -> None:
        """Count ``size`` bytes of something else that is kept for a reader; negative: released."""
        self.bytes += size
        if size > 0:
            self._grown()


class Outbox:
    """FIFO of frames waiting for one connection. ``now`` is any clock in seconds."""

    def __init__(self, limits: OutboxLimits, account: Account) -> None:
        self.limits = limits
        self._account = account
        self.pending_bytes = 0
        self._number = 0
        self._firm_bytes = 0
        # Frames by number, in the order to send them; frames that aren't firm have a publication.
        self._frames: collections.OrderedDict[int, bytes] = collections.OrderedDict()
        self._droppable: collections.OrderedDict[int, Publication] = collections.OrderedDict()
        self._keys: dict[tuple[str, str | None], int] = {}
        # When the firm bytes first went above the soft limit; None while they are below.
        self._soft_since: float | None = None

    def __len__(self) -> int:
        return len(self._frames)

    def push(self, frame: bytes, publication: Publication, now: float) -> bool:
        """Queue a message's frame under its topic's policy; False if the reader is too slow."""
        policy = publication.policy.slow
        if policy == "disconnect":
            return self.push_firm(frame, now)
        key = publication.envelope.key
        slot = None if policy != "conflate" or key is None else (publication.envelope.topic, key)
        if slot is not None and not self._conflate(slot, publication):
            return True
        if not self._make_room(frame):
            self._account.dropped(policy)
            return True
        number = self._append(frame)
        self._droppable[number] = publication
        if slot is not None:
            self._keys[slot] = number
        return True

    def push_firm(self, frame: bytes, now: float) -> bool:
        """Queue a frame that must not be dropped; False if the reader is too slow.

        On False the caller closes with SLOW_READER, and clears the outbox first.
        """
        fits = self._make_room(frame)
        self._append(frame)
        self._firm_bytes += _cost(frame)
        if self._soft_since is None and self._firm_bytes > self.limits.soft_bytes:
            self._soft_since = now
        above = 0.0 if self._soft_since is None else now - self._soft_since
        return fits and above <= self.limits.soft_seconds

    def take_frames(self, max_bytes: int) -> list[bytes]:
        """Remove and return the oldest frames that fit into ``max_bytes``, at least one if any."""
        frames: list[bytes] = []
        size = 0
        while self._frames:
            number, frame = next(iter(self._frames.items()))
            size += len(frame)
            if frames and size > max_bytes:
                break
            self._remove(number)
            frames.append(frame)
        if self._firm_bytes <= self.limits.soft_bytes:
            self._soft_since = None
        return frames

    def clear(self) -> int:
        """Drop all frames; return how many waited."""
        count = len(self._frames)
        for frame in self._frames.values():
            self._account.remove(frame)
        self._frames.clear()
        self._droppable.clear()
        self._keys.clear()
        self.pending_bytes = self._firm_bytes = 0
        self._soft_since = None
        return count

    def _conflate(self, slot: tuple[str, str], publication: Publication) -> bool:
        """Remove the waiting version; return False if it is newer than ``publication``."""
        number = self._keys.get(slot)
        if number is None:
            return True
        self._account.dropped("conflate")
        newer = publication.supersedes(self._droppable[number])
        if newer:
            self._remove(number)
        return newer

    def _make_room(self, frame: bytes) -> bool:
        while self.pending_bytes + _cost(frame) > self.limits.hard_bytes:
            if not self._droppable:
                return False
            number, publication = next(iter(self._droppable.items()))
            self._account.dropped(publication.policy.slow)
            self._remove(number)
        return True

    def _append(self, frame: bytes) -> int:
        self._number += 1
        self._frames[self._number] = frame
        self._account.add(frame)
        self.pending_bytes += _cost(frame)
        return self._number

    def _remove(self, number: int) -> None:
        frame = self._frames.pop(number)
        self._account.remove(frame)
        self.pending_bytes -= _cost(frame)
        publication = self._droppable.pop(number, None)
        if publication is None:
            self._firm_bytes -= _cost(frame)
            return
        slot = publication.envelope.topic, publication.envelope.key
        if self._keys.get(slot) == number:
            del self._keys[slot]


def _cost(frame: bytes) -> int:
    return len(frame) + ENTRY_BYTES
