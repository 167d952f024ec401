"""SockJS 1.0 under ``/sockjs``, on sockjs-tornado 1.0.7: the only module that imports it.

From the library: the table of sessions with its expiry, and the handlers' skeletons. Not
from it: WebSocket (:mod:`gateway.sockjs_websocket`), the queue of waiting messages
(our outbox, so polling readers are bounded like all others), and these faults, mended by
subclassing:

* a second packet in one turn on a polling response raised and lost the close frame: a response
  takes one packet, then counts as blocked;
* futures of writes were dropped, and a reader who was gone raised in the sender's face;
* HTTP/1.0 responses of a streaming transport never ended;
* ``Cache-Control`` lacked ``no-transform``;
* the iframe page was of protocol 0.3, and pointed to a CDN;
* jsonp and htmlfile took any callback. They are off unless the setting says otherwise.
"""

from __future__ import annotations

import asyncio
import hashlib
import html
import importlib.resources
import json
import re
import secrets
import time
import warnings
from email.utils import formatdate
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote_plus

import orjson
import tornado.web
from tornado.ioloop import IOLoop

from gateway import measures
from gateway.bodies import Bodies, Body, Verdict
from gateway.connection import Connection
from gateway.core import Welcome
from gateway.frames import (
    Variant,
    dress,
    sockjs_array,
    sockjs_close,
)
from gateway.framing import content_policy, is_guarded, may_be_framed
from gateway.protocol import LogIn
from gateway.sockjs_websocket import SockJsWebSocketHandler
from gateway.streaming import StreamHandler, refuse_method
from gateway.websocket import NoWebSocketHandler, WebSocketHandler
from newsfabric.addresses import Addresses
from newsfabric.closing import TOO_BIG, CloseReason

with warnings.catch_warnings():
    # It decorates its handlers with a function that warns, and has a stray escape in a pattern.
    warnings.simplefilter("ignore")
    from sockjs.tornado import SockJSRouter
    from sockjs.tornado import transports as library
    from sockjs.tornado.basehandler import BaseHandler, PreflightHandler
    from sockjs.tornado.session import CLOSED, CONNECTING, OPEN, BaseSession
    from sockjs.tornado.sessioncontainer import SessionMixin
    from sockjs.tornado.transports.htmlfile import HTMLFILE_HEAD

if TYPE_CHECKING:
    from gateway.core import Core

PREFIX: Final = "/sockjs"
_SESSION: Final = PREFIX + r"/[^/.]+/(?P<session_id>[^/.]+)/"
_YEAR: Final = 365 * 86400
# Of a body that is too large so many times the limit is read all the same, and dropped: browsers
# hear no answer before they have sent everything.
_REFUSED_BODIES: Final = 4
_JAVASCRIPT: Final = "application/javascript; charset=UTF-8"
# SockJS 1.0 has it in pages that are framed. It opens them to every port of our host, where
# browsers still heed it; so it is left out where not everyone may come in.
_DOMAIN: Final = "\n    document.domain = document.domain;"
# A name or so; what a balancer in front puts before it comes back without.
_KEPT_COOKIE: Final = re.compile(r"[A-Za-z0-9._~-]{1,128}", re.ASCII)
_CALLBACK: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}", re.ASCII)

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


