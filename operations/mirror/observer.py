"""A reader of the mirror's own on one side, which reports its messages and its subscriptions.

It subscribes to topics as :meth:`Observer.watch` names them, up to a bound, and to all of them
again after each disconnect. It doesn't resume: messages in between aren't watched
(operations.mirror.share_record), so an observer's own disconnect is no finding. Their number is
one.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Final

from newsfabric.backoff import Backoff
from newsfabric.errors import Disconnected
from newsfabric.messages.envelope import identity_of_id, ms_of_id
from newsfabric.reader import Push, Reader, connect, fetch_endpoints
from operations.mirror.copying import in_share
from operations.mirror.crowd import MOST_TOPICS
from operations.mirror.share_record import SETTLED

_CONNECT_WITHIN: Final = 15.0


class Observer:
    """The observer of one side. ``on_message`` gets each message of the ``share``: identity,
    connection, and whether it is fresh: routed a second or more after subscribing, so no replay."""

    def __init__(
        self,
        endpoints_url: str,
        *,
        clock: Callable[[], float],
        share: float,
        on_message: Callable[[int, int, bool], None],
        on_lost: Callable[[], None],
    ) -> None:
        self.cut_off = 0
        self.trouble = ""
        self._url = endpoints_url
        self._clock = clock
        self._share = share
        self._on_message = on_message
        self._on_lost = on_lost
        self._wanted: dict[str, None] = {}
        self._since: dict[str, float] = {}
        self._refused: set[str] = set()
        self._more = asyncio.Event()
        self._connection = 0
        self._rng = random.Random()  # noqa: S311 - a share of the load, no secret

    @property
    def connected(self) -> bool:
        """True if at least one topic is subscribed."""
        return bool(self._since)

    @property
    def refused(self) -> frozenset[str]:
        """The topics that this fabric doesn't let it read."""
        return frozenset(self._refused)

    def watch(self, topic: str) -> None:
        """Subscribe to ``topic`` too, if there is room."""
        if topic not in self._wanted and len(self._wanted) < MOST_TOPICS:
            self._wanted[topic] = None
            self._more.set()

    def watches(self, topic: str, now: float) -> bool:
        """Return whether a message routed at ``now`` should arrive."""
        since = self._since.get(topic)
        return since is not None and now - since >= SETTLED

    async def run(self) -> None:
        """Observe for ever."""
        backoff = Backoff(base=0.2, cap=5.0)
        loop = asyncio.get_running_loop()
        while True:
            try:
                await self._once(backoff)
            except (Disconnected, TimeoutError) as exc:
                self.trouble = str(exc) or "no answer in time"
            finally:
                if self._since:
                    self.cut_off += 1
                    self._since.clear()
                    self._on_lost()
            await asyncio.sleep(backoff.failed(loop.time(), self._rng))

    async def _once(self, backoff: Backoff) -> None:
        async with asyncio.timeout(_CONNECT_WITHIN):
            endpoints = await fetch_endpoints(self._url)
            if not endpoints.gateways:
                raise Disconnected(1013, f"no gateway in {endpoints.region} is ready")
            reader = await connect(endpoints.choose(self._rng))
        self._connection += 1
        async with reader:
            asking = asyncio.create_task(self._ask(reader))
            try:
                async for push in reader:
                    backoff.succeeded(asyncio.get_running_loop().time())
                    self._on_push(push)
            finally:
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)

    async def _ask(self, reader: Reader) -> None:
        asked: set[str] = set()
        while True:
            self._more.clear()
            for topic in [topic for topic in self._wanted if topic not in asked]:
                asked.add(topic)
                await reader.subscribe(topic)
            await self._more.wait()

    def _on_push(self, push: Push) -> None:
        if push.is_message:
            self._message(push)
        elif push.type == "subscribed" and push.topic in self._wanted:
            self._since[push.topic] = self._clock()
            self._refused.discard(push.topic)
            self.trouble = ""
        elif push.type == "error":
            ref = push.fields.get("ref")
            if isinstance(ref, str) and ref in self._wanted:
                self._refused.add(ref)
            self.trouble = f"{ref!r:.80}: {push.fields.get('reason')!r:.80}"

    def _message(self, push: Push) -> None:
        id_text = str(push.fields.get("id"))
        try:
            identity = identity_of_id(id_text)
        except ValueError:
            return
        if not in_share(identity, self._share):
            return
        since = self._since.get(push.topic)
        fresh = since is not None and ms_of_id(id_text) / 1000 >= since + SETTLED
        self._on_message(identity, self._connection, fresh)
