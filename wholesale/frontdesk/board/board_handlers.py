"""The board over HTTP: its page, its document once or as a stream, the plots, login and logout."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from typing import Any, Final

from tornado.httputil import HTTPServerRequest
from tornado.iostream import StreamClosedError

from newsfabric.http.networks import Network
from newsfabric.http.origins import is_of_host
from newsfabric.http.pace import Rate
from newsfabric.messages.envelope import JSON
from newsfabric.tokens import Login
from wholesale.common.http import RETRY, ClientRateLimit, HttpProblem, JsonHandler
from wholesale.frontdesk.board.board import Board
from wholesale.frontdesk.board.board_access import (
    COOKIE,
    MAX_COOKIE_TOKEN,
    BoardAccess,
    BoardRefusal,
)
from wholesale.frontdesk.pages.handlers import FOLDER, PageHandler

#: Requests of one address; verifying a token's signature takes a tenth of a millisecond.
BOARD_RATE: Final = Rate(burst=100, per_second=10.0)
#: The operator's name, in each reply to a request with a login.
OPERATOR_HEADER: Final = "Newsfabric-Operator"
# A watcher that reads nothing for so many seconds is disconnected.
_TAKEN_WITHIN: Final = 10.0
_POLICY: Final = "; ".join(
    [
        "default-src 'self'",
        "img-src 'self' data:",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    ]
)


class BoardPageHandler(PageHandler):
    """``GET /board``: the page. It contains nothing that a stranger may not see."""

    def set_default_headers(self) -> None:
        """Allow the page's scripts to request this host alone. Called by Tornado."""
        super().set_default_headers()
        self.set_header("Content-Security-Policy", _POLICY)

    async def get(self, path: str = "board.html", include_body: bool = True) -> None:
        """Reply 200 with the page; 304 if the browser has it."""
        await super().get("board.html", include_body)

    async def head(self, path: str = "board.html") -> None:
        """Reply as :meth:`get`, without the page itself."""
        await super().head("board.html")


class _BoardHandler(JsonHandler):
    """The base of handlers for operators; with ``own`` also for frontdesks of other regions."""

    own = False

    def initialize(self, board: Board, access: BoardAccess, pace: ClientRateLimit) -> None:
        self._board, self._access, self._pace = board, access, pace
        self._until = math.inf

    async def prepare(self) -> None:
        headers = self.request.headers
        if not self._access.is_open_to(headers):
            self._pace.check_rate(self.request)
        found = await self._access.check(headers, self.get_cookie(COOKIE), own=self.own)
        if isinstance(found, BoardRefusal):
            raise problem(found)
        if isinstance(found, Login):
            self._until = found.ends_ms / 1000
            self.set_header(OPERATOR_HEADER, found.user)

    def send(self, document: bytes) -> None:
        """Finish with ``document``, which is JSON."""
        self.set_header("Content-Type", JSON)
        self.finish(document)


class BoardDocumentHandler(_BoardHandler):
    """``GET /board.json``: the whole document; with ``own=1`` the own region alone."""

    async def prepare(self) -> None:
        """Check the request; with ``own=1`` frontdesks of other regions are allowed, too."""
        self.own = self.get_query_argument("own", "") == "1"
        await super().prepare()

    def get(self) -> None:
        """Reply 200 with the document, JSON."""
        self.send(self._board.board_document(own=self.own))


class BoardPlotsHandler(_BoardHandler):
    """``GET /board/plots.json``: the last hour."""

    def get(self) -> None:
        """Reply 200 with the plots, JSON."""
        self.send(self._board.plotted())