class SockJs:
    """Routes and sessions of one gateway. Call :meth:`stop` before its loop ends."""

    def __init__(self, core: Core) -> None:
        self._router = _Router(core)
        http = {"server": self._router}
        own = {"core": core}
        raw: type[StreamHandler] = WebSocketHandler
        framed: type[StreamHandler] = SockJsWebSocketHandler
        if not core.settings.websocket:
            raw = framed = NoWebSocketHandler
        self.routes: list[Any] = [
            (PREFIX + r"/?", GreetingHandler, http),
            (PREFIX + r"/info", InfoHandler, http),
            (PREFIX + r"/websocket", raw, own),
            (_SESSION + "websocket", framed, own),
            (_SESSION + "xhr", XhrHandler, http),
            (_SESSION + "xhr_streaming", XhrStreamingHandler, http),
            (_SESSION + "xhr_send", XhrSendHandler, http),
            (_SESSION + "eventsource", EventSourceHandler, http),
            (r"/sockjs\.min\.js", ScriptHandler),
        ]
        if may_be_framed(core.settings):
            self.routes.append((PREFIX + r"/iframe[0-9-.a-z_]*\.html", IframeHandler, http))
        if core.settings.sockjs_legacy:
            self.routes += [
                (_SESSION + "jsonp", JsonpHandler, http),
                (_SESSION + "jsonp_send", JsonpSendHandler, http),
                (_SESSION + "htmlfile", HtmlFileHandler, http),
            ]

    def stop(self) -> None:
        """Let go of timers and sessions."""
        self._router.stop()


class _Router(SockJSRouter):  # type: ignore[misc]
    """Sessions and settings; the URLs are ours."""

    def __init__(self, core: Core) -> None:
        settings = {
            "disconnect_delay": core.settings.sockjs_disconnect_delay,
            "session_check_interval": min(1.0, core.settings.sockjs_disconnect_delay / 2),
            "response_limit": core.settings.sockjs_response_bytes,
            # A phone changes its address in mid-session; the session's name is the secret.
            "verify_ip": False,
        }
        self.core = core
        self.bodies = Bodies(core.settings.sockjs_bodies_bytes)
        # One connection can carry any number of sessions: they count by themselves.
        self.addresses = Addresses(core.settings.per_address)
        super().__init__(None, prefix=PREFIX, user_settings=settings, io_loop=IOLoop.current())

    def open_session(self, session_id: str, transport: str, address: str) -> _Session:
        """A new session, with its reader, begun by ``transport`` from ``address``."""
        session = _Session(self, session_id, transport, address)
        self._sessions.add(session)
        return session

    def stop(self) -> None:
        self._sessions_cleanup.stop()
        self.stats._callback.stop()
        for session in list(self._sessions._items.values()):
            session.forget()


class HttpConnection(Connection):
    """A reader on one of SockJS's HTTP transports: blocked unless a response waits for us."""

    variant = Variant.SOCKJS

    def __init__(self, core: Core, session: _Session, transport: str) -> None:
        self.transport = transport
        super().__init__(core)
        # A body brings all of that at once, and between two polls its verbs wait.
        self.most_verb_bytes = core.settings.reader.burst_bytes
        self._session = session
        self.blocked = True

    def _write(self, frames: list[bytes]) -> None:
        # One packet is under way at a time: what comes meanwhile leaves together.
        self.blocked = True
        self._session.handler.send_pack(sockjs_array(frames))

    def lost(self, why: str) -> None:
        """As :meth:`Connection.lost`; its address may have another one."""
        super().lost(why)
        self._session.leave_address()

    def _say_goodbye(self, push: bytes, reason: CloseReason) -> None:
        self._firm(dress(push, self.variant))
        self._session.ended(reason.code, reason.text)


