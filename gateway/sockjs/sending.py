"""Requests that bring a reader's verbs: its body is a JSON list of strings."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import unquote_plus

import orjson
import tornado.web

from gateway.bodies import Body, BodyState
from gateway.sockjs.handlers import Polite
from gateway.sockjs.sessions import Router
from gateway.sockjs.sockjs_tornado import PreflightHandler

# Of a body that is too large so many times the limit is read all the same, and dropped: browsers
# hear no answer before they have sent everything.
_REFUSED_BODIES: Final = 4


@tornado.web.stream_request_body
class XhrSendHandler(Polite, PreflightHandler):  # type: ignore[misc]
    """xhr_send: verbs of a reader on xhr, xhr_streaming or eventsource.

    The body is taken as it comes in, so that one that is too large gets an answer which the page
    may read; Tornado would hang up.
    """

    def initialize(self, server: Router) -> None:
        """Tornado gives it ``server``, whose bodies this one is counted among."""
        super().initialize(server)
        most = server.core.settings.reader.burst_bytes
        connection: Any = self.request.connection
        connection.set_max_body_size(_REFUSED_BODIES * most)
        self._body = Body(server.bodies, most)

    def prepare(self) -> None:
        """Tornado calls it before the body comes: 404 without a session."""
        super().prepare()
        if not self._finished and self.request.method == "POST":
            self._open_session()

    def data_received(self, chunk: bytes) -> None:
        """Tornado calls it with each part of the body."""
        self._body.take(chunk)

    def on_finish(self) -> None:
        """Tornado calls it after the answer: the body is let go."""
        self._body.close()

    def on_connection_close(self) -> None:
        """Tornado calls it if the reader hangs up: the body is let go."""
        self._body.close()
        super().on_connection_close()
        # The library's doesn't call it, and the request would wait for its body for ever.
        tornado.web.RequestHandler.on_connection_close(self)

    def _open_session(self) -> Any:
        """The session, or None and the answer that there is none."""
        session = self.find_session(self.path_kwargs["session_id"])
        if session is not None and not session.is_closed:
            return session
        if not self._finished:
            self._refuse(404, "no such session")
        return None

    def post(self, session_id: str) -> None:
        """204 (jsonp_send: 200) once all verbs are asked for; 404, 413, 503, or 500 for no list."""
        self._answer_politely()
        # It may have ended while the body came.
        session = self._open_session()
        if session is None:
            return
        if self._body.state is BodyState.TOO_LARGE:
            self._refuse(413, "too large")
            return
        if self._body.state is BodyState.NO_ROOM:
            self.set_header("Retry-After", "1")
            self._refuse(503, "not now: no room")
            return
        payload = self._payload()
        try:
            messages = orjson.loads(payload) if payload else None
        except orjson.JSONDecodeError:
            self._refuse(500, "Broken JSON encoding.")
            return
        if not isinstance(messages, list):
            self._refuse(500, "Payload expected.")
            return
        session.on_messages(messages)
        self._accepted()

    def _clear_representation_headers(self) -> None:
        """Tornado takes the type away from a 204. SockJS 1.0 wants it: Firefox guesses XML."""
        if self.request.method != "POST":
            super()._clear_representation_headers()

    def _payload(self) -> bytes | bytearray:
        return self._body.data

    def _accepted(self) -> None:
        self.set_status(204)
        self.set_header("Content-Type", "text/plain; charset=UTF-8")
        self.finish()


class JsonpSendHandler(XhrSendHandler):
    """jsonp_send: the same from a form."""

    def _payload(self) -> bytes | bytearray:
        content_type = self.request.headers.get("Content-Type", "").split(";")[0].strip().lower()
        body = self._body.data
        if content_type != "application/x-www-form-urlencoded":
            return body
        text = body.decode("utf-8", "replace")
        return unquote_plus(text[2:]).encode() if text.startswith("d=") else b""

    def _accepted(self) -> None:
        self.set_header("Content-Type", "text/plain; charset=UTF-8")
        self.finish("ok")
