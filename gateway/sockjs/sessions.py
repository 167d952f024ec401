"""The sessions of one gateway, and the reader behind each.

A session is told apart by its id alone. It has one response at a time or none, and a
:class:`HttpConnection`, which is blocked while none waits: so its outbox holds what comes between
two polls, within the bounds of all readers. It writes nothing itself: a response frames and sends
(:mod:`gateway.sockjs.receiving`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from tornado.ioloop import IOLoop

from gateway.bodies import Bodies
from gateway.connection import Connection, Home
from gateway.frames import Variant, dress, sockjs_array, sockjs_close
from gateway.sockjs.sockjs_tornado import (
    CLOSED,
    CONNECTING,
    OPEN,
    BaseSession,
    SessionMixin,
    SockJSRouter,
)
from newsfabric.addresses import Addresses
from newsfabric.closing import TOO_BIG, CloseReason

if TYPE_CHECKING:
    from gateway.core import Core

PREFIX: Final = "/sockjs"


class Router(SockJSRouter):  # type: ignore[misc]
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

    def open_session(self, session_id: str, transport: str, address: str) -> Session:
        """A new session, with its reader, begun by ``transport`` from ``address``."""
        session = Session(self, session_id, transport, address)
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

    def __init__(self, home: Home, session: Session, transport: str) -> None:
        self.transport = transport
        super().__init__(home)
        # A body brings all of that at once, and between two polls its verbs wait.
        self.most_verb_bytes = home.settings.reader.burst_bytes
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


class Session(BaseSession, SessionMixin):  # type: ignore[misc]
    """A SockJS session: whichever response is there now, and the reader behind it.

    The session outlives its reader by ``disconnect_delay``, to answer late polls.
    """

    # The library's handlers ask for this before they flush. Here, flushing is always right.
    send_queue = True

    def __init__(self, server: Router, session_id: str, transport: str, address: str) -> None:
        SessionMixin.__init__(self, session_id, server.settings["disconnect_delay"])
        BaseSession.__init__(self, lambda _: None, server)
        self.state: int
        # Whose it is, wherever it goes on from: until its reader is gone.
        self._address = address if server.addresses.enter(address) else None
        self.reader = HttpConnection(server.core.readers, self, transport)
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
