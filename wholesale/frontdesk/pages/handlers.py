"""The pages: files as they are, with an ETag and a policy that lets them load nothing else.

``connect-src`` and ``frame-src`` (SockJS's iframe transports) are open, because the gateways are
known only from /endpoints.json.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import tornado.web

import newsfabric
from wholesale.frontdesk.pages.metrics_page import metrics_file, page

FOLDER: Final = Path(__file__).parent / "files"
# Files that other pages load, too: the JavaScript client, and sockjs-client, which gateways serve
# as well.
SHARED: Final = Path(newsfabric.__file__).parent / "static"

_POLICY: Final = "; ".join(
    [
        "default-src 'self'",
        "connect-src * ws: wss:",
        "frame-src *",
        "img-src 'self' data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
)


class _Guarded(tornado.web.RequestHandler):
    """The headers and the errors of every page."""

    def set_default_headers(self) -> None:
        """Set the security headers. Called by Tornado before each reply."""
        self.clear_header("Server")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Content-Security-Policy", _POLICY)
        self.set_header("Referrer-Policy", "no-referrer")

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Reply with one line, ``status_code``."""
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(f"{status_code}\n")


class PageHandler(_Guarded, tornado.web.StaticFileHandler):
    """The handler of files. Browsers revalidate each time and get 304 for an unchanged file.

    So a page never runs with the script of another release.
    """

    def set_extra_headers(self, path: str) -> None:
        """Require revalidation of the file at ``path``. Called by Tornado."""
        self.set_header("Cache-Control", "no-cache")


class MetricsPageHandler(_Guarded):
    """``/board/metrics``: the meaning of each number on the board. Nothing in it is secret.

    Its anchors are metrics' names, a counter's without ``_total``.
    """

    def initialize(self, page: str) -> None:
        """Take the page. Called by Tornado."""
        self._page = page

    async def get(self) -> None:
        """Reply 200 with the page; 304 if the browser has it."""
        self.set_header("Content-Type", "text/html")
        self.set_header("Cache-Control", "no-cache")
        await self.finish(self._page)

    head = get


class SharedHandler(PageHandler):
    """The handler of files that pages of other origins may load as well, also as a module."""

    def set_default_headers(self) -> None:
        """Allow any page to load the file (CORS). Called by Tornado before each reply."""
        super().set_default_headers()
        self.set_header("Access-Control-Allow-Origin", "*")


def page_routes(folder: Path = FOLDER) -> list[Any]:
    """Return Tornado routes for ``/``, ``/board/metrics`` and ``/static/…``."""
    metrics = page(metrics_file().read_text())
    return [
        (r"/board/metrics", MetricsPageHandler, {"page": metrics}),
        (r"/(|index\.html)", PageHandler, {"path": folder, "default_filename": "index.html"}),
        (r"/static/(sockjs\.min\.js|newsfabric\.m?js)", SharedHandler, {"path": SHARED}),
        (r"/static/(.+)", PageHandler, {"path": folder}),
    ]
