"""Asking over HTTP, whoever answers, from a task that may be cancelled.

Tornado logs an error for a fetch that is cancelled. And its client has an exception of its own for
headers that have no end, which is neither an HTTPClientError nor an OSError: a task that asks
another machine would end by it.
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
    """``http.fetch(request)``; who is cancelled leaves it to end by itself, in its time-out.

    HTTPClientError, OSError or ValueError if there is no answer, whatever came in its place;
    HTTPClientError also for an answer that is no 2xx, unless ``raise_error`` is false.
    """
    answer = http.fetch(request, raise_error=raise_error)
    answer.add_done_callback(_seen)
    try:
        return await asyncio.shield(answer)
    except UnsatisfiableReadError as exc:
        raise HTTPClientError(NO_ANSWER, "the headers have no end") from exc


def _seen(answer: asyncio.Future[HTTPResponse]) -> None:
    """Nobody may be left to be told of its error."""
    if not answer.cancelled():
        answer.exception()
