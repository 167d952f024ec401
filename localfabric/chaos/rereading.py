"""A chaos reader's reaction to possibly missing messages: it reads the topic's history.

docs/protocol.md asks this of a reader that receives ``recovered: false``: read ``/history`` after
its last position, page by page, with retries until a gateway knows all of it.
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
# Reasons that may pass, so a retry may read the rest.
_PASSING: Final = ("store", "busy")


async def read_history(
    frontdesks: Sequence[str], topic: str, after: str, rng: random.Random
) -> AsyncIterator[list[dict[str, Any]]]:
    """Yield the messages of ``topic`` after a position, as lists of pushes, oldest first.

    ``frontdesks`` are URLs on them, the nearest first; after each failure the next one is asked,
    without a limit of retries.
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
    """Return a page; None if there is none at the moment, or not all of it."""
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
