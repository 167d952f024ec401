"""Requests with a reader's verbs: the body is a JSON list of strings."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import unquote_plus

import orjson
import tornado.web

from gateway.transports.bodies import BodyState, RequestBody
from gateway.transports.sockjs.handlers import SockJsHandler
from gateway.transports.sockjs.sessions import SessionRouter
from gateway.transports.sockjs.sockjs_tornado import PreflightHandler

# A body that is too large is still read up to this many times the limit, and dropped: browsers read
# no answer before they have sent the whole body.
_REFUSED_BODIES: Final = 4


@tornado.web.stream_request_body
class XhrSendHandler(SockJsHandler, PreflightHandler):  # type: ignore[misc]
    """xhr_send: verbs of a reader on xhr, xhr_streaming or eventsource.

    The body is taken in chunks as they arrive, so that a body that is too large gets an answer
    which the page may read. Tornado would hang up.
    """

    def initialize(self, server: SessionRouter) -> None:
        """Take ``server`` from the route; its ``bodies`` count this one."""
        super().initialize(server)
        most = server.core.settings.reader.burst_bytes
        connection: Any = self.request.connection
        connection.set_max_body_size(_REFUSED_BODIES * most)
        self._body = RequestBody(server.bodies, most)

    def prepare(self) -> None:
        """Answer 404 without a session, before the body is received."""
        super().prepare()
        if not self._finished and self.request.method == "POST":
            self._open_session()

    def data_received(self, chunk: bytes) -> None:
        """Take ``chunk``, the next part of the body."""
        self._body.append(chunk)

    def on_finish(self) -> None:
        """Release the body, after the answer."""
        self._body.close()

    def on_connection_close(self) -> None:
        """Release the body, since the reader has hung up."""
        self._body.close()
        super().on_connection_close()
        # The library's method doesn't call this; the request would wait for its body for ever.
        tornado.web.RequestHandler.on_connection_close(self)

    def _open_session(self) -> Any:
        """Return the session; None, after the answer 404, if there is none."""
        session = self.find_session(self.path_kwargs["session_id"])
        if session is not None and not session.is_closed:
            return session
        if not self._finished:
            self._refuse(404, "no such session")
        return None

    def post(self, session_id: str) -> None:
        """Answer 204 (jsonp_send: 200) once all verbs are queued; 404, 413, 503; 500: no list."""
        self._set_session_headers()
        # The session may have ended while the body was received.
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
        """Keep the type of a 204, which Tornado removes. SockJS 1.0: Firefox would guess XML."""
        if self.request.method != "POST":
            super()._clear_representation_headers()

    def _payload(self) -> bytes | bytearray:
        return self._body.data

    def _accepted(self) -> None:
        self.set_status(204)
        self.set_header("Content-Type", "text/plain; charset=UTF-8")
        self.finish()


class JsonpSendHandler(XhrSendHandler):
    """jsonp_send: the same from a form, in its field ``d``."""

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
