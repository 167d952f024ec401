"""Which publications the broker still owes an answer for.

Pure bookkeeping for one channel in confirm mode: the broker answers with delivery
tags, singly or all up to one (``multiple``), in any order. Each tag is looked at
once, so an answer costs O(1) amortised however many it settles.

``basic.return`` names no tag. It comes before the confirm of its message and returns keep
the order of their publications, so it is matched to the oldest unreturned mandatory
publication with the same exchange, topic and body; two that don't differ in these
are interchangeable to whoever would send them again.
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
        # The oldest unsettled tag; the next one where there is none.
        self._lowest = 1

    def __len__(self) -> int:
        return len(self._items)

    def sent(self, item: T) -> int:
        """``item`` goes out as the next publication of the channel; returns its tag."""
        tag = self._next
        self._next += 1
        self._items[tag] = item
        return tag

    def expect_return(self, tag: int, exchange: str, message: Message) -> None:
        """Publication ``tag`` is mandatory: a return may come before its confirm."""
        self._mandatory[tag] = _Mandatory(exchange, message)

    def returned(self, exchange: str, message: Message, reason: str) -> bool:
        """The broker gave ``message`` back; False if no publication in flight is like it."""
        for sent in self._mandatory.values():
            if sent.returned is None and _is_copy(sent, exchange, message):
                sent.returned = reason
                return True
        return False

    def settled(self, tag: int, *, multiple: bool) -> list[tuple[T, str | None]]:
        """Items that the broker's answer settles, oldest first, each with why it was returned.

        Tags that are unknown or settled already count for nothing.
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
        """All items, oldest first: their channel is gone."""
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
