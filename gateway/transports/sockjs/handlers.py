"""The base of all of SockJS's HTTP handlers, and the handlers that belong to no session."""

from __future__ import annotations

import hashlib
import html
import importlib.resources
import re
import secrets
import time
from email.utils import formatdate
from typing import Any, Final

import orjson

from gateway.readers.admission import AdmissionDecision
from gateway.transports.sockjs.sockjs_tornado import BaseHandler, PreflightHandler
from gateway.transports.streaming import ReaderHandler
from newsfabric.process.service import HeadHandler

_YEAR: Final = 365 * 86400
# A value like a name. A balancer removes its own prefix from it before the cookie is received here.
_KEPT_COOKIE: Final = re.compile(r"[A-Za-z0-9._~-]{1,128}", re.ASCII)
# SockJS 1.0 has this line in framed pages. In browsers that still support it, it opens them to
# pages of every port of our host. So it is left out where not every page may connect.
DOMAIN: Final = "\n    document.domain = document.domain;"

IFRAME_PAGE: Final = """<!DOCTYPE html>
<html>
<head>
  <meta http-equiv="X-UA-Compatible" content="IE=edge" />
  <meta http-equiv="Content-Type" content="text/html; charset=UTF-8" />
  <script src="{url}"></script>
  <script>{domain}
    SockJS.bootstrap_iframe();
  </script>
</head>
<body>
  <h2>Don't panic!</h2>
  <p>This is a SockJS hidden iframe. It's used for cross domain magic.</p>
</body>
</html>
"""


class SockJsHandler(ReaderHandler, BaseHandler):  # type: ignore[misc]
    """The base of every HTTP handler here."""

    def initialize(self, server: Any) -> None:
        """Take ``server`` from the route: the router of
        :mod:`gateway.transports.sockjs.sessions`."""
        super().initialize(server)
        self.core = server.core

    def prepare(self) -> None:
        """Answer 403 to a page of an origin that isn't allowed, before each request."""
        super().prepare()
        if not self.verify_origin():
            self._turn_away(AdmissionDecision.BAD_ORIGIN)

    def verify_origin(self) -> bool:
        """Return whether the requesting page may connect; programs, which send no origin, may."""
        return self.core.origins.allows(self.request.headers)

    def preflight(self) -> None:
        """Set the CORS headers, also of answers that aren't to preflights."""
        self.set_header("Vary", "Origin")
        origin = self.request.headers.get("Origin")
        if not origin:
            self.set_header("Access-Control-Allow-Origin", "*")
            return
        # Also "null", of a page without an origin: with credentials browsers don't accept "*".
        self.set_header("Access-Control-Allow-Origin", origin)
        self.set_header("Access-Control-Allow-Credentials", "true")
        asked = self.request.headers.get("Access-Control-Request-Headers")
        if asked:
            self.set_header("Access-Control-Allow-Headers", asked)

    def handle_session_cookie(self) -> None:
        """Set the cookie ``JSESSIONID``, into which balancers put their mark (SockJS 1.0)."""
        settings = self.core.settings
        if not settings.sockjs_cookie:
            return
        kept = self.cookies.get("JSESSIONID")
        value = kept.value if kept and _KEPT_COOKIE.fullmatch(kept.value) else "dummy"
        # Without these two, browsers drop the cookie where the page is of another site.
        secure = "; Secure; SameSite=None" if settings.is_secure else ""
        self.set_header("Set-Cookie", f"JSESSIONID={value}; path=/{secure}")

    def enable_cache(self) -> None:
        """Let caches keep the answer for a year (SockJS 1.0: static answers are cached)."""
        self.set_header("Cache-Control", f"max-age={_YEAR}, public")
        self.set_header("Expires", formatdate(time.time() + _YEAR, usegmt=True))
        self.set_header("Access-Control-Max-Age", str(_YEAR))

    def disable_cache(self) -> None:
        """Forbid proxies to store or to transform the answer (SockJS 1.0)."""
        self.set_header(
            "Cache-Control", "no-store, no-cache, no-transform, must-revalidate, max-age=0"
        )

    def compute_etag(self) -> str | None:
        """Return None: with Tornado's ETag for every answer, a poll could be answered with 304."""
        return None

    def _set_session_headers(self) -> None:
        """Set the headers of every answer to a session's requests."""
        self.preflight()
        self.handle_session_cookie()
        self.disable_cache()

    def find_session(self, session_id: str) -> Any:
        """Return the session; None if there is none. If it is another reader's: None, and 404."""
        session = self.server.get_session(session_id)
        if session is None:
            return None
        token = self.core.origins.token_of(self.request.headers)
        if session.is_of(self.request.remote_ip, token):
            return session
        # The same answer as without a session: its existence is a part of the secret.
        self._refuse(404, "no such session")
        return None

    def _refuse(self, status: int, text: str) -> None:
        self.set_status(status)
        self.preflight()
        self.disable_cache()
        self.set_header("Content-Type", "text/plain; charset=UTF-8")
        self.finish(text)


class GreetingHandler(HeadHandler, SockJsHandler):
    """``/sockjs``: a page that shows people that SockJS is served."""

    def get(self) -> None:
        """Answer 200 with the text that SockJS 1.0 demands."""
        self.enable_cache()
        self.set_header("Content-Type", "text/plain; charset=UTF-8")
        self.finish("Welcome to SockJS!\n")


class InfoHandler(HeadHandler, SockJsHandler, PreflightHandler):  # type: ignore[misc]
    """``/sockjs/info``: the first request of sockjs-client."""

    access_methods = "OPTIONS, GET, HEAD"

    def get(self) -> None:
        """Answer 200 with SockJS 1.0's four fields; never cached, as ``entropy`` always differs."""
        self.preflight()
        self.disable_cache()
        self.set_header("Content-Type", "application/json; charset=UTF-8")
        info = {
            "websocket": self.core.settings.websocket,
            "cookie_needed": self.core.settings.sockjs_cookie,
            "origins": ["*:*"],
            "entropy": secrets.randbits(32),
        }
        self.finish(orjson.dumps(info))


class IframeHandler(HeadHandler, SockJsHandler):
    """``/sockjs/iframe*.html``. Tornado handles If-None-Match."""

    def compute_etag(self) -> str | None:
        """Return the page's ETag, which SockJS 1.0 demands. It differs with the policy."""
        policy = self.core.origins.content_policy or ""
        version = [*self._write_buffer, policy.encode()]
        return f'"{hashlib.sha256(b"".join(version)).hexdigest()}"'

    def get(self) -> None:
        """Answer 200 with the page that loads sockjs-client in a frame."""
        policy = self.core.origins.content_policy
        if policy is None:
            self.enable_cache()
        else:
            # A cached page would outlive a change of the listed origins.
            self.set_header("Cache-Control", "no-cache")
            self.set_header("Content-Security-Policy", policy)
        self.set_header("Content-Type", "text/html; charset=UTF-8")
        domain = DOMAIN if policy is None else ""
        url = html.escape(self.core.settings.sockjs_url)
        self.finish(IFRAME_PAGE.format(url=url, domain=domain))


class ScriptHandler(HeadHandler):
    """``/sockjs.min.js``: sockjs-client, for the iframe page and for pages without their own."""

    def get(self) -> None:
        """Answer 200 with the script, which caches may keep for a day."""
        script = importlib.resources.files("newsfabric") / "static" / "sockjs.min.js"
        self.set_header("Content-Type", "text/javascript; charset=utf-8")
        self.set_header("Cache-Control", "public, max-age=86400")
        self.finish(script.read_bytes())
