"""The open channels of one connection, and the receiver of each channel's events. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from newsfabric.amqp.message import Message
from newsfabric.amqp.wire import ReturnReason, WireError


class ChannelOwner(Protocol):
    """A receiver of the events of one channel."""

    def on_deliver(self, tag: int, redelivered: bool, message: Message) -> None:
        """Take a message for the channel's consumer."""

    def on_return(self, reason: ReturnReason, message: Message) -> None:
        """Take a mandatory message that the broker returned."""

    def on_confirm(self, tag: int, multiple: bool, taken: bool) -> None:
        """Take the broker's confirm (``taken``) or refusal of publications."""

    def on_unblocked(self) -> None:
        """Note that the broker reads publications again."""


class Owners:
    """The :class:`newsfabric.amqp.wire.Sink` of a connection. ``to_pika`` takes other frames."""

    def __init__(self, to_pika: Callable[[bytes], None]) -> None:
        self._to_pika = to_pika
        # The owner of each open channel. A declaration's has none: its frames are pika's.
        self._owners: dict[int, ChannelOwner | None] = {}

    def opened(self, channel: int) -> None:
        """Note that pika has opened ``channel``."""
        self._owners[channel] = None

    def closed(self, channel: int) -> None:
        """Note that ``channel`` is closed: a frame for it is an error now."""
        del self._owners[channel]

    def attach(self, channel: int, owner: ChannelOwner) -> None:
        """Send the events of ``channel``, if it is open, to ``owner`` until :meth:`detach`."""
        if channel in self._owners:
            self._owners[channel] = owner

    def detach(self, channel: int, owner: ChannelOwner) -> None:
        """Forget ``owner``, unless the channel number has another owner by now."""
        if self._owners.get(channel) is owner:
            self._owners[channel] = None

    def unblocked(self) -> None:
        """Notify all owners that the broker reads publications again."""
        for owner in list(self._owners.values()):
            if owner is not None:
                owner.on_unblocked()

    def on_deliver(
        self, channel: int, consumer: str, tag: int, redelivered: bool, message: Message
    ) -> None:
        """See :class:`newsfabric.amqp.wire.Sink`. A channel of ours has one consumer."""
        if owner := self._owners.get(channel):
            owner.on_deliver(tag, redelivered, message)

    def on_return(self, channel: int, reason: ReturnReason, message: Message) -> None:
        """See :class:`newsfabric.amqp.wire.Sink`."""
        if owner := self._owners.get(channel):
            owner.on_return(reason, message)

    def on_confirm(self, channel: int, tag: int, multiple: bool, taken: bool) -> None:
        """See :class:`newsfabric.amqp.wire.Sink`."""
        if owner := self._owners.get(channel):
            owner.on_confirm(tag, multiple, taken)

    def on_frame(self, frame: bytes) -> None:
        """See :class:`newsfabric.amqp.wire.Sink`: for pika; WireError if pika fails."""
        # pika would log each such frame, and continue.
        if (channel := int.from_bytes(frame[1:3], "big")) and channel not in self._owners:
            raise WireError(f"a frame for channel {channel}, which isn't open")
        try:
            self._to_pika(frame)
        except Exception as exc:
            # pika raises various errors at a frame that makes no sense, or none now.
            raise WireError(f"a frame that can't be followed: {exc!r:.200}") from exc
