"""The pages: files as they are, with an ETag and a policy that lets them load nothing else.

``connect-src`` and ``frame-src`` (SockJS's iframe transports) are open, because which gateways
there are is only known when they are asked for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import tornado.web

import newsfabric

FOLDER: Final = Path(__file__).parent.parent / "pages"
# What other pages load, too: the JavaScript client, and sockjs-client, which gateways have as well.
SHARED: Final = Path(newsfabric.__file__).parent / "static"

# Made by scripts/metrics.
METRICS_PAGE: Final = "board-metrics.html"

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


class PageHandler(tornado.web.StaticFileHandler):
    """One file, as it is. Browsers ask each time and are told 304 when nothing changed.

    So a page never runs with the script of another release.
    """

    def set_default_headers(self) -> None:
        """Tornado calls it before each answer."""
        self.clear_header("Server")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Content-Security-Policy", _POLICY)
        self.set_header("Referrer-Policy", "no-referrer")

    def set_extra_headers(self, path: str) -> None:
        """Tornado calls it before it sends the file at ``path``."""
        self.set_header("Cache-Control", "no-cache")

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """One line, ``status_code``."""
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(f"{status_code}\n")


class MetricsPageHandler(PageHandler):
    """``/board/metrics``: what each number on the board is. Nothing in it is secret.

    Its anchors are metrics' names, a counter's without ``_total``.
    """

    async def get(self, path: str = "", include_body: bool = True) -> None:
        """200 with the page; 304 if the browser has it."""
        await super().get(METRICS_PAGE, include_body)

    async def head(self, path: str = "") -> None:
        """As :meth:`get`, without the page itself."""
        await super().head(METRICS_PAGE)


class SharedHandler(PageHandler):
    """A file that pages of other origins may load as well, be it as a module."""

    def set_default_headers(self) -> None:
        """Tornado calls it before each answer: any page may load it (CORS)."""
        super().set_default_headers()
        self.set_header("Access-Control-Allow-Origin", "*")


def page_routes(folder: Path = FOLDER) -> list[Any]:
    """Tornado routes for ``/``, ``/board/metrics`` and ``/static/…``."""
    return [
        (r"/board/metrics", MetricsPageHandler, {"path": folder}),
        (r"/(|index\.html)", PageHandler, {"path": folder, "default_filename": "index.html"}),
        (r"/static/(sockjs\.min\.js|newsfabric\.m?js)", SharedHandler, {"path": SHARED}),
        (r"/static/(.+)", PageHandler, {"path": folder}),
    ]
