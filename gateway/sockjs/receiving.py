"""Responses that a reader receives on: polls, which one packet ends, and streams.

Each takes one packet, then counts as blocked until that is written; what comes meanwhile leaves
together (:mod:`gateway.sockjs.sessions`).
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any, Final

from gateway import measures
from gateway.admission import Welcome
from gateway.framing import content_policy
from gateway.protocol import LogIn
from gateway.sockjs.handlers import Polite
from gateway.sockjs.pages import DOMAIN
from gateway.sockjs.sockjs_tornado import HTMLFILE_HEAD
from gateway.sockjs.sockjs_tornado import transports as library

_JAVASCRIPT: Final = "application/javascript; charset=UTF-8"
_CALLBACK: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}", re.ASCII)


class Transport(Polite):
    """A response that a reader receives on: one packet at a time."""

    def prepare(self) -> None:
        super().prepare()
        if self._finished or self.request.method == "OPTIONS":
            return
        if self.server.get_session(self.path_kwargs["session_id"]) is not None:
            return
        headers = self.request.headers
        verdict = self.server.core.admission.ask(headers.get("Origin"), headers.get("Host"))
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
        token = self.server.core.origins.token_of(self.request.headers) if is_new else None
        if token is not None:
            # As if it had been the first verb; behind the open frame.
            session.reader.ask(LogIn(token=token))
        return True

    def send_last(self, packet: bytes) -> None:
        """Send the close frame and end the response."""
        self.amount_limit = 0
        self.send_pack(packet)


class Polling(Transport):
    """A response that ends with its first packet."""

    def send_pack(self, packet: bytes, binary: bool = False) -> None:
        self.active = False
        self._detach()
        if not self._finished:
            self.set_header("Content-Type", _JAVASCRIPT)
            self.finish(self._framed(packet))

    def _framed(self, packet: bytes) -> bytes:
        return packet + b"\n"


class Streaming(Transport):
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


class XhrHandler(Polling, library.XhrPollingTransport):  # type: ignore[misc]
    """xhr: each packet is a response."""


class XhrStreamingHandler(Streaming, library.XhrStreamingTransport):  # type: ignore[misc]
    """xhr_streaming: packets are lines of one long response."""


class EventSourceHandler(Streaming, library.EventSourceTransport):  # type: ignore[misc]
    """eventsource: packets are events."""

    async def get(self, session_id: str) -> None:
        self.preflight()
        self.handle_session_cookie()
        self.disable_cache()
        # SockJS 1.0: exactly this. It is always UTF-8 (WHATWG HTML section 9.2.5).
        self._begin("text/event-stream", "\r\n", session_id)

    def _framed(self, packet: bytes) -> bytes:
        return b"data: " + packet + b"\r\n\r\n"


class JsonpHandler(Polling, library.JSONPTransport):  # type: ignore[misc]
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


class HtmlFileHandler(Streaming, library.HtmlFileTransport):  # type: ignore[misc]
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
            head = head.replace(DOMAIN, "")
        self._begin("text/html; charset=UTF-8", head % self.get_query_argument("c"), session_id)

    def _framed(self, packet: bytes) -> bytes:
        return b"<script>\np(" + _script_string(packet) + b");\n</script>\r\n"


def _is_of_an_allowed_page(handler: Any) -> bool:
    """For scripts and frames, with which browsers say no origin: none is no program's then."""
    allowed: bool = handler.server.core.origins.allows_page(handler.request.headers)
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
