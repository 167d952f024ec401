"""What a chaos reader does when something may be missing: it reads the topic's history.

That is what docs/protocol.md tells who hears ``recovered: false``: ``/history`` after the position
that the reader came back with, page by page, again and again until a gateway knows all of it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final
from urllib.parse import urlencode, urljoin

import orjson
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from newsfabric.backoff import Backoff
from newsfabric.http.fetching import fetch

_TIMEOUT: Final = 15.0
# A page is at most 1 MiB of bodies.
_MAX_BYTES: Final = 8 << 20
_LIMIT: Final = 1000
# Another moment may bring what couldn't be read in this one.
_PASSING: Final = ("store", "busy")


async def read_history(
    frontdesks: Sequence[str], topic: str, after: str, rng: random.Random
) -> AsyncIterator[list[dict[str, Any]]]:
    """The messages of ``topic`` after a position, as lists of pushes, oldest first.

    ``frontdesks`` are URLs on them, the nearest first; after each failure the next one is asked,
    for as long as it takes.
    """
    backoff, turn = Backoff(base=2.0, cap=20.0, reset_after=0.0), 0
    loop = asyncio.get_running_loop()
    while True:
        page = await _page(frontdesks[turn % len(frontdesks)], topic, after)
        if page is None:
            turn += 1
            await asyncio.sleep(backoff.failed(loop.time(), rng))
            continue
        backoff.succeeded(loop.time())
        yield page["messages"]
        if not page["more"]:
            return
        after = page["position"]


async def _page(frontdesk: str, topic: str, after: str) -> dict[str, Any] | None:
    """One page; None if it can't be had at the moment, or not all of it."""
    query = urlencode({"topic": topic, "after": after, "limit": _LIMIT})
    url = urljoin(frontdesk, f"/history?{query}")
    http = SimpleAsyncHTTPClient(force_instance=True, max_body_size=_MAX_BYTES)
    try:
        request = HTTPRequest(url, connect_timeout=_TIMEOUT, request_timeout=_TIMEOUT)
        page: dict[str, Any] = orjson.loads((await fetch(http, request)).body)
    except (OSError, HTTPClientError, ValueError):
        return None
    finally:
        http.close()
    return None if page.get("reason") in _PASSING else page
