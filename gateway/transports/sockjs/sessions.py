"""The sessions of one gateway: the connections of readers over HTTP.

A session is identified by its id, which is a secret. A session that began with a token accepts only
requests with tokens of the same user; any other accepts all requests with its id. (With
``sockjs_same_address`` all must also come from the same place.) A session has at most one response
at a time. Its outbox holds the frames that arrive between two polls, within the bounds of all
readers. It writes nothing itself: a response frames and sends
(:mod:`gateway.transports.sockjs.receiving`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from tornado.ioloop import IOLoop

from gateway.readers.budget import ReaderStream
from gateway.readers.connection import Connection
from gateway.transports.acknowledged import since_acknowledged
from gateway.transports.bodies import RequestBodies
from gateway.transports.sockjs.sockjs_tornado import SessionMixin, SockJSRouter
from gateway.transports.streaming import ANSWER_SECONDS
from gateway.wire.frames import Framing, frame_as, sockjs_array, sockjs_close
from newsfabric.closing import NO_PONG, TOO_BIG, CloseReason
from newsfabric.http.addresses import Addresses
from newsfabric.http.networks import parse_address, place_of

if TYPE_CHECKING:
    from gateway.core.core import Core

PREFIX: Final = "/sockjs"
# A reader that has acknowledged nothing for so many heartbeats is gone, as on a WebSocket.
_SILENT_HEARTBEATS: Final = 2


class SessionRouter(SockJSRouter):  # type: ignore[misc]
    """The library's table of sessions, and its settings; the routes are our own."""

    def __init__(self, core: Core) -> None:
        settings = {
            "session_check_interval": min(1.0, core.settings.sockjs_disconnect_delay / 2),
            "response_limit": core.settings.sockjs_response_bytes,
        }
        self.core = core
        self.bodies = RequestBodies(core.settings.sockjs_bodies_bytes)
        # Sessions are counted apart from connections: one connection can carry any number of them.
        self.addresses = Addresses(core.settings.per_address)
        super().__init__(None, prefix=PREFIX, user_settings=settings, io_loop=IOLoop.current())

    def open_session(
        self, session_id: str, transport: str, *, address: str, token: str | None
    ) -> Session:
        """Return a new session, with its reader, begun by ``transport`` from ``address``, perhaps
        with a ``token``."""
        session = Session(self, session_id, transport, address=address, token=token)
        self._sessions.add(session)
        return session

    def stop(self) -> None:
        """Stop the timers and end the sessions, before the event loop ends."""
        self._sessions_cleanup.stop()
        self.stats._callback.stop()
        for session in list(self._sessions._items.values()):
            session.end()


