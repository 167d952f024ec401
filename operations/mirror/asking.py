"""Polls a frontdesk's ``/board.json`` every two seconds for the number of its fabric's readers.

The token is read from its file for each request, so that it can be replaced. It is sent in a
header, never in a URL.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import orjson
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from newsfabric.http.fetching import fetch
from newsfabric.tokens.bearer import bearing, read_token
from operations.mirror.board import Crowded, read_board

_EVERY: Final = 2.0
_TIMEOUT: Final = 3.0
_MAX_BYTES: Final = 16 << 20


class Asking:
    """``crowded`` is the last answer, None before the first; ``trouble`` the current error."""

    def __init__(self, url: str, token_file: Path | None) -> None:
        self.crowded: Crowded | None = None
        self.trouble = ""
        self._url = url
        self._token_file = token_file

    async def run(self) -> None:
        """Poll for ever."""
        http = SimpleAsyncHTTPClient(force_instance=True, max_body_size=_MAX_BYTES)
        try:
            while True:
                await self._ask(http)
                await asyncio.sleep(_EVERY)
        finally:
            http.close()

    async def _ask(self, http: SimpleAsyncHTTPClient) -> None:
        try:
            request = HTTPRequest(
                self._url,
                headers=bearing(self._token()),
                connect_timeout=_TIMEOUT,
                request_timeout=_TIMEOUT,
                follow_redirects=False,
            )
            answer = await fetch(http, request)
            self.crowded = read_board(orjson.loads(answer.body))
            self.trouble = ""
        except (OSError, HTTPClientError, ValueError) as exc:
            self.trouble = f"{self._url}: {exc}"[:200]

    def _token(self) -> str | None:
        return None if self._token_file is None else read_token(self._token_file)
