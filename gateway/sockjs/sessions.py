"""The sessions of one gateway, and the reader behind each.

A session is told apart by its id alone. It has one response at a time or none, and a
:class:`HttpConnection`, which is blocked while none waits: so its outbox holds what comes between
two polls, within the bounds of all readers. It writes nothing itself: a response frames and sends
(:mod:`gateway.sockjs.receiving`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tornado.ioloop import IOLoop

from gateway.bodies import Bodies
from gateway.connection import Connection, Readers
from gateway.frames import Variant, dress, sockjs_array, sockjs_close
from gateway.sockjs.sockjs_tornado import SessionMixin, SockJSRouter
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
        """Let go of timers and sessions, before the loop ends."""
        self._sessions_cleanup.stop()
        self.stats._callback.stop()
        for session in list(self._sessions._items.values()):
            session.close()


class HttpConnection(Connection):
    """A reader on one of SockJS's HTTP transports: blocked unless a response waits for us."""

    variant = Variant.SOCKJS

    def __init__(self, readers: Readers, session: Session, transport: str) -> None:
        self.transport = transport
        super().__init__(readers)
        # A body brings all of that at once, and between two polls its verbs wait.
        self.most_verb_bytes = self.settings.reader.burst_bytes
        self._session = session
        self.blocked = True

    def _write(self, frames: list[bytes]) -> None:
        # One packet is under way at a time: what comes meanwhile leaves together.
        self.blocked = True
        self._session.handler.send_pack(sockjs_array(frames))

    def _heartbeat(self) -> None:
        handler = self._session.handler
        if handler is not None and handler.active:
            self.blocked = True
            handler.send_pack(b"h")

    def lost(self) -> None:
        """As :meth:`Connection.lost`; its address may have another one."""
        super().lost()
        self._session.leave_address()

    def _say_goodbye(self, push: bytes, reason: CloseReason) -> None:
        self._firm(dress(push, self.variant))
        self._session.ended(reason.code, reason.text)


class Session(SessionMixin):  # type: ignore[misc]
    """A SockJS session: whichever response is there now, and the reader behind it.

    The session outlives its reader by ``disconnect_delay``, to answer late polls.
    """

    def __init__(self, server: Router, session_id: str, transport: str, address: str) -> None:
        super().__init__(session_id, server.settings["disconnect_delay"])
        self.server = server
        self.handler: Any = None
        # What the close frame says; None while it is open.
        self._close_reason: tuple[int, str] | None = None
        # Whose it is, wherever it goes on from: until its reader is gone.
        self._address = address if server.addresses.enter(address) else None
        self.reader = HttpConnection(server.core.readers, self, transport)

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
        if self._is_over:
            self._told(handler.send_pack)
            return False
        self.handler = handler
        self.promote()
        return True

    def remove_handler(self, _: Any) -> None:
        """The response is over."""
        self.handler = None
        self.reader.blocked = True
        self.reader.stop_beat()
        self.promote()

    def flush(self) -> None:
        """The response can take a packet: send what waits, the close frame last."""
        handler = self.handler
        if handler is None or not handler.active:
            return
        self.reader.start_beat()
        self.reader.unblocked()
        if self._is_over and self.handler is handler and handler.active:
            self._told(handler.send_last)

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
        self._close_reason = (code, text)
        self.promote()
        self.flush()

    def close(self, code: int = 3000, message: str = "Go away!") -> None:
        """The reader is gone: its response broke off, or it didn't poll again in time."""
        self._close_reason = self._close_reason or (code, message)
        self.reader.lost()
        if self.handler is not None:
            self.handler.session_closed()

    def on_delete(self, forced: bool) -> None:
        """The table's clean-up: a session with a living response stays."""
        if self.handler is not None and not self.is_closed:
            self.promote()
        else:
            self.close()

    def leave_address(self) -> None:
        """It doesn't count any more. Idempotent."""
        if self._address is not None:
            self.server.addresses.leave(self._address)
            self._address = None

    @property
    def _is_over(self) -> bool:
        return self.is_closed and not len(self.reader.outbox)

    def _told(self, send: Any) -> None:
        assert self._close_reason is not None
        send(sockjs_close(*self._close_reason))
        self.reader.lost()
