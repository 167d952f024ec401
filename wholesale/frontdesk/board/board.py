"""The board behind its pages: updates the picture, asks other regions, wakes the watchers.

A thin shell around :mod:`wholesale.frontdesk.board.picture`. It needs neither the store nor a box,
and continues while the core is away.
"""

from __future__ import annotations

import asyncio
import collections
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import orjson
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from newsfabric.errors import ConfigError
from newsfabric.http.fetching import fetch
from newsfabric.settings import TlsFiles
from newsfabric.tls import ClientTls
from newsfabric.tokens.bearer import bearing
from wholesale.frontdesk.api import counters
from wholesale.frontdesk.board.answers_elsewhere import MAX_ANSWER_BYTES, parse_answer
from wholesale.frontdesk.board.board_access import read_board_keys
from wholesale.frontdesk.board.elsewhere import ASK_AGAIN, ASK_EVERY
from wholesale.frontdesk.board.picture import FrontdeskPlace, Picture
from wholesale.frontdesk.board.plots import EVERY_MS, Plots, point_of

logger = logging.getLogger(__name__)

# Seconds between two checks for silent processes; an event is shown so soon after it is known.
LOOK_EVERY: Final = 0.25
UPDATE_EVERY: Final = 1.0
# Watchers at once; each gets the whole document once a second.
MAX_STREAMS: Final = 100
_CONNECT_SECONDS: Final = 1.0
_ANSWER_SECONDS: Final = 1.8


class Board:
    """The board of one frontdesk.

    ``reaches`` returns whether its links to core and client are up. Other frontdesks' certificates
    must be signed by ``authorities`` or by an authority that this machine trusts.
    """

    def __init__(
        self,
        place: FrontdeskPlace,
        *,
        reaches: Callable[[], tuple[bool, bool]],
        key_file: Path | None = None,
        authorities: Path | None = None,
    ) -> None:
        self.picture = Picture(place, time.monotonic(), _wall_ms())
        self.plots = Plots()
        self._links_up = reaches
        self._key_file = key_file
        # Region → how often it refused a key. It may not know a new key yet: then the next one is
        # shown.
        self._refused: collections.Counter[str] = collections.Counter()
        # Other frontdesks' certificates may be signed by any authority, since readers use them too.
        self._tls = ClientTls(TlsFiles(authorities=authorities), also_system=True)
        self._watchers: set[asyncio.Event] = set()
        # The present documents as bytes, shared by all requests until the next check.
        self._made: dict[tuple[bool, int], bytes] = {}
        self._plots_made: bytes | None = None
        self._next_point = time.monotonic() + EVERY_MS / 1000
        self._next_update = 0.0
        self._updated_to = self.picture.events.last

    async def run(self) -> None:
        """Keep the board up to date until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for region, url in self.picture.place.others.items():
                tasks.create_task(self._ask_on(region, url))
            while True:
                self.refresh()
                await asyncio.sleep(LOOK_EVERY)

    def refresh(self) -> None:
        """Do the work that is due every quarter of a second."""
        now = time.monotonic()
        picture = self.picture
        core, client = self._links_up()
        picture.links(core=core, client=client, now=now)
        picture.update_events(now)
        self._made.clear()
        if now >= self._next_point:
            self._next_point = now + EVERY_MS / 1000
            self._plots_made = None
            for region in [picture.region(now, _wall_ms()), *picture.elsewhere.documents(now)]:
                known = region["state"] != "away"
                self.plots.add(region["name"], point_of(region) if known else {}, now)
        if now >= self._next_update or picture.events.last != self._updated_to:
            self._next_update = now + UPDATE_EVERY
            self._updated_to = picture.events.last
            for watcher in self._watchers:
                watcher.set()

    def board_document(self, *, own: bool = False, after: int = 0) -> bytes:
        """Return the present document, as JSON."""
        made = self._made.get((own, after))
        if made is None:
            found = self.picture.picture_document(
                time.monotonic(), _wall_ms(), own=own, after=after
            )
            made = self._made[own, after] = orjson.dumps(found)
        return made

    def plotted(self) -> bytes:
        """Return the plots of the last hour, as JSON."""
        if self._plots_made is None:
            found = self.plots.plots_document(time.monotonic(), _wall_ms())
            self._plots_made = orjson.dumps(found)
        return self._plots_made

    def watch(self, watcher: asyncio.Event) -> bool:
        """Set ``watcher`` at each update from now on; return False if there are too many."""
        if len(self._watchers) >= MAX_STREAMS:
            return False
        self._watchers.add(watcher)
        counters.BOARD_STREAMS.set(len(self._watchers))
        return True

    def unwatch(self, watcher: asyncio.Event) -> None:
        """Stop setting ``watcher``."""
        self._watchers.discard(watcher)
        counters.BOARD_STREAMS.set(len(self._watchers))

    async def _ask_on(self, region: str, url: str) -> None:
        http = SimpleAsyncHTTPClient(force_instance=True, max_body_size=MAX_ANSWER_BYTES)
        try:
            pause = ASK_AGAIN
            while True:
                # Before the first question too: the whole fabric may be starting.
                await asyncio.sleep(pause)
                good = await self._ask(http, region, f"{url.rstrip('/')}/board.json?own=1")
                pause = ASK_EVERY if good else ASK_AGAIN
        finally:
            http.close()

    async def _ask(self, http: SimpleAsyncHTTPClient, region: str, url: str) -> bool:
        elsewhere = self.picture.elsewhere
        try:
            request = HTTPRequest(
                url,
                headers=await self._headers(region),
                connect_timeout=_CONNECT_SECONDS,
                request_timeout=_ANSWER_SECONDS,
                follow_redirects=False,
                ssl_options=self._tls.context() if url.startswith("https://") else None,
            )
            answer = parse_answer((await fetch(http, request)).body, region)
        except ConfigError as exc:
            elsewhere.failed(region, str(exc))
        except HTTPClientError as exc:
            self._refused[region] += exc.code == 401
            elsewhere.failed(region, "no answer" if exc.code == 599 else f"HTTP {exc.code}")
        except OSError as exc:
            elsewhere.failed(region, exc.strerror or type(exc).__name__)
        except ValueError as exc:
            logger.debug("%s: %s", region, exc)
            elsewhere.failed(region, "an answer that isn't understood")
        else:
            elsewhere.answered(region, answer, time.monotonic())
            counters.BOARD_ANSWERED.inc()
            return True
        counters.BOARD_UNANSWERED.inc()
        return False

    async def _headers(self, region: str) -> dict[str, str]:
        """Return headers with a key that the frontdesk of ``region`` should accept, if any."""
        keys = await read_board_keys(self._key_file)
        return bearing(keys[self._refused[region] % len(keys)].key) if keys else {}


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
