"""SockJS 1.0 under ``/sockjs``, on sockjs-tornado 1.0.7.

The library provides the table of sessions with its expiry, CORS preflights, and the beginning and
end of a response. WebSocket (:mod:`gateway.transports.websocket`), sessions and packets are our
own. The library's had no bounds, lost the close frame behind another packet on a polling response,
and dropped the futures of their writes. They never ended a stream of HTTP/1.0, let proxies
transform it, and accepted any callback.

This module has the routes. A reader's session outlives the responses that it receives on.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.transports.sockjs.handlers import (
    GreetingHandler,
    IframeHandler,
    InfoHandler,
    ScriptHandler,
)
from gateway.transports.sockjs.receiving import (
    EventSourceHandler,
    HtmlFileHandler,
    JsonpHandler,
    XhrHandler,
    XhrStreamingHandler,
)
from gateway.transports.sockjs.sending import JsonpSendHandler, XhrSendHandler
from gateway.transports.sockjs.sessions import PREFIX, SessionRouter
from gateway.transports.websocket import SockJsWebSocketConnection, WebSocketHandler

__all__ = ["PREFIX", "SessionRouter", "routes"]

_SESSION: Final = PREFIX + r"/[^/.]+/(?P<session_id>[^/.]+)/"


def routes(router: SessionRouter) -> list[Any]:
    """Return the routes of one gateway. ``router`` has its sessions."""
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