class BoardStreamHandler(_BoardHandler):
    """``GET /board/stream``: the document each second, and at once after an event (SSE).

    A slow watcher misses updates and gets the next one; a watcher that reads nothing is
    disconnected. The stream ends with the login.
    """

    def initialize(self, board: Board, access: BoardAccess, pace: ClientRateLimit) -> None:
        """Set the arguments of :func:`board_routes`. Called by Tornado."""
        super().initialize(board, access, pace)
        self._wake = asyncio.Event()
        self._closed = False

    def on_connection_close(self) -> None:
        """End the stream after the watcher has disconnected. Called by Tornado."""
        self._closed = True
        self._wake.set()

    async def get(self) -> None:
        """Reply 200 and the stream; 503 if there are too many watchers."""
        if not self._board.watch(self._wake):
            raise HttpProblem(503, "busy", "too many watch the board", headers=RETRY)
        try:
            await self._stream()
        except (StreamClosedError, TimeoutError):
            self._closed = True
        finally:
            self._board.unwatch(self._wake)

    async def _stream(self) -> None:
        self.set_header("Content-Type", "text/event-stream; charset=utf-8")
        # Tells nginx not to buffer the stream.
        self.set_header("X-Accel-Buffering", "no")
        after = 0
        while not self._closed and time.time() < self._until:
            self._wake.clear()
            last = self._board.picture.events.last
            document = self._board.board_document(after=after)
            self.write(b"event: update\nid: %d\ndata: %b\n\n" % (last, document))
            after = last
            async with asyncio.timeout(_TAKEN_WITHIN):
                await self.flush()
            if self.request.method == "HEAD":
                return
            await self._wake.wait()


class BoardLoginHandler(JsonHandler):
    """``POST /board/login`` with ``token=…``: 204 and a cookie, or 403.

    The cookie is the token; scripts can't read it, and no other site's request carries it.
    """

    def initialize(self, board: Board, access: BoardAccess, pace: ClientRateLimit) -> None:
        """Set the arguments of :func:`board_routes`. Called by Tornado."""
        self._access, self._pace = access, pace

    async def post(self) -> None:
        """Log in; 403 also for a token too long for a cookie and for another site's page; 429."""
        self._pace.check_rate(self.request)
        origin = _own_origin(self.request)
        token = self.get_body_argument("token", "")
        if len(token) > MAX_COOKIE_TOKEN:
            raise HttpProblem(403, "too_long", f"a cookie holds {MAX_COOKIE_TOKEN} characters")
        found = await self._access.login(token)
        if isinstance(found, BoardRefusal):
            raise HttpProblem(403, found.reason, found.detail)
        left = max(0, int(found.ends_ms / 1000 - time.time()))
        secure = self.request.protocol == "https" or (origin or "").startswith("https:")
        options: dict[str, Any] = {"max_age": left, "httponly": True, "samesite": "Strict"}
        if secure:
            options["secure"] = True
        self.set_cookie(COOKIE, token, path="/", **options)
        self.set_status(204)


class BoardLogoutHandler(JsonHandler):
    """``POST /board/logout``: 204, and the browser forgets the cookie.

    The token itself stays valid until it ends: frontdesks receive no revocations.
    """

    def initialize(self, pace: ClientRateLimit) -> None:
        """Set ``pace``, the rate limit of each address. Called by Tornado."""
        self._pace = pace

    def post(self) -> None:
        """Log out; 403 for another site's page, 429 for too many requests of an address."""
        self._pace.check_rate(self.request)
        _own_origin(self.request)
        self.clear_cookie(COOKIE, path="/", httponly=True, samesite="Strict")
        self.set_status(204)


def _own_origin(request: HTTPServerRequest) -> str | None:
    """Return the origin of the asking page, if any; HttpProblem if it isn't of this host."""
    origin: str | None = request.headers.get("Origin")
    if origin is not None and not is_of_host(origin, request.headers.get("Host")):
        raise HttpProblem(403, "permission_denied", "not for other pages")
    return origin


def problem(refusal: BoardRefusal) -> HttpProblem:
    """Return ``refusal`` as an HTTP error; a 401 asks for a token (RFC 9110 section 15.5.2)."""
    asks = {"WWW-Authenticate": "Bearer"} if refusal.status == 401 else {}
    return HttpProblem(refusal.status, refusal.reason, refusal.detail, headers=asks)


def board_routes(board: Board, access: BoardAccess, balancers: Sequence[Network]) -> list[Any]:
    """Return Tornado routes of the board; ``balancers`` are trusted in X-Forwarded-For."""
    settings: dict[str, Any] = {
        "board": board,
        "access": access,
        "pace": ClientRateLimit(BOARD_RATE, balancers),
    }
    return [
        (r"/board", BoardPageHandler, {"path": FOLDER}),
        (r"/board\.json", BoardDocumentHandler, settings),
        (r"/board/stream", BoardStreamHandler, settings),
        (r"/board/plots\.json", BoardPlotsHandler, settings),
        (r"/board/login", BoardLoginHandler, settings),
        (r"/board/logout", BoardLogoutHandler, {"pace": settings["pace"]}),
    ]
