"""Subscriptions to topics of a region that survive the loss of gateways.

After a disconnect it fetches the endpoints again, connects to another gateway if there is one, and
continues from the position of each topic. If the gateway doesn't have the messages since then, it
rewinds over the time without a connection. Duplicates are dropped by identity.
"""

from __future__ import annotations

import asyncio
import collections
import random
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Final

from newsfabric.backoff import Backoff
from newsfabric.closing import ErrorCode
from newsfabric.errors import Disconnected, ReaderError
from newsfabric.messages.envelope import identity_of_id
from newsfabric.reader.endpoints import fetch_endpoints
from newsfabric.reader.push import Push
from newsfabric.reader.transports import Transport, connect

# Time that is read again after a disconnect; older messages are in the history.
_AWAY: Final = "5m"
_SEEN: Final = 10_000


async def follow(
    endpoints_url: str,
    topics: Sequence[str],
    *,
    transport: Transport = "websocket",
    rewind: int | str | None = None,
    since: float | None = None,
    on_subscribed: Callable[[str], None] = lambda _topic: None,
    on_gap: Callable[[str], None] = lambda _topic: None,
    on_away: Callable[[Disconnected], None] = lambda _why: None,
) -> AsyncGenerator[Push]:
    """Yield the messages of ``topics``, each once.

    Begins with the last ``rewind`` of them, or with those routed ``since`` a time (seconds since
    the epoch): so messages that arrive during the connect aren't missed. ``on_subscribed`` is
    called with each topic as soon as its messages arrive, also after a reconnect, and ``on_gap``
    before that if messages may have been missed; ``on_away`` is called with the reason of each lost
    or failed connection. Ends only with ReaderError, if a topic was refused, or with a Disconnected
    that forbids a reconnect.
    """
    seen: collections.OrderedDict[int, None] = collections.OrderedDict()
    positions: dict[str, str] = {}
    followed: set[str] = set()
    backoff = Backoff(base=0.2, cap=5.0)
    loop = asyncio.get_running_loop()
    while True:
        try:
            back = _span_since(since) if rewind is None and since is not None else rewind
            async with aclosing(_once(endpoints_url, topics, transport, back, positions)) as pushes:
                async for push in pushes:
                    backoff.succeeded(loop.time())
                    if push.type == "subscribed":
                        if push.topic in followed and not push.fields.get("recovered"):
                            on_gap(push.topic)
                        followed.add(push.topic)
                        on_subscribed(push.topic)
                    if push.is_message and _is_new(push, seen):
                        yield push
        except Disconnected as exc:
            if not exc.reconnect:
                raise
            on_away(exc)
            if seen:
                rewind = _AWAY
            await asyncio.sleep(backoff.failed(loop.time()))


def _span_since(since: float) -> str:
    return f"{max(1, round((time.time() - since) * 1000))}ms"


async def _once(
    endpoints_url: str,
    topics: Sequence[str],
    transport: Transport,
    rewind: int | str | None,
    positions: dict[str, str],
) -> AsyncGenerator[Push]:
    """Yield the pushes of one connection, and keep ``positions`` of topics up to date."""
    endpoints = await fetch_endpoints(endpoints_url)
    if not endpoints.gateways:
        raise Disconnected(1013, f"no gateway in {endpoints.region} is ready")
    gateway = endpoints.choose(random.Random())  # noqa: S311 - a share of the load, no secret
    async with await connect(gateway, transport) as reader:
        for topic in topics:
            await reader.subscribe(topic, rewind=rewind, position=positions.get(topic))
        while True:
            try:
                push = await anext(reader)
            except Disconnected:
                # An event stream's id may be ahead of the pushes taken from it, but not at its end.
                positions.update((topic, reader.last_id) for topic in topics if reader.last_id)
                raise
            if push.type == "error":
                _refuse(push)
            yield push
            # Only now: a caller that stops at a push hasn't handled it. After a rewind, the
            # messages up to the position of `subscribed` are still to come.
            all_here = push.is_message or rewind is None or push.fields.get("recovered")
            if push.position is not None and all_here and transport != "sse":
                positions[push.topic] = push.position


def _refuse(push: Push) -> None:
    sent_code = push.fields.get("code")
    code = sent_code if isinstance(sent_code, int) else ErrorCode.INTERNAL
    topic = push.fields.get("topic") or push.fields.get("ref")
    reason = push.fields.get("reason")
    if push.fields.get("temporary"):
        raise Disconnected(1013, f"{topic}: {reason}")
    raise ReaderError(code, f"{topic}: {reason}")


def _is_new(push: Push, seen: collections.OrderedDict[int, None]) -> bool:
    try:
        identity = identity_of_id(str(push.fields.get("id")))
    except ValueError:
        return True
    if identity in seen:
        return False
    seen[identity] = None
    if len(seen) > _SEEN:
        seen.popitem(last=False)
    return True
