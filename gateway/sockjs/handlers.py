"""What all of SockJS's HTTP handlers do alike: CORS, caching, origins, the balancers' cookie."""

from __future__ import annotations

import re
import time
from email.utils import formatdate
from typing import Any, Final

from gateway.admission import Welcome
from gateway.sockjs.sockjs_tornado import BaseHandler
from gateway.streaming import ReaderHandler

_YEAR: Final = 365 * 86400
# A name or so; what a balancer in front puts before it comes back without.
_KEPT_COOKIE: Final = re.compile(r"[A-Za-z0-9._~-]{1,128}", re.ASCII)


class Polite(ReaderHandler, BaseHandler):  # type: ignore[misc]
    """Base of every HTTP handler here."""

    def initialize(self, server: Any) -> None:
        super().initialize(server)
        self.core = server.core

    def prepare(self) -> None:
        super().prepare()
        if not self.verify_origin():
            self._turn_away(Welcome.BAD_ORIGIN)

    def verify_origin(self) -> bool:
        """Whether the page's origin may connect."""
        return self.core.origins.allows(self.request.headers)

    def preflight(self) -> None:
        """CORS headers, also of answers that aren't to preflights."""
        self.set_header("Vary", "Origin")
        origin = self.request.headers.get("Origin")
        if not origin:
            self.set_header("Access-Control-Allow-Origin", "*")
            return
        # Also for "null", a page without an origin: with credentials browsers take no "*".
        self.set_header("Access-Control-Allow-Origin", origin)
        self.set_header("Access-Control-Allow-Credentials", "true")
        asked = self.request.headers.get("Access-Control-Request-Headers")
        if asked:
            self.set_header("Access-Control-Allow-Headers", asked)

    def handle_session_cookie(self) -> None:
        """SockJS 1.0: balancers in front put their mark into ``JSESSIONID``, whatever its value."""
        settings = self.core.settings
        if not settings.sockjs_cookie:
            return
        kept = self.cookies.get("JSESSIONID")
        value = kept.value if kept and _KEPT_COOKIE.fullmatch(kept.value) else "dummy"
        # Without these two, browsers drop it where the page is of another site.
        secure = "; Secure; SameSite=None" if settings.is_secure else ""
        self.set_header("Set-Cookie", f"JSESSIONID={value}; path=/{secure}")

    def enable_cache(self) -> None:
        """A year (SockJS 1.0: static answers are cached)."""
        self.set_header("Cache-Control", f"max-age={_YEAR}, public")
        self.set_header("Expires", formatdate(time.time() + _YEAR, usegmt=True))
        self.set_header("Access-Control-Max-Age", str(_YEAR))

    def disable_cache(self) -> None:
        """SockJS 1.0: proxies must neither keep nor transform it."""
        self.set_header(
            "Cache-Control", "no-store, no-cache, no-transform, must-revalidate, max-age=0"
        )

    def compute_etag(self) -> str | None:
        """Tornado would give one to every answer, and answer a poll with 304."""
        return None

    def _answer_politely(self) -> None:
        """What the head of every answer to a session's requests has."""
        self.preflight()
        self.handle_session_cookie()
        self.disable_cache()

    def _refuse(self, status: int, text: str) -> None:
        self.set_status(status)
        self.preflight()
        self.disable_cache()
        self.set_header("Content-Type", "text/plain; charset=UTF-8")
        self.finish(text)
