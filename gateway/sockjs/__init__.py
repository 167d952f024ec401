"""SockJS 1.0 under ``/sockjs``, on sockjs-tornado 1.0.7.

From the library: the table of sessions with its expiry, and the handlers' skeletons. Not
from it: WebSocket (:mod:`gateway.websocket`), the queue of waiting messages
(our outbox, so polling readers are bounded like all others), and these faults, mended by
subclassing:

* a second packet in one turn on a polling response raised and lost the close frame: a response
  takes one packet, then counts as blocked;
* futures of writes were dropped, and a reader who was gone raised in the sender's face;
* HTTP/1.0 responses of a streaming transport never ended;
* ``Cache-Control`` lacked ``no-transform``;
* the iframe page was of protocol 0.3, and pointed to a CDN;
* jsonp and htmlfile took any callback. They are off unless the setting says otherwise.

Here are the routes. A reader's session, which outlives the responses that come and go, is in
``sessions``; those that it receives on in ``receiving``; the requests that bring its verbs in
``sending``; the pages that belong to no session in ``handlers``.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.sockjs.handlers import GreetingHandler, IframeHandler, InfoHandler, ScriptHandler
from gateway.sockjs.receiving import (
    EventSourceHandler,
    HtmlFileHandler,
    JsonpHandler,
    XhrHandler,
    XhrStreamingHandler,
)
from gateway.sockjs.sending import JsonpSendHandler, XhrSendHandler
from gateway.sockjs.sessions import PREFIX, Router
from gateway.websocket import SockJsWebSocketConnection, WebSocketHandler

__all__ = ["PREFIX", "Router", "routes"]

_SESSION: Final = PREFIX + r"/[^/.]+/(?P<session_id>[^/.]+)/"


def routes(router: Router) -> list[Any]:
    """The URLs of one gateway. ``router`` has its sessions."""
    core = router.core
    http = {"server": router}
    framed = {"core": core, "connection": SockJsWebSocketConnection}
    found: list[Any] = [
        (PREFIX + r"/?", GreetingHandler, http),
        (PREFIX + r"/info", InfoHandler, http),
        (PREFIX + r"/websocket", WebSocketHandler, {"core": core}),
        (_SESSION + "websocket", WebSocketHandler, framed),
        (_SESSION + "xhr", XhrHandler, http),
        (_SESSION + "xhr_streaming", XhrStreamingHandler, http),
        (_SESSION + "xhr_send", XhrSendHandler, http),
        (_SESSION + "eventsource", EventSourceHandler, http),
        (r"/sockjs\.min\.js", ScriptHandler),
    ]
    if core.origins.may_be_framed:
        found.append((PREFIX + r"/iframe[0-9-.a-z_]*\.html", IframeHandler, http))
    if core.settings.sockjs_legacy:
        found += [
            (_SESSION + "jsonp", JsonpHandler, http),
            (_SESSION + "jsonp_send", JsonpSendHandler, http),
            (_SESSION + "htmlfile", HtmlFileHandler, http),
        ]
    return found
