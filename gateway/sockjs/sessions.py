"""The sessions of one gateway: the connections of readers over HTTP.

A session is told apart by its id, which is a secret: one that began with a token takes requests
with that user's tokens alone, any other those of whoever knows the id. It has one response at a
time or none, and its outbox holds what comes between two polls, within the bounds of all readers.
It writes nothing itself: a response frames and sends (:mod:`gateway.sockjs.receiving`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from tornado.ioloop import IOLoop

from gateway.acknowledged import since_acknowledged
from gateway.bodies import Bodies
from gateway.budget import ReaderStream
from gateway.connection import Connection
from gateway.frames import Variant, dress, sockjs_array, sockjs_close
from gateway.sockjs.sockjs_tornado import SessionMixin, SockJSRouter
from gateway.streaming import ANSWER_SECONDS
from newsfabric.closing import NO_PONG, TOO_BIG, CloseReason
from newsfabric.http.addresses import Addresses
from newsfabric.http.networks import parse_address, place_of

if TYPE_CHECKING:
    from gateway.core import Core

PREFIX: Final = "/sockjs"
# Who has acknowledged nothing for so many heartbeats is gone, as on a WebSocket.
_SILENT_HEARTBEATS: Final = 2


class Router(SockJSRouter):  # type: ignore[misc]
    """Sessions and settings; the URLs are ours."""

    def __init__(self, core: Core) -> None:
        settings = {
            "session_check_interval": min(1.0, core.settings.sockjs_disconnect_delay / 2),
            "response_limit": core.settings.sockjs_response_bytes,
        }
        self.core = core
        self.bodies = Bodies(core.settings.sockjs_bodies_bytes)
        # One connection can carry any number of sessions: they count by themselves.
        self.addresses = Addresses(core.settings.per_address)
        super().__init__(None, prefix=PREFIX, user_settings=settings, io_loop=IOLoop.current())

    def open_session(
        self, session_id: str, transport: str, *, address: str, token: str | None
    ) -> Session:
        """A new session, with its reader, begun by ``transport`` from ``address``, perhaps with a
        ``token``."""
        session = Session(self, session_id, transport, address=address, token=token)
        self._sessions.add(session)
        return session

    def stop(self) -> None:
        """Let go of timers and sessions, before the loop ends."""
        self._sessions_cleanup.stop()
        self.stats._callback.stop()
        for session in list(self._sessions._items.values()):
            session.gone()


class Session(Connection, SessionMixin):  # type: ignore[misc]
    """A reader over HTTP: blocked unless a response waits for us, and takes packets.

    In the table it outlives its transport by ``disconnect_delay``, to answer late polls.
    """

    variant = Variant.SOCKJS
    # The library's says the session's name: whoever knows that is the reader.
    __repr__ = object.__repr__

    def __init__(
        self, server: Router, session_id: str, transport: str, *, address: str, token: str | None
    ) -> None:
        SessionMixin.__init__(self, session_id, server.core.settings.sockjs_disconnect_delay)
        self.transport = transport
        self.handler: Any = None
        # What its response is sent on.
        self._served_on: ReaderStream | None = None
        # Runs while its response is asked for a sign of life out of turn.
        self._asked: asyncio.TimerHandle | None = None
        # What the close frame says; None while it is open.
        self._close_reason: tuple[int, str] | None = None
        self._addresses = server.addresses
        # Whose it is, wherever it goes on from: until it is gone.
        self._address = address if server.addresses.enter(address) else None
        # What who comes with its id must have, too.
        self._place = _place(address) if server.core.settings.sockjs_same_address else None
        self._token = token
        self._user_of = server.core.gate.user_of
        super().__init__(server.core.readers)
        # A body brings all of that at once, and between two polls its verbs wait.
        self.most_verb_bytes = self.settings.reader.burst_bytes
        self.blocked = True

    def is_of(self, address: str, token: str | None) -> bool:
        """Whether a request from ``address`` with ``token`` is of the reader who began it."""
        if self._place is not None and self._place != _place(address):
            return False
        if self._token is None or token == self._token:
            return True
        login = self.auth.login
        if token is None or login is None or self._user_of(token) != login.user:
            return False
        # It was renewed: the cookie has it from now on.
        self._token = token
        return True

    @property
    def is_closed(self) -> bool:
        """Whether only what waits is still to be sent, and the close frame."""
        return self._close_reason is not None

    def set_handler(self, handler: Any) -> bool:
        """Attach a response; False if it was answered with a close frame instead."""
        if self.handler is not None:
            # SockJS 1.0, "Another connection still open": the first response stays.
            handler.send_pack(sockjs_close(2010, "Another connection still open"))
            return False
        if self.is_closed and not len(self.outbox):
            self._tell(handler.send_pack)
            return False
        self.handler = handler
        self._served_on = _stream_of(handler)
        self._served_on.ask_for_life = self.ask_for_life
        self.promote()
        return True

    def remove_handler(self, _: Any) -> None:
        """Its response has ended: it lasts for ``disconnect_delay`` from now without another."""
        if self._served_on is not None:
            # What follows on it may be another's.
            self._served_on.ask_for_life = None
            self._served_on = None
        self.handler = None
        self.blocked = True
        self.stop_beat()
        self.promote()

    def unblocked(self) -> None:
        """A response can take a packet now: one that is there and not over."""
        if self.handler is not None and self.handler.active:
            self.start_beat()
            super().unblocked()

    def on_messages(self, messages: Any) -> None:
        """Verbs have come in; each should be a string."""
        for message in messages:
            if self.is_closed:
                return
            text = message if isinstance(message, str) else ""
            if len(text.encode()) > self.settings.reader.frame_bytes:
                self.close(TOO_BIG)
            else:
                self.received(text)

    def gone(self) -> None:
        """Its response broke off, or it didn't poll again in time."""
        self._close_reason = self._close_reason or (1002, "Connection interrupted")
        self.lost()
        if self.handler is not None:
            self.handler.session_closed()

    def lost(self) -> None:
        """The transport is gone; its address may have another one."""
        super().lost()
        if self._asked is not None:
            self._asked.cancel()
        if self._address is not None:
            self._addresses.leave(self._address)
            self._address = None

    def on_delete(self, forced: bool) -> None:
        """The table's clean-up: a session with a living response stays."""
        if self.handler is not None and not self.is_closed:
            self.promote()
        else:
            self.gone()

    def ask_for_life(self) -> None:
        """End it unless its machine acknowledges a heartbeat soon. It ends a poll, as any does.

        Who hasn't taken all that it was sent is left alone, as on a stream of its own.
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
        # It may have gone on elsewhere, and polls there.
        if not self.is_closed and self._served_on in (None, stream):
            self.close(NO_PONG)
        # Who is gone reads no goodbye, and its address has room without it.
        stream.close()

    def _write(self, frames: list[bytes]) -> None:
        # One packet is under way at a time: what comes meanwhile leaves together.
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
        # What waits is still sent, then the close frame.
        self._firm(dress(push, self.variant))
        self._close_reason = reason.code, reason.text
        self.promote()
        self.unblocked()

    def _all_sent(self) -> None:
        self._tell(self.handler.send_last)

    def _tell(self, send: Any) -> None:
        """Send the close frame."""
        assert self._close_reason is not None
        send(sockjs_close(*self._close_reason))
        self.lost()


def _stream_of(handler: Any) -> ReaderStream:
    stream = handler.request.connection.stream
    # The listener makes no others.
    assert isinstance(stream, ReaderStream)
    return stream


def _place(address: str) -> bytes:
    return place_of(parse_address(address))
