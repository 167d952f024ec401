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
from wholesale.common.http import RETRY, AskerPace, HttpProblem, JsonHandler
from wholesale.frontdesk.board import Board
from wholesale.frontdesk.board_access import COOKIE, MAX_COOKIE_TOKEN, BoardAccess, Refusal
from wholesale.frontdesk.pages import FOLDER, PageHandler

#: What one address may ask: a token's signature costs a tenth of a millisecond.
BOARD_RATE: Final = Rate(burst=100, per_second=10.0)
#: Who is logged in, in each answer to a login's request.
OPERATOR_HEADER: Final = "Newsfabric-Operator"
# A watcher that takes nothing for so long is let go.
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
    """``GET /board``: the page. It holds nothing that a stranger may not see."""

    def set_default_headers(self) -> None:
        """Tornado calls it before each answer: the page's scripts may ask this host alone."""
        super().set_default_headers()
        self.set_header("Content-Security-Policy", _POLICY)

    async def get(self, path: str = "board.html", include_body: bool = True) -> None:
        """200 with the page; 304 if the browser has it."""
        await super().get("board.html", include_body)

    async def head(self, path: str = "board.html") -> None:
        """As :meth:`get`, without the page itself."""
        await super().head("board.html")


class _BoardHandler(JsonHandler):
    """What only operators see; with ``own`` frontdesks of other regions, too."""

    own = False

    def initialize(self, board: Board, access: BoardAccess, pace: AskerPace) -> None:
        self._board, self._access, self._pace = board, access, pace
        self._until = math.inf

    async def prepare(self) -> None:
        headers = self.request.headers
        if not self._access.is_open_to(headers):
            self._pace.mind(self.request)
        found = await self._access.check(headers, self.get_cookie(COOKIE), own=self.own)
        if isinstance(found, Refusal):
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
        """With ``own=1`` frontdesks of other regions may ask, too."""
        self.own = self.get_query_argument("own", "") == "1"
        await super().prepare()

    def get(self) -> None:
        """200 with the document, JSON."""
        self.send(self._board.document(own=self.own))


class BoardPlotsHandler(_BoardHandler):
    """``GET /board/plots.json``: the last hour."""

    def get(self) -> None:
        """200 with the plots, JSON."""
        self.send(self._board.plotted())


class BoardStreamHandler(_BoardHandler):
    """``GET /board/stream``: the document each second, and at once when there is an event (SSE).

    A watcher that is slow misses updates and gets the next one; who takes nothing is let go. It
    ends with the login.
    """

    def initialize(self, board: Board, access: BoardAccess, pace: AskerPace) -> None:
        """Tornado gives it what :func:`board_routes` was given."""
        super().initialize(board, access, pace)
        self._wake = asyncio.Event()
        self._closed = False

    def on_connection_close(self) -> None:
        """Tornado calls it once the watcher has gone: the stream ends."""
        self._closed = True
        self._wake.set()

    async def get(self) -> None:
        """200 and the stream; 503 if too many watch already."""
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
        # Of nginx, which would wait for more.
        self.set_header("X-Accel-Buffering", "no")
        after = 0
        while not self._closed and time.time() < self._until:
            self._wake.clear()
            last = self._board.picture.events.last
            document = self._board.document(after=after)
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

    def initialize(self, board: Board, access: BoardAccess, pace: AskerPace) -> None:
        """Tornado gives it what :func:`board_routes` was given."""
        self._access, self._pace = access, pace

    async def post(self) -> None:
        """403 also for a token too long for a cookie, or another site's page; 429 for too many."""
        self._pace.mind(self.request)
        origin = _own_origin(self.request)
        token = self.get_body_argument("token", "")
        if len(token) > MAX_COOKIE_TOKEN:
            raise HttpProblem(403, "too_long", f"a cookie holds {MAX_COOKIE_TOKEN} characters")
        found = await self._access.login(token)
        if isinstance(found, Refusal):
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

    The token itself is good until it ends: frontdesks hear of no revocations.
    """

    def initialize(self, pace: AskerPace) -> None:
        """Tornado gives it the ``pace`` at which one address may ask."""
        self._pace = pace

    def post(self) -> None:
        """403 for another site's page, 429 for who asks too often."""
        self._pace.mind(self.request)
        _own_origin(self.request)
        self.clear_cookie(COOKIE, path="/", httponly=True, samesite="Strict")
        self.set_status(204)


def _own_origin(request: HTTPServerRequest) -> str | None:
    """The origin of the page that asks, if it says one; HttpProblem for a page of another."""
    origin: str | None = request.headers.get("Origin")
    if origin is not None and not is_of_host(origin, request.headers.get("Host")):
        raise HttpProblem(403, "permission_denied", "not for other pages")
    return origin


def problem(refusal: Refusal) -> HttpProblem:
    """``refusal`` as an HTTP error; with 401 it asks for a token (RFC 9110 section 15.5.2)."""
    asks = {"WWW-Authenticate": "Bearer"} if refusal.status == 401 else {}
    return HttpProblem(refusal.status, refusal.reason, refusal.detail, headers=asks)


def board_routes(board: Board, access: BoardAccess, balancers: Sequence[Network]) -> list[Any]:
    """Tornado routes of the board; ``balancers`` say in X-Forwarded-For who asks."""
    settings: dict[str, Any] = {
        "board": board,
        "access": access,
        "pace": AskerPace(BOARD_RATE, balancers),
    }
    return [
        (r"/board", BoardPageHandler, {"path": FOLDER}),
        (r"/board\.json", BoardDocumentHandler, settings),
        (r"/board/stream", BoardStreamHandler, settings),
        (r"/board/plots\.json", BoardPlotsHandler, settings),
        (r"/board/login", BoardLoginHandler, settings),
        (r"/board/logout", BoardLogoutHandler, {"pace": settings["pace"]}),
    ]