class _Session(BaseSession, SessionMixin):  # type: ignore[misc]
    """A SockJS session: whichever response is there now, and the reader behind it.

    The session outlives its reader by ``disconnect_delay``, to answer late polls.
    """

    # The library's handlers ask for this before they flush. Here, flushing is always right.
    send_queue = True

    def __init__(self, server: _Router, session_id: str, transport: str, address: str) -> None:
        SessionMixin.__init__(self, session_id, server.settings["disconnect_delay"])
        BaseSession.__init__(self, lambda _: None, server)
        self.state: int
        # Whose it is, wherever it goes on from: until its reader is gone.
        self._address = address if server.addresses.enter(address) else None
        self.reader = HttpConnection(server.core, self, transport)
        self._beat: asyncio.TimerHandle | None = None

    def set_handler(self, handler: Any, start_heartbeat: bool = True) -> bool:
        """Attach a response; False if it was answered with a close frame instead."""
        if self.handler is not None:
            # SockJS 1.0, "Another connection still open": the first response stays.
            handler.send_pack(sockjs_close(2010, "Another connection still open"))
            return False
        if self.is_closed and not len(self.reader.outbox):
            self._told(handler.send_pack)
            return False
        super().set_handler(handler)
        self.promote()
        return True

    def verify_state(self) -> None:
        """Open the session on its first response."""
        if self.state == CONNECTING:
            self.state = OPEN
            self.handler.send_pack(b"o")

    def remove_handler(self, handler: Any) -> None:
        """The response is over."""
        super().remove_handler(handler)
        self.reader.blocked = True
        self.promote()
        self._stop_beat()

    def flush(self) -> None:
        """The response can take a packet: send what waits, the close frame last."""
        handler = self.handler
        if handler is None or not handler.active:
            return
        self._start_beat()
        self.reader.unblocked()
        done = self.is_closed and not len(self.reader.outbox)
        if done and self.handler is handler and handler.active:
            self._told(handler.send_last)

    def start_heartbeat(self) -> None:
        """The library's handlers call this where flushing found nothing."""
        self.flush()

    def on_messages(self, messages: Any) -> None:
        """Verbs have come in; each should be a string."""
        for message in messages:
            if self.is_closed:
                return
            text = message if isinstance(message, str) else ""
            if len(text.encode()) > self.server.core.settings.reader.frame_bytes:
                self.reader.close(TOO_BIG)
            else:
                self.reader.received(text)

    def ended(self, code: int, text: str) -> None:
        """The gateway closes: what waits is still sent, then the close frame."""
        self.state = CLOSED
        self.close_reason = (code, text)
        self.promote()
        self.flush()

    def close(self, code: int = 3000, message: str = "Go away!") -> None:
        """The reader is gone: its response broke off, or it didn't poll again in time."""
        if self.state != CLOSED:
            self.state = CLOSED
            self.close_reason = (code, message)
        self.reader.lost("lost")
        if self.handler is not None:
            self.handler.session_closed()

    def on_delete(self, forced: bool) -> None:
        """The table's clean-up: a session with a living response stays."""
        if self.handler is not None and not self.is_closed:
            self.promote()
        else:
            self.forget()

    def forget(self) -> None:
        """Nobody will ask for this session again."""
        self._stop_beat()
        self.close()

    def leave_address(self) -> None:
        """It doesn't count any more. Idempotent."""
        if self._address is not None:
            self.server.addresses.leave(self._address)
            self._address = None

    def _told(self, send: Any) -> None:
        send(sockjs_close(*self.get_close_reason()))
        self.reader.lost("lost")

    def _start_beat(self) -> None:
        if self._beat is None:
            loop = asyncio.get_running_loop()
            self._beat = loop.call_later(self.reader.first_beat(), self._on_beat)

    def _on_beat(self) -> None:
        loop = asyncio.get_running_loop()
        self._beat = loop.call_later(self.server.core.settings.heartbeat, self._on_beat)
        if self.handler is not None and self.handler.active:
            self.reader.blocked = True
            self.handler.send_pack(b"h")

    def _stop_beat(self) -> None:
        if self._beat is not None:
            self._beat.cancel()
            self._beat = None


class _Polite(BaseHandler):  # type: ignore[misc]
    """What all HTTP handlers here do alike: CORS, caching, origins."""

    def set_default_headers(self) -> None:
        self.clear_header("Server")

    def prepare(self) -> None:
        super().prepare()
        if not self.verify_origin():
            self._end(403, "origin not allowed")

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """A method that isn't there is answered with those that are."""
        if status_code == 405:
            refuse_method(self)
        else:
            super().write_error(status_code, **kwargs)

    def verify_origin(self) -> bool:
        """Whether the page's origin may connect."""
        headers = self.request.headers
        allowed: bool = self.server.core.allows_origin(headers.get("Origin"), headers.get("Host"))
        return allowed

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
        settings = self.server.core.settings
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

    def check_xsrf_cookie(self) -> None:
        """No cookie means anything here."""

    def _end(self, status: int, text: str) -> None:
        self.set_status(status)
        self.preflight()
        self.disable_cache()
        self.set_header("Content-Type", "text/plain; charset=UTF-8")
        self.finish(text)


