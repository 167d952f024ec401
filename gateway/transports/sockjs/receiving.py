"""Responses that a reader receives on: polls, which end with one packet, and streams.

A response takes one packet, and counts as blocked until it is written. Frames that arrive meanwhile
are sent together (:mod:`gateway.transports.sockjs.sessions`).
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import Final

from gateway.answers.login import LogIn
from gateway.process import measures
from gateway.readers.admission import AdmissionDecision
from gateway.transports.sockjs.handlers import DOMAIN, SockJsHandler
from gateway.transports.sockjs.sockjs_tornado import (
    HTMLFILE_HEAD,
    PollingTransportBase,
    StreamingTransportBase,
)
from gateway.transports.streaming import UNBUFFERED

_JAVASCRIPT: Final = "application/javascript; charset=UTF-8"
_CALLBACK: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}", re.ASCII)


class SockJsTransport(SockJsHandler, PollingTransportBase):  # type: ignore[misc]
    """A response that takes one packet at a time."""

    def prepare(self) -> None:
        """Answer 503 if the session would be new and there is no room for it."""
        super().prepare()
        if self._finished or self.request.method == "OPTIONS":
            return
        if self.find_session(self.path_kwargs["session_id"]) is not None or self._finished:
            return
        if self._is_welcome() and not self.server.addresses.has_room(self.request.remote_ip):
            measures.REJECTED_CONNECTS.labels(AdmissionDecision.TOO_MANY.value).inc()
            self._turn_away(AdmissionDecision.TOO_MANY)

    def _attach(self, session_id: str) -> bool:
        """Attach this to its session and send waiting frames; False: a close frame was sent."""
        # The sender of the last packet ends the response.
        self._auto_finish = False
        session = self.server.get_session(session_id)
        is_new = session is None
        if is_new:
            # The end of the URL's path names the transport.
            transport = "sockjs-" + self.request.path.rpartition("/")[2]
            token = self.core.origins.token_of(self.request.headers)
            session = self.server.open_session(
                session_id, transport, address=self.request.remote_ip, token=token
            )
        if not session.set_handler(self):
            return False
        self.session = session
        if is_new:
            self.send_pack(b"o")
            if token is not None:
                # Like a first verb; behind the open frame.
                session.enqueue_verb(LogIn(token=token))
        if self.session is not None:
            session.unblocked()
        return True

    def on_connection_close(self) -> None:
        """End the session, since the reader has hung up (SockJS 1.0)."""
        if self.session is not None:
            self.session.end()
        # Skips the library's method, which ends sessions of its own kind.
        super(PollingTransportBase, self).on_connection_close()

    def _framed(self, packet: bytes) -> bytes:
        return packet + b"\n"

    def send_last(self, packet: bytes) -> None:
        """Send ``packet`` and end the response."""
        self.amount_limit = 0
        self.send_pack(packet)


class Polling(SockJsTransport):
    """A response that ends with its first packet."""

    def send_pack(self, packet: bytes) -> None:
        """Answer with ``packet``, which ends the response."""
        self.active = False
        self._detach()
        if not self._finished:
            self.set_header("Content-Type", _JAVASCRIPT)
            self.finish(self._framed(packet))


class Streaming(SockJsTransport, StreamingTransportBase):  # type: ignore[misc]
    """A response that ends after ``response_limit`` bytes, or with the close frame."""

    def send_pack(self, packet: bytes) -> None:
        """Write ``packet``; the session may send another one once this is flushed."""
        self.active = False
        data = self._framed(packet)
        self.notify_sent(len(data))
        self.write(data)
        self.flush().add_done_callback(self._on_sent)

    def _begin(self, content_type: str, prelude: str, session_id: str) -> None:
        self._set_session_headers()
        self.set_header("Content-Type", content_type)
        for name, value in UNBUFFERED.items():
            self.set_header(name, value)
        self.write(prelude)
        self.flush()
        if not self._attach(session_id):
            self.finish()

    def _on_sent(self, sent: asyncio.Future[None]) -> None:
        # For a reader that is gone, on_connection_close is called.
        if sent.cancelled() or sent.exception() is not None or self._finished:
            return
        self.active = True
        if self.should_finish():
            self._detach()
            self.safe_finish()
        elif self.session is not None:
            self.session.unblocked()

    def safe_finish(self) -> None:
        """End the response. In HTTP/1.0 it ends with its connection."""
        if self.request.version == "HTTP/1.0":
            self.detach().close()
        else:
            self.finish()


class XhrHandler(Polling):
    """xhr: each packet is a response."""

    def post(self, session_id: str) -> None:
        """Answer a poll: 200 with the next packet, as soon as there is one."""
        self._set_session_headers()
        self._attach(session_id)


class XhrStreamingHandler(Streaming):
    """xhr_streaming: packets are lines of one long response."""

    def post(self, session_id: str) -> None:
        """Answer 200 and the stream."""
        # SockJS 1.0: browsers pass nothing on before they have received 2 KiB.
        self._begin(_JAVASCRIPT, "h" * 2048 + "\n", session_id)


class EventSourceHandler(Streaming):
    """eventsource: packets are events."""

    def get(self, session_id: str) -> None:
        """Answer 200 and the stream."""
        # SockJS 1.0: exactly this type. The stream is always UTF-8 (WHATWG HTML section 9.2.5).
        self._begin("text/event-stream", "\r\n", session_id)

    def _framed(self, packet: bytes) -> bytes:
        return b"data: " + packet + b"\r\n\r\n"


class Script(SockJsTransport):
    """A response that the browser executes: it calls a function of the page."""

    def verify_origin(self) -> bool:
        """Return whether the page may connect. Browsers send no origin here, just like programs."""
        return self.core.origins.allows_page(self.request.headers)

    def prepare(self) -> None:
        """Answer 500 to a query without a valid name of a function, ``c``."""
        super().prepare()
        if self._finished:
            return
        # Only a name, and only from the query: the name becomes a part of a script.
        self.callback = self.get_query_argument("c", "", strip=False)
        if not self.callback:
            self._refuse(500, '"callback" parameter required')
        elif not _CALLBACK.fullmatch(self.callback):
            self._refuse(500, 'invalid "callback" parameter')


class JsonpHandler(Script, Polling):
    """jsonp: each packet is a script that calls the page."""

    def get(self, session_id: str) -> None:
        """Answer a poll: 200 with the next packet, as soon as there is one."""
        self.handle_session_cookie()
        self.disable_cache()
        self._attach(session_id)

    def _framed(self, packet: bytes) -> bytes:
        # The comment keeps browsers from taking the answer for another type (Rosetta Flash).
        return b"/**/" + self.callback.encode() + b"(" + _script_string(packet) + b");\r\n"


class HtmlFileHandler(Script, Streaming):
    """htmlfile: packets are scripts in an endless page."""

    def get(self, session_id: str) -> None:
        """Answer 200 and the page that doesn't end."""
        head = HTMLFILE_HEAD
        policy = self.core.origins.content_policy
        if policy is not None:
            self.set_header("Content-Security-Policy", policy)
            head = head.replace(DOMAIN, "")
        self._begin("text/html; charset=UTF-8", head % self.callback, session_id)

    def _framed(self, packet: bytes) -> bytes:
        return b"<script>\np(" + _script_string(packet) + b");\n</script>\r\n"


def _script_string(packet: bytes) -> bytes:
    """Return ``packet`` as a string literal that is harmless inside a script element."""
    literal = json.dumps(packet.decode())
    return literal.replace("<", "\\u003c").replace("/", "\\/").encode()
