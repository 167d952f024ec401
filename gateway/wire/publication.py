"""An envelope on its way to readers, with its frames.

Shared by all readers that get it, and never changed, with two exceptions: a frame is made when the
first reader of its variant needs it, and further copies are noted.
"""

from __future__ import annotations

from typing import Final

from gateway.wire.frames import Framing, frame_as, mark_push, message_push
from gateway.wire.position import Copy, copy_of
from newsfabric.messages.envelope import Envelope
from newsfabric.messages.mailbox import announced
from newsfabric.store.rules import rank
from newsfabric.topics import TopicPolicy

# Gold has a copy from each region, and each repeat by the publisher adds one. If a copy isn't
# noted, a reader may get the message again.
_COPIES: Final = 8


class Publication:
    """An envelope and its frames. ``position`` is None if it was read from the store, not the feed.

    ``way`` is the shovel that brought it; None if it is late by nature, and isn't measured.
    ``copies`` are the known copies, this one first. ``mark`` is the user mark that it announces, if
    any. ``arrival`` is its number among the arrivals in its topic's memory; 0 if it didn't arrive
    there. The native engine makes ``native_head`` when needed.
    """

    __slots__ = (
        "_frames",
        "arrival",
        "copies",
        "envelope",
        "mark",
        "native_head",
        "policy",
        "position",
        "way",
    )

    def __init__(self, envelope: Envelope, policy: TopicPolicy, position: str | None) -> None:
        self.envelope = envelope
        self.policy = policy
        self.position = position
        self.way: str | None = None
        self.arrival = 0
        self.native_head: bytes | None = None
        self.mark = announced(envelope, policy)
        self.copies = [copy_of(envelope)]
        self._frames: dict[Framing, bytes] = {}

    @property
    def routed_ms(self) -> int:
        """The time at which its router numbered it, in ms since the epoch by the router's clock."""
        return self.copies[0].routed_ms

    def add_copy(self, copy: Copy) -> bool:
        """Note another copy; return False if there are too many."""
        if copy not in self.copies:
            if len(self.copies) >= _COPIES:
                return False
            self.copies.append(copy)
        return True

    def frame(self, framing: Framing) -> bytes:
        """Return the bytes for ``framing``: always the same object, so that readers share them."""
        frame = self._frames.get(framing)
        if frame is None:
            frame = self._frames[framing] = self._encode(framing)
        return frame

    def _encode(self, framing: Framing) -> bytes:
        if framing is not Framing.RAW:
            return frame_as(self.frame(Framing.RAW), framing, self.position)
        if self.mark is not None:
            return mark_push(self.mark, self.position)
        return message_push(self.envelope, self.policy.topic_class, self.position)

    @property
    def weight(self) -> int:
        """Bytes of memory that it takes, roughly: its body twice (as it is, and framed)."""
        return 2 * len(self.envelope.body) + 1024

    def supersedes(self, other: Publication) -> bool:
        """Return whether this is a newer version of the key than ``other``."""
        return rank(self.envelope) > rank(other.envelope)

    def expired(self, now: float) -> bool:
        """Return whether the message has expired at ``now`` (seconds since the epoch)."""
        expires = self.envelope.expires_ms
        return expires is not None and expires <= now * 1000


def push_bytes(publication: Publication) -> int:
    """Return the length of the push, without the overhead of a transport."""
    return len(publication.frame(Framing.RAW))
