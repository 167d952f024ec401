"""Asking over HTTP from a task that may be cancelled. Tornado logs an error for a fetch that is."""

from __future__ import annotations

import asyncio

from tornado.httpclient import AsyncHTTPClient, HTTPRequest, HTTPResponse


async def fetch(http: AsyncHTTPClient, request: HTTPRequest) -> HTTPResponse:
    """``http.fetch(request)``; who is cancelled leaves it to end by itself, in its time-out."""
    answer = http.fetch(request)
    answer.add_done_callback(_seen)
    return await asyncio.shield(answer)


def _seen(answer: asyncio.Future[HTTPResponse]) -> None:
    """Nobody may be left to be told of its error."""
    if not answer.cancelled():
        answer.exception()
