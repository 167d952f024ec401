"""HTTP requests to any server, from a task that may be cancelled.

Tornado logs an error for a fetch that is cancelled. Its client also has an exception for endless
headers, which is neither an HTTPClientError nor an OSError: a task that fetches from another
machine would end by it.
"""

from __future__ import annotations

import asyncio
from typing import Final

from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest, HTTPResponse
from tornado.iostream import UnsatisfiableReadError

#: Tornado's status for no answer at all.
NO_ANSWER: Final = 599


async def fetch(
    http: AsyncHTTPClient, request: HTTPRequest, *, raise_error: bool = True
) -> HTTPResponse:
    """Fetch; a fetch whose caller is cancelled ends by itself, within its time-out.

    HTTPClientError, OSError or ValueError if there is no HTTP response, whatever bytes arrived;
    HTTPClientError also for a status other than 2xx, unless ``raise_error`` is false.
    """
    answer = http.fetch(request, raise_error=raise_error)
    answer.add_done_callback(_seen)
    try:
        return await asyncio.shield(answer)
    except UnsatisfiableReadError as exc:
        raise HTTPClientError(NO_ANSWER, "the headers have no end") from exc


def _seen(answer: asyncio.Future[HTTPResponse]) -> None:
    """Retrieve the error, as no task may be left to do so."""
    if not answer.cancelled():
        answer.exception()