class GreetingHandler(_Polite):
    """``/sockjs``: a person's test that it is there."""

    def get(self) -> None:
        self.enable_cache()
        self.set_header("Content-Type", "text/plain; charset=UTF-8")
        self.finish("Welcome to SockJS!\n")


class InfoHandler(_Polite, PreflightHandler):  # type: ignore[misc]
    """``/sockjs/info``: what sockjs-client asks first."""

    access_methods = "OPTIONS, GET"

    def get(self) -> None:
        self.preflight()
        self.disable_cache()
        self.set_header("Content-Type", "application/json; charset=UTF-8")
        info = {
            "websocket": self.server.core.settings.websocket,
            "cookie_needed": self.server.core.settings.sockjs_cookie,
            "origins": ["*:*"],
            "entropy": secrets.randbits(32),
        }
        self.finish(orjson.dumps(info))


class IframeHandler(_Polite):
    """``/sockjs/iframe*.html``; Tornado answers If-None-Match."""

    def compute_etag(self) -> str | None:
        """SockJS 1.0: the page has one. Another policy makes it another page."""
        version = [*self._write_buffer, (content_policy(self.server.core.settings) or "").encode()]
        return f'"{hashlib.sha256(b"".join(version)).hexdigest()}"'

    def get(self) -> None:
        settings = self.server.core.settings
        policy = content_policy(settings)
        if policy is None:
            self.enable_cache()
        else:
            # A copy in a browser would outlive a change of the list.
            self.set_header("Cache-Control", "no-cache")
            self.set_header("Content-Security-Policy", policy)
        self.set_header("Content-Type", "text/html; charset=UTF-8")
        domain = "" if is_guarded(settings) else _DOMAIN
        self.finish(IFRAME_PAGE.format(url=html.escape(settings.sockjs_url), domain=domain))


class ScriptHandler(tornado.web.RequestHandler):
    """``/sockjs.min.js``: sockjs-client, for the iframe page and for whoever has none."""

    def get(self) -> None:
        script = importlib.resources.files("newsfabric") / "static" / "sockjs.min.js"
        self.set_header("Content-Type", "text/javascript; charset=utf-8")
        self.set_header("Cache-Control", "public, max-age=86400")
        self.finish(script.read_bytes())


