"""Repeated requests: for ten minutes each gets the reply to the first one.

A router knows only its own messages: another router would give the same message another id. So the
frontdesk remembers the receipts that it passed on, by ``app_id`` and ``message_id``, and a repeat
waits for the first request if that is under way. Another frontdesk doesn't know them: there the id
is a hint, as in a receipt. The alternative, asking the store, would cost a read of the topic's last
ten minutes for every message published.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import hashlib
from collections.abc import Awaitable, Callable
from typing import Final

from newsfabric.amqp.message import Message
from newsfabric.messages.control import Receipt


@dataclasses.dataclass(frozen=True, slots=True)
class Name:
    """The message that a request is about. A router judges a repeat with other content."""

    app_id: str | None
    message_id: str
    content: bytes

    @classmethod
    def of(cls, message: Message) -> Name:
        """Return the name of ``message``, which has a ``message_id``."""
        assert message.properties.message_id is not None
        digest = hashlib.blake2b(message.topic.encode() + b"\0" + message.body, digest_size=16)
        return cls(message.properties.app_id, message.properties.message_id, digest.digest())


#: Shorter than routers remember identities, and a bound of some 40 MB.
KEPT_SECONDS: Final = 600.0
KEPT: Final = 100_000


@dataclasses.dataclass(frozen=True, slots=True)
class _Kept:
    until: float
    receipt: Receipt


class Repeats:
    """Receipts of the last ``seconds`` (at most ``most``), and requests under way."""

    def __init__(self, *, seconds: float = KEPT_SECONDS, most: int = KEPT) -> None:
        self._seconds = seconds
        self._most = most
        # Oldest first.
        self._kept: collections.OrderedDict[Name, _Kept] = collections.OrderedDict()
        self._under_way: dict[Name, asyncio.Future[Receipt]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    async def publish_once(
        self, name: Name, publish: Callable[[], Awaitable[Receipt]], *, clock: Callable[[], float]
    ) -> Receipt:
        """Return the receipt of ``name``: the known one, one under way, or that of ``publish``.

        Only ``routed`` is kept: after any other result the next request publishes again. ``clock``
        is monotonic, in seconds.
        """
        known = self._find(name, clock())
        if known is not None:
            return dataclasses.replace(known, repeated=True)
        if (first := self._under_way.get(name)) is not None:
            receipt = await asyncio.shield(first)
            return dataclasses.replace(receipt, repeated=receipt.status == "routed")
        return await self._publish(name, publish, clock)

    async def _publish(
        self, name: Name, publish: Callable[[], Awaitable[Receipt]], clock: Callable[[], float]
    ) -> Receipt:
        first: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        # Perhaps no other request waits, and then nobody else retrieves its error.
        first.add_done_callback(lambda future: future.cancelled() or future.exception())
        self._under_way[name] = first
        try:
            receipt = await publish()
        except BaseException as exc:
            if isinstance(exc, Exception):
                first.set_exception(exc)
            else:
                first.cancel()
            raise
        finally:
            del self._under_way[name]
        first.set_result(receipt)
        if receipt.status == "routed":
            self._keep(name, receipt, clock())
        return receipt

    def _find(self, name: Name, now: float) -> Receipt | None:
        kept = self._kept.get(name)
        return kept.receipt if kept is not None and now < kept.until else None

    def _keep(self, name: Name, receipt: Receipt, now: float) -> None:
        self._kept.pop(name, None)
        self._kept[name] = _Kept(now + self._seconds, receipt)
        while self._kept:
            oldest = next(iter(self._kept.values()))
            if len(self._kept) <= self._most and now < oldest.until:
                return
            self._kept.popitem(last=False)