class Session(Connection, SessionMixin):  # type: ignore[misc]
    """The connection of a reader over HTTP: blocked unless a response can take a packet.

    It stays in the table for ``disconnect_delay`` after its transport, to answer late polls.
    """

    framing = Framing.SOCKJS
    # The library's prints the session's id, which is a secret.
    __repr__ = object.__repr__

    def __init__(
        self,
        server: SessionRouter,
        session_id: str,
        transport: str,
        *,
        address: str,
        token: str | None,
    ) -> None:
        SessionMixin.__init__(self, session_id, server.core.settings.sockjs_disconnect_delay)
        self.transport = transport
        self.handler: Any = None
        # The stream of its response.
        self._served_on: ReaderStream | None = None
        # Runs while the response is asked for an additional sign of life.
        self._asked: asyncio.TimerHandle | None = None
        # Code and text of the close frame; None while the session is open.
        self._close_reason: tuple[int, str] | None = None
        self._addresses = server.addresses
        # The address that it counts for until it is gone, wherever it continues from.
        self._address = address if server.addresses.enter(address) else None
        # The place that requests with its id must come from; None: any place.
        self._place = _place(address) if server.core.settings.sockjs_same_address else None
        self._token = token
        self._user_of = server.core.authenticator.user_of
        super().__init__(server.core.readers)
        # One body brings a whole burst of verbs, which wait between two polls.
        self.most_verb_bytes = self.settings.reader.burst_bytes
        self.blocked = True

    def is_of(self, address: str, token: str | None) -> bool:
        """Return whether a request from ``address`` with ``token`` is of the session's reader."""
        if self._place is not None and self._place != _place(address):
            return False
        if self._token is None or token == self._token:
            return True
        login = self.auth.login
        if token is None or login is None or self._user_of(token) != login.user:
            return False
        # The token was renewed: the cookie has the new one from now on.
        self._token = token
        return True

    @property
    def is_closed(self) -> bool:
        """True once only waiting frames and the close frame are still to be sent."""
        return self._close_reason is not None

    def set_handler(self, handler: Any) -> bool:
        """Attach a response; return False if it was answered with a close frame instead."""
        if self.handler is not None:
            # SockJS 1.0, "Another connection still open": the first response stays.
            handler.send_pack(sockjs_close(2010, "Another connection still open"))
            return False
        if self.is_closed and not len(self.outbox):
            self._send_close_frame(handler.send_pack)
            return False
        self.handler = handler
        self._served_on = _stream_of(handler)
        self._served_on.probe = self.probe
        self.promote()
        return True

    def remove_handler(self, _: Any) -> None:
        """Detach the ended response. Without another, the session ends in ``disconnect_delay``."""
        if self._served_on is not None:
            # The next request on this stream may be of another reader.
            self._served_on.probe = None
            self._served_on = None
        self.handler = None
        self.blocked = True
        self.stop_heartbeats()
        self.promote()

    def unblocked(self) -> None:
        """Send waiting frames and start heartbeats, if a response can take a packet."""
        if self.handler is not None and self.handler.active:
            self.start_heartbeats()
            super().unblocked()

    def on_messages(self, messages: Any) -> None:
        """Execute the verbs of a body; each should be a string."""
        for message in messages:
            if self.is_closed:
                return
            text = message if isinstance(message, str) else ""
            if len(text.encode()) > self.settings.reader.frame_bytes:
                self.close(TOO_BIG)
            else:
                self.received(text)

    def end(self) -> None:
        """End the session: its response broke off, or no poll arrived in time."""
        self._close_reason = self._close_reason or (1002, "Connection interrupted")
        self.lost()
        if self.handler is not None:
            self.handler.session_closed()

    def lost(self) -> None:
        """Release everything: the transport is gone. Its address has room for another session."""
        super().lost()
        if self._asked is not None:
            self._asked.cancel()
        if self._address is not None:
            self._addresses.leave(self._address)
            self._address = None

    def on_delete(self, forced: bool) -> None:
        """Keep the session if it has a live response, else end it (the table's clean-up)."""
        if self.handler is not None and not self.is_closed:
            self.promote()
        else:
            self.end()

    def probe(self) -> None:
        """Send a heartbeat, which ends a poll, and end the session if it isn't acknowledged soon.

        A reader that hasn't taken all bytes sent before isn't asked, as on a stream of its own.
        """
        stream = self._served_on
        if self.is_closed or self._asked is not None or stream is None or not self.handler.active:
            return
        self._beat_on()
        self._asked = self._loop.call_later(
            ANSWER_SECONDS, self._end_unless_acknowledged, stream, self.readers.clock()
        )

    def _end_unless_acknowledged(self, stream: ReaderStream, asked_at: float) -> None:
        self._asked = None
        if stream.closed():
            return
        if self.readers.clock() - since_acknowledged(stream.socket) < asked_at:
            self._end_silent(stream)

    def _end_silent(self, stream: ReaderStream) -> None:
        # The session may have continued on another stream, and polls there.
        if not self.is_closed and self._served_on in (None, stream):
            self.close(NO_PONG)
        # A reader that is gone reads no goodbye, and closing makes room for its address.
        stream.close()

    def _write(self, frames: list[bytes]) -> None:
        # One packet is under way at a time; frames that arrive meanwhile are sent together.
        self.blocked = True
        self.handler.send_pack(sockjs_array(frames))

    def _heartbeat(self) -> None:
        stream = self._served_on
        if stream is None or not self.handler.active:
            return
        silent = 0.0 if stream.closed() else since_acknowledged(stream.socket)
        if silent > _SILENT_HEARTBEATS * self.settings.heartbeat:
            self._end_silent(stream)
            return
        self._beat_on()

    def _beat_on(self) -> None:
        self.blocked = True
        self.handler.send_pack(b"h")

    def _say_goodbye(self, push: bytes, reason: CloseReason) -> None:
        # Waiting frames are still sent, then the close frame.
        self._firm(frame_as(push, self.framing))
        self._close_reason = reason.code, reason.text
        self.promote()
        self.unblocked()

    def _all_sent(self) -> None:
        self._send_close_frame(self.handler.send_last)

    def _send_close_frame(self, send: Any) -> None:
        """Send the close frame with ``send``; then the transport is gone."""
        assert self._close_reason is not None
        send(sockjs_close(*self._close_reason))
        self.lost()


def _stream_of(handler: Any) -> ReaderStream:
    stream = handler.request.connection.stream
    # The listener makes no other streams.
    assert isinstance(stream, ReaderStream)
    return stream


def _place(address: str) -> bytes:
    return place_of(parse_address(address))