class _Transport(_Polite):
    """A response that a reader receives on: one packet at a time."""

    def prepare(self) -> None:
        super().prepare()
        if self._finished or self.request.method == "OPTIONS":
            return
        if self.server.get_session(self.path_kwargs["session_id"]) is not None:
            return
        headers = self.request.headers
        verdict = self.server.core.welcome(headers.get("Origin"), headers.get("Host"))
        if verdict is not Welcome.YES:
            self._turn_away(verdict.value)
        elif not self.server.addresses.has_room(self.request.remote_ip):
            measures.REJECTED_CONNECTS.labels("address").inc()
            self._turn_away("address")

    def _turn_away(self, why: str) -> None:
        seconds = max(1, self.server.core.settings.retry_after_ms // 1000)
        self.set_header("Retry-After", str(seconds))
        self._end(503, f"not now: {why}")

    def _attach_session(self, session_id: str, start_heartbeat: bool = False) -> bool:
        session = self.server.get_session(session_id)
        is_new = session is None
        if session is None:
            transport = f"sockjs-{self.name}"
            session = self.server.open_session(session_id, transport, self.request.remote_ip)
        if not session.set_handler(self):
            return False
        self.session = session
        session.verify_state()
        token = self.server.core.token_of(self.request.headers) if is_new else None
        if token is not None:
            # As if it had been the first verb; behind the open frame.
            session.reader.ask(LogIn(token=token))
        return True

    def send_last(self, packet: bytes) -> None:
        """Send the close frame and end the response."""
        self.amount_limit = 0
        self.send_pack(packet)


class _Polling(_Transport):
    """A response that ends with its first packet."""

    def send_pack(self, packet: bytes, binary: bool = False) -> None:
        self.active = False
        self._detach()
        if not self._finished:
            self.set_header("Content-Type", _JAVASCRIPT)
            self.finish(self._framed(packet))

    def _framed(self, packet: bytes) -> bytes:
        return packet + b"\n"


class _Streaming(_Transport):
    """A response that ends after ``response_limit`` bytes, or with the close frame."""

    def send_pack(self, packet: bytes, binary: bool = False) -> None:
        self.active = False
        data = self._framed(packet)
        self.notify_sent(len(data))
        self.write(data)
        self.flush().add_done_callback(self._on_sent)

    def _begin(self, content_type: str, prelude: str, session_id: str) -> None:
        self.set_header("Content-Type", content_type)
        self._auto_finish = False
        self.write(prelude)
        self.flush()
        if not self._attach_session(session_id):
            self.finish()
        elif self.session:
            self.session.flush()

    def _framed(self, packet: bytes) -> bytes:
        return packet + b"\n"

    def _on_sent(self, sent: asyncio.Future[None]) -> None:
        # A reader who is gone is reported by on_connection_close.
        if sent.cancelled() or sent.exception() is not None or self._finished:
            return
        self.active = True
        if self.should_finish():
            self._detach()
            self.safe_finish()
        elif self.session is not None:
            self.session.flush()

    def safe_finish(self) -> None:
        """End the response. HTTP/1.0 knows its end by the connection's."""
        if self.request.version == "HTTP/1.0":
            self.detach().close()
        else:
            self.finish()


class XhrHandler(_Polling, library.XhrPollingTransport):  # type: ignore[misc]
    """xhr: each packet is a response."""


class XhrStreamingHandler(_Streaming, library.XhrStreamingTransport):  # type: ignore[misc]
    """xhr_streaming: packets are lines of one long response."""


class EventSourceHandler(_Streaming, library.EventSourceTransport):  # type: ignore[misc]
    """eventsource: packets are events."""

    async def get(self, session_id: str) -> None:
        self.preflight()
        self.handle_session_cookie()
        self.disable_cache()
        # SockJS 1.0: exactly this. It is always UTF-8 (WHATWG HTML section 9.2.5).
        self._begin("text/event-stream", "\r\n", session_id)

    def _framed(self, packet: bytes) -> bytes:
        return b"data: " + packet + b"\r\n\r\n"


@tornado.web.stream_request_body
class XhrSendHandler(_Polite, library.XhrSendHandler):  # type: ignore[misc]
    """xhr_send: verbs of a reader on xhr, xhr_streaming or eventsource.

    The body is taken as it comes in, so that one that is too large gets an answer which the page
    may read; Tornado would hang up.
    """

    def initialize(self, server: _Router) -> None:
        super().initialize(server)
        most = server.core.settings.reader.burst_bytes
        self.request.connection.set_max_body_size(_REFUSED_BODIES * most)
        self._body = Body(server.bodies, most)

    def prepare(self) -> None:
        super().prepare()
        if not self._finished and self.request.method == "POST":
            self._open_session()

    def data_received(self, chunk: bytes) -> None:
        self._body.take(chunk)

    def on_finish(self) -> None:
        self._body.close()

    def on_connection_close(self) -> None:
        self._body.close()
        super().on_connection_close()
        # The library's doesn't call it, and the request would wait for its body for ever.
        tornado.web.RequestHandler.on_connection_close(self)

    def _open_session(self) -> Any:
        """The session, or None and the answer that there is none."""
        session = self.server.get_session(self.path_kwargs["session_id"])
        if session is not None and not session.is_closed:
            return session
        self._end(404, "no such session")
        return None

    def post(self, session_id: str) -> None:
        self.preflight()
        self.handle_session_cookie()
        self.disable_cache()
        # It may have ended while the body came.
        session = self._open_session()
        if session is None:
            return
        if self._body.verdict is Verdict.TOO_LARGE:
            self._end(413, "too large")
            return
        if self._body.verdict is Verdict.NO_ROOM:
            self.set_header("Retry-After", "1")
            self._end(503, "not now: no room")
            return
        payload = self._payload()
        if not payload:
            self._end(500, "Payload expected.")
            return
        try:
            messages = orjson.loads(payload)
        except orjson.JSONDecodeError:
            self._end(500, "Broken JSON encoding.")
            return
        if not isinstance(messages, list):
            self._end(500, "Payload expected.")
            return
        session.on_messages(messages)
        self._accepted()

    def _clear_representation_headers(self) -> None:
        """Tornado takes the type away from a 204. SockJS 1.0 wants it: Firefox guesses XML."""
        if self.request.method != "POST":
            super()._clear_representation_headers()

    def _payload(self) -> bytes | bytearray:
        return self._body.whole()

    def _accepted(self) -> None:
        self.set_status(204)
        self.set_header("Content-Type", "text/plain; charset=UTF-8")
        self.finish()


class JsonpSendHandler(XhrSendHandler):
    """jsonp_send: the same from a form."""

    def _payload(self) -> bytes | bytearray:
        content_type = self.request.headers.get("Content-Type", "").split(";")[0].strip().lower()
        body = self._body.whole()
        if content_type != "application/x-www-form-urlencoded":
            return body
        text = body.decode("utf-8", "replace")
        return unquote_plus(text[2:]).encode() if text.startswith("d=") else b""

    def _accepted(self) -> None:
        self.set_header("Content-Type", "text/plain; charset=UTF-8")
        self.finish("ok")


class JsonpHandler(_Polling, library.JSONPTransport):  # type: ignore[misc]
    """jsonp: each packet is a script that calls the page."""

    def verify_origin(self) -> bool:
        return _is_of_an_allowed_page(self)

    def prepare(self) -> None:
        super().prepare()
        _check_callback(self)

    def _framed(self, packet: bytes) -> bytes:
        # The comment keeps the answer from being taken for something else (Rosetta Flash). The name
        # is the one that was checked: the library takes one from a body as well.
        callback: str = self.get_query_argument("c")
        return b"/**/" + callback.encode() + b"(" + _script_string(packet) + b");\r\n"


class HtmlFileHandler(_Streaming, library.HtmlFileTransport):  # type: ignore[misc]
    """htmlfile: packets are scripts in an endless page."""

    def verify_origin(self) -> bool:
        return _is_of_an_allowed_page(self)

    def prepare(self) -> None:
        super().prepare()
        _check_callback(self)

    async def get(self, session_id: str) -> None:
        self.preflight()
        self.handle_session_cookie()
        self.disable_cache()
        head = HTMLFILE_HEAD
        policy = content_policy(self.server.core.settings)
        if policy is not None:
            self.set_header("Content-Security-Policy", policy)
            head = head.replace(_DOMAIN, "")
        self._begin("text/html; charset=UTF-8", head % self.get_query_argument("c"), session_id)

    def _framed(self, packet: bytes) -> bytes:
        return b"<script>\np(" + _script_string(packet) + b");\n</script>\r\n"


def _is_of_an_allowed_page(handler: Any) -> bool:
    """For scripts and frames, with which browsers say no origin: none is no program's then."""
    allowed: bool = handler.server.core.allows_page(handler.request.headers)
    return allowed


def _check_callback(handler: Any) -> None:
    """End the request if its callback is missing, or anything but a name."""
    if handler._finished:
        return
    callback = handler.get_query_argument("c", "", strip=False)
    if not callback:
        handler._end(500, '"callback" parameter required')
    elif not _CALLBACK.fullmatch(callback):
        handler._end(500, 'invalid "callback" parameter')


def _script_string(packet: bytes) -> bytes:
    """``packet`` as a string literal that is harmless inside a script element."""
    literal = json.dumps(packet.decode())
    return literal.replace("<", "\\u003c").replace("/", "\\/").encode()
