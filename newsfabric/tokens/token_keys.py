"""The keys of tokens, from a file or a JWKS URL, and kept up to date.

Keys once read are used until better ones are read: a URL that is down, slow or returns garbage
costs no login. Keys are read again every few minutes, and at once when a token was signed with an
unknown key, but not more often than every few seconds: strangers can send such tokens too.
Redirects are not followed.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tornado.httpclient import HTTPError, HTTPRequest
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from newsfabric.errors import ConfigError
from newsfabric.http.fetching import fetch
from newsfabric.tokens import KeySet
from newsfabric.tokens._jwks import parse_keys

logger = logging.getLogger(__name__)

MAX_BYTES: Final = 256 * 1024
_TIMEOUT: Final = 3.0
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})

Read = Callable[[], Awaitable[bytes]]


def is_url(source: str) -> bool:
    """Return whether ``source`` is fetched; otherwise it is a file."""
    return "://" in source


def check_source(source: str) -> None:
    """Raise ConfigError if ``source`` can be forged: only https, or http on loopback."""
    if not is_url(source):
        return
    parts = urlsplit(source)
    loopback = parts.scheme == "http" and parts.hostname in _LOOPBACK
    if not loopback and (parts.scheme != "https" or not parts.hostname):
        raise ConfigError(f"token keys: {source}: an https URL (http on loopback only), or a file")


class TokenKeys:
    """The keys from ``source``, kept up to date.

    At least ``again`` seconds pass between two reads that strangers' tokens cause, and ``every``
    seconds (and a little at random) between the others.
    """

    def __init__(self, source: str, *, again: float = 10.0, every: float = 300.0) -> None:
        check_source(source)
        self.current = KeySet()
        self._source = source
        self._again = again
        self._every = every
        self._read = _fetched(source) if is_url(source) else _from_file(Path(source))
        self._not_before = 0.0
        self._reading: asyncio.Task[None] | None = None
        self._failing = False

    async def start(self) -> None:
        """Read the keys. ConfigError for an invalid file; a URL may answer later."""
        await self._read_once()
        if not self.current.keys and not is_url(self._source):
            raise ConfigError(f"token keys: {self._source} can't be used (see the log)")

    async def keep_fresh(self) -> None:
        """Read the keys periodically, until cancelled; sooner while there are none."""
        while True:
            pause = self._every if self.current.keys else self._again
            await asyncio.sleep(pause * random.uniform(0.9, 1.1))  # noqa: S311 - no secret
            await self._read_once()

    async def close(self) -> None:
        """Cancel a read in progress."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def look_again(self) -> bool:
        """Read again, for a token with an unknown key, unless just done; return whether it was.

        A call during a read waits for that read.
        """
        if self._reading is None and asyncio.get_running_loop().time() < self._not_before:
            return False
        await self._read_once()
        return True

    async def _read_once(self) -> None:
        if self._reading is None:
            self._reading = asyncio.create_task(self._try_to_read())
            self._reading.add_done_callback(self._done)
        # A caller that is cancelled must not cancel the read for others.
        await asyncio.shield(self._reading)

    def _done(self, _: asyncio.Task[None]) -> None:
        self._reading = None

    async def _try_to_read(self) -> None:
        self._not_before = asyncio.get_running_loop().time() + self._again
        try:
            async with asyncio.timeout(2 * _TIMEOUT):
                data = await self._read()
            if len(data) > MAX_BYTES:
                raise ValueError(f"more than {MAX_BYTES} bytes")
            found = parse_keys(data, secrets=not is_url(self._source))
        except (OSError, HTTPError, ValueError) as exc:
            self._note(str(exc) or type(exc).__name__)
            return
        if found != self.current or self._failing:
            logger.info("%d keys for tokens from %s", len(found.keys), self._source)
        self._failing = False
        self.current = found

    def _note(self, why: str) -> None:
        if not self._failing:
            kept = len(self.current.keys)
            logger.warning("token keys: %s: %.200s; %d keys stay", self._source, why, kept)
        self._failing = True


def _from_file(path: Path) -> Read:
    def read() -> bytes:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)

    async def in_thread() -> bytes:
        return await asyncio.to_thread(read)

    return in_thread


def _fetched(url: str) -> Read:
    async def read() -> bytes:
        client = SimpleAsyncHTTPClient(force_instance=True, max_body_size=MAX_BYTES)
        try:
            request = HTTPRequest(
                url,
                connect_timeout=_TIMEOUT,
                request_timeout=_TIMEOUT,
                follow_redirects=False,
                headers={"Accept": "application/jwk-set+json, application/json"},
            )
            answer = await fetch(client, request)
        finally:
            client.close()
        return answer.body

    return read
