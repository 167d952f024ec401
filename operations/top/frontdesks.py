"""Boards from frontdesks: from one while it answers, from the next when it doesn't.

A frontdesk without an update for :data:`SILENT` seconds is away, whatever its connection's state:
it sends one each second. Then the next one is asked; after the last the first, with a growing pause
before. Each board names the other regions' frontdesks, which are asked after the given ones; but a
board must not lead from https to plain http, unless that is allowed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import orjson
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from newsfabric.backoff import Backoff
from newsfabric.errors import ConfigError, Disconnected, NewsfabricError
from newsfabric.http.fetching import fetch
from newsfabric.reader.frames import EventStream
from newsfabric.reader.streaming import stream
from newsfabric.tokens.bearer import bearing, is_private, read_token
from operations.board_document import MAX_REGIONS, Board, parse_board, plain

SILENT: Final = 4.0
# A board of a thousand boxes has about two megabytes.
MAX_BYTES: Final = 32 << 20
_ONCE_TIMEOUT: Final = 10.0

OnBoard = Callable[[Board, dict[str, Any]], None]
Login = Callable[[], str | None]


def is_frontdesk_url(text: str) -> bool:
    """Return whether ``text`` is an http or https URL with a host."""
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def login_from(path: Path | None) -> Login:
    """Return a function that reads the token file each time, so that the token may be replaced.

    The function returns None without a file; it raises ConfigError if the file has no token.
    """

    def login() -> str | None:
        if path is None:
            return None
        try:
            return read_token(path)
        except (OSError, ValueError) as exc:
            raise ConfigError(f"--token-file: {exc}") from exc

    return login


class Frontdesks:
    """A stream of one of several frontdesks. ``over_http``: a board may lead from https to http."""

    def __init__(
        self,
        urls: Sequence[str],
        login: Login,
        on_board: OnBoard,
        on_trouble: Callable[[str], None],
        *,
        over_http: bool = False,
    ) -> None:
        self._urls = [url.rstrip("/") for url in urls]
        self._login = login
        self._on_board = on_board
        self._on_trouble = on_trouble
        self._may_be_read = over_http or not is_private(self._urls[0])
        self._at = 0
        self._reading: asyncio.Task[None] | None = None
        # Whether the current frontdesk has answered, and whether any ever has.
        self._answers = False
        self._ever = False
        self._refused: set[str] = set()

    @property
    def url(self) -> str:
        """The URL of the current frontdesk."""
        return self._urls[self._at]

    @property
    def is_first(self) -> bool:
        """True if the current frontdesk is the preferred one."""
        return self._at == 0

    def ask_next(self) -> None:
        """Leave the current frontdesk for the next, if there is another."""
        if self._reading is not None and len(self._urls) > 1:
            self._reading.cancel()

    async def run(self) -> None:
        """Read until cancelled. NewsfabricError when all known frontdesks refuse us, and none ever
        answered."""
        backoff = Backoff(base=0.5, cap=5.0)
        while True:
            self._answers = False
            trouble = await self._read()
            self._on_trouble(trouble)
            if not self._ever and self._refused.issuperset(self._urls):
                raise NewsfabricError(trouble)
            self._at = (self._at + 1) % len(self._urls)
            if self._answers:
                backoff = Backoff(base=0.5, cap=5.0)
            if self.is_first:
                # Even if it has answered: it may end each stream at once.
                await asyncio.sleep(backoff.failed(time.monotonic()))

    async def _read(self) -> str:
        """Read the current stream until it ends; return the reason, empty if it was left."""
        self._reading = asyncio.create_task(self._stream())
        try:
            await asyncio.wait([self._reading])
            if self._reading.cancelled():
                return ""
            self._reading.result()
        except Disconnected as exc:
            if not exc.reconnect:
                self._refused.add(self.url)
            return plain(exc.reason).replace("/board/stream: ", ": ", 1)
        except ConfigError as exc:
            # A file that is being replaced is valid again in a moment; one that never was isn't.
            if not self._ever:
                raise
            return str(exc)
        except TimeoutError:
            return f"{self.url} is silent"
        finally:
            self._reading.cancel()
            await asyncio.wait([self._reading])
        return f"{self.url} has ended its stream"

    async def _stream(self) -> None:
        events = EventStream(MAX_BYTES)
        async with asyncio.timeout(SILENT) as silence:

            async def on_chunk(chunk: bytes) -> None:
                for event in events.feed(chunk):
                    silence.reschedule(asyncio.get_running_loop().time() + SILENT)
                    self._on_data(event.data)

            await stream("GET", f"{self.url}/board/stream", on_chunk, self._headers())

    def _headers(self) -> dict[str, str]:
        return bearing(self._login())

    def _on_data(self, data: bytes) -> None:
        try:
            document = orjson.loads(data)
            board = parse_board(document)
        except ValueError as exc:
            raise Disconnected(1002, f"{self.url}: {exc}", reconnect=False) from exc
        self._answers = self._ever = True
        self._refused.clear()
        self._learn(region.frontdesk_url for region in board.regions)
        self._on_board(board, document)

    def _learn(self, urls: Iterable[str]) -> None:
        for url in (url.rstrip("/") for url in urls if is_frontdesk_url(url)):
            may = self._may_be_read or is_private(url)
            if may and url not in self._urls and len(self._urls) < MAX_REGIONS:
                self._urls.append(url)


async def fetch_once(urls: Sequence[str], login: Login) -> tuple[Board, dict[str, Any]]:
    """Return the board of the first that answers, as values and as its document; NewsfabricError if
    none does."""
    troubles = []
    http = SimpleAsyncHTTPClient(force_instance=True, max_body_size=MAX_BYTES)
    try:
        for url in (f"{url.rstrip('/')}/board.json" for url in urls):
            headers = bearing(login())
            try:
                request = HTTPRequest(
                    url,
                    headers=headers,
                    follow_redirects=False,
                    connect_timeout=_ONCE_TIMEOUT,
                    request_timeout=_ONCE_TIMEOUT,
                )
                answer = await fetch(http, request)
                document = orjson.loads(answer.body)
                return parse_board(document), document
            except (OSError, HTTPClientError, ValueError) as exc:
                troubles.append(plain(f"{url}: {exc}"))
    finally:
        http.close()
    raise NewsfabricError(f"no frontdesk answers: {'; '.join(troubles)}")
