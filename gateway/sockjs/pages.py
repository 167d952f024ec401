"""Pages that belong to no session: the greeting, what sockjs-client asks first, its iframe."""

from __future__ import annotations

import hashlib
import html
import importlib.resources
import secrets
from typing import Final

import orjson
import tornado.web

from gateway.sockjs.handlers import Polite
from gateway.sockjs.sockjs_tornado import PreflightHandler

# SockJS 1.0 has it in pages that are framed. It opens them to every port of our host, where
# browsers still obey it; so it is left out where not everyone may come in.
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


class GreetingHandler(Polite):
    """``/sockjs``: a person's test that it is there."""

    def get(self) -> None:
        self.enable_cache()
        self.set_header("Content-Type", "text/plain; charset=UTF-8")
        self.finish("Welcome to SockJS!\n")


class InfoHandler(Polite, PreflightHandler):  # type: ignore[misc]
    """``/sockjs/info``: what sockjs-client asks first."""

    access_methods = "OPTIONS, GET"

    def get(self) -> None:
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


class IframeHandler(Polite):
    """``/sockjs/iframe*.html``; Tornado answers If-None-Match."""

    def compute_etag(self) -> str | None:
        """SockJS 1.0: the page has one. Another policy makes it another page."""
        policy = self.core.origins.content_policy or ""
        version = [*self._write_buffer, policy.encode()]
        return f'"{hashlib.sha256(b"".join(version)).hexdigest()}"'

    def get(self) -> None:
        origins = self.core.origins
        policy = origins.content_policy
        if policy is None:
            self.enable_cache()
        else:
            # A copy in a browser would outlive a change of the list.
            self.set_header("Cache-Control", "no-cache")
            self.set_header("Content-Security-Policy", policy)
        self.set_header("Content-Type", "text/html; charset=UTF-8")
        domain = "" if origins.is_guarded else DOMAIN
        url = html.escape(self.core.settings.sockjs_url)
        self.finish(IFRAME_PAGE.format(url=url, domain=domain))


class ScriptHandler(tornado.web.RequestHandler):
    """``/sockjs.min.js``: sockjs-client, for the iframe page and for whoever has none."""

    def get(self) -> None:
        script = importlib.resources.files("newsfabric") / "static" / "sockjs.min.js"
        self.set_header("Content-Type", "text/javascript; charset=utf-8")
        self.set_header("Cache-Control", "public, max-age=86400")
        self.finish(script.read_bytes())
