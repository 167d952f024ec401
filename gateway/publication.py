"""One envelope on its way to readers, with its frames.

Shared by everyone who gets it and never changed, except that a frame is made when the first
reader of its variant needs it, and that copies of it are noted.
"""

from __future__ import annotations

from typing import Final

from gateway.frames import Variant, dress, mark_push, message_push
from gateway.position import Copy, copy_of
from newsfabric.messages.envelope import Envelope
from newsfabric.messages.mailbox import announced
from newsfabric.store.rules import rank
from newsfabric.topics import TopicPolicy

# Gold has one of each region, and each repeat of the publisher's is one more. For want of one that
# isn't noted a reader may get the message again.
_COPIES: Final = 8


class Publication:
    """``position`` is None for one that was read from the store instead of heard on the feed.

    ``way`` is the shovel that brought it; None for what is late by nature, and isn't measured.
    ``copies`` are those known of, this one first. ``mark`` is what it announces, if it isn't a
    message of a publisher's. It was the ``arrival``-th message that arrived in its topic's memory;
    0 for what didn't arrive there. ``native_head`` is the native engine's, made when it is needed.
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
        self._frames: dict[Variant, bytes] = {}

    @property
    def routed_ms(self) -> int:
        """When its router gave it its number, in ms since the epoch by that router's clock."""
        return self.copies[0].routed_ms

    def add_copy(self, copy: Copy) -> bool:
        """Note another copy; False if there are too many."""
        if copy not in self.copies:
            if len(self.copies) >= _COPIES:
                return False
            self.copies.append(copy)
        return True

    def frame(self, variant: Variant) -> bytes:
        """The bytes for ``variant``: always the same object, so that readers share them."""
        frame = self._frames.get(variant)
        if frame is None:
            frame = self._frames[variant] = self._encode(variant)
        return frame

    def _encode(self, variant: Variant) -> bytes:
        if variant is not Variant.RAW:
            return dress(self.frame(Variant.RAW), variant, self.position)
        if self.mark is not None:
            return mark_push(self.mark, self.position)
        return message_push(self.envelope, self.policy.topic_class, self.position)

    @property
    def weight(self) -> int:
        """Bytes that remembering it costs, roughly: its body twice (as it is, and framed)."""
        return 2 * len(self.envelope.body) + 1024

    def supersedes(self, other: Publication) -> bool:
        """Whether this is a newer version of the key than ``other``."""
        return rank(self.envelope) > rank(other.envelope)

    def expired(self, now: float) -> bool:
        """Whether nobody wants it any more at ``now`` (seconds since the epoch)."""
        expires = self.envelope.expires_ms
        return expires is not None and expires <= now * 1000


def push_bytes(publication: Publication) -> int:
    """How long its push is, without what a transport puts around it."""
    return len(publication.frame(Variant.RAW))
