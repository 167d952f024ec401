"""The publications of one channel that the broker hasn't confirmed yet.

Pure bookkeeping for a channel in confirm mode: the broker replies with delivery tags, singly or all
up to one (``multiple``), in any order. Each tag is handled once, so a reply costs O(1) amortised
however many it settles.

``basic.return`` has no tag. It arrives before the confirm of its message, and returns keep the
order of their publications. So it is matched to the oldest unreturned mandatory publication with
the same exchange, topic and body. Two publications that don't differ in these are interchangeable
to a caller that would send them again.
"""

from __future__ import annotations

import dataclasses
from typing import Generic, TypeVar

from newsfabric.amqp.message import Message

T = TypeVar("T")


@dataclasses.dataclass(slots=True)
class _Mandatory:
    exchange: str
    message: Message
    returned: str | None = None


class Confirms(Generic[T]):
    """Items (say, futures) by delivery tag, from :meth:`sent` until settled."""

    def __init__(self) -> None:
        self._items: dict[int, T] = {}
        self._mandatory: dict[int, _Mandatory] = {}
        self._next = 1
        # The oldest unsettled tag; the next tag if there is none.
        self._lowest = 1

    def __len__(self) -> int:
        return len(self._items)

    def sent(self, item: T) -> int:
        """Note ``item`` as the next publication of the channel; return its tag."""
        tag = self._next
        self._next += 1
        self._items[tag] = item
        return tag

    def expect_return(self, tag: int, exchange: str, message: Message) -> None:
        """Note that publication ``tag`` is mandatory: a return may arrive before its confirm."""
        self._mandatory[tag] = _Mandatory(exchange, message)

    def returned(self, exchange: str, message: Message, reason: str) -> bool:
        """Note that the broker returned ``message``; False if none in flight is like it."""
        for sent in self._mandatory.values():
            if sent.returned is None and _is_copy(sent, exchange, message):
                sent.returned = reason
                return True
        return False

    def settled(self, tag: int, *, multiple: bool) -> list[tuple[T, str | None]]:
        """Return the items that the broker's reply settles, oldest first, each with a return's
        reason.

        Tags that are unknown or settled already are ignored.
        """
        # Tag 0 is "all so far" (the specification's basic.ack.multiple).
        last = tag if tag else self._next - 1
        tags = range(self._lowest, min(last, self._next - 1) + 1) if multiple else (tag,)
        settled = [
            (self._items.pop(known), self._reason(known)) for known in tags if known in self._items
        ]
        while self._lowest < self._next and self._lowest not in self._items:
            self._lowest += 1
        return settled

    def _reason(self, tag: int) -> str | None:
        sent = self._mandatory.pop(tag, None)
        return sent.returned if sent else None

    def clear(self) -> list[T]:
        """Remove and return all items, oldest first: their channel is gone."""
        items = list(self._items.values())
        self._items.clear()
        self._mandatory.clear()
        return items


def _is_copy(sent: _Mandatory, exchange: str, message: Message) -> bool:
    return (
        sent.exchange == exchange
        and sent.message.topic == message.topic
        and sent.message.body == message.body
    )
