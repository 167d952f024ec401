"""A unix socket that carries messages and file descriptors, and the room that it has for answers.

A thin shell over a non-blocking socket, because asyncio's streams don't receive descriptors.
Commands of one turn of the event loop are sent in one write. Bytes that wait to be written are
bounded: a data plane that takes none is given up, and its publications are sent again to the next
attachment.
"""

from __future__ import annotations

import array
import asyncio
import collections
import contextlib
import os
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from gateway.native.events import Decoder, Event, HandoverEvent, Verb
from gateway.native.wire import WireError

_READ_BYTES: Final = 256 * 1024
# After this many reads, other tasks have their turn of the event loop first.
_READS_AT_ONCE: Final = 16
# SCM_MAX_FD, unix(7).
_DESCRIPTORS: Final = 253
_INT_BYTES: Final = array.array("i").itemsize
# Publications are bounded by the feed's prefetch, answers by FULL_BYTES: above it no more answers
# may be made, since each can be a megabyte.
_WAITING_BYTES: Final = 256 << 20
FULL_BYTES: Final = 8 << 20
# Bytes of one write that joins shorter commands; and writes before other tasks' turn.
_WRITE_BYTES: Final = 256 * 1024
_WRITES_AT_ONCE: Final = 64


class ControlLink:
    """A connected link. ``on_event`` gets each event, with the descriptor of a handover; None if
    the descriptor was lost, because this process may have no more.

    ``on_lost`` is called once, with the reason, unless :meth:`close` came first; ``on_room`` when
    the link was :attr:`full` and isn't any more.
    """

    def __init__(
        self,
        connected: socket.socket,
        on_event: Callable[[Event, int | None], None],
        on_lost: Callable[[str], None],
        on_room: Callable[[], None] = lambda: None,
    ) -> None:
        self._socket = connected
        self._on_event = on_event
        self._on_lost = on_lost
        self._on_room = on_room
        self._loop = asyncio.get_running_loop()
        self._decoder = Decoder()
        # Descriptors whose message isn't whole yet, in order of arrival.
        self._descriptors: collections.deque[int | None] = collections.deque()
        self._waiting: collections.deque[bytes | memoryview] = collections.deque()
        self._waiting_bytes = 0
        self._scheduled = False
        self._blocked = False
        self.closed = False
        self._loop.add_reader(self._socket, self._read)

    @property
    def full(self) -> bool:
        """True if too many bytes wait for more answers to be made."""
        return self._waiting_bytes > FULL_BYTES

    def send(self, command: bytes) -> None:
        """Send ``command`` at the end of this turn of the loop, unless the link is closed."""
        if self.closed:
            return
        self._waiting.append(command)
        self._waiting_bytes += len(command)
        if self._waiting_bytes > _WAITING_BYTES:
            self._lose("it doesn't take our commands")
        elif not self._scheduled and not self._blocked:
            self._scheduled = True
            self._loop.call_soon(self._write)

    def close(self) -> None:
        """Close the link; the data plane continues without us. Idempotent."""
        if self.closed:
            return
        self.closed = True
        self._loop.remove_reader(self._socket)
        if self._blocked:
            self._loop.remove_writer(self._socket)
        self._socket.close()
        self._waiting.clear()
        while self._descriptors:
            if (descriptor := self._descriptors.popleft()) is not None:
                os.close(descriptor)

    def _lose(self, why: str) -> None:
        if not self.closed:
            self.close()
            self._on_lost(why)

    def _lose_after_reading(self, why: str) -> None:
        """Read the last messages, then lose the link, on which nothing can be written any more. The
        messages may bring requests of readers: each gets a reset if its socket is closed unread."""
        with contextlib.suppress(OSError, WireError):
            for _ in range(_READS_AT_ONCE):
                if not (data := self._receive()):
                    break
                self._decode(data)
        self._lose(why)

    def _write(self) -> None:
        self._scheduled = False
        was_full = self.full
        for _ in range(_WRITES_AT_ONCE):
            if self.closed or not self._waiting:
                break
            data = self._next_piece()
            try:
                sent = self._socket.send(data)
            except BlockingIOError:
                sent = 0
            except OSError as exc:
                self._lose_after_reading(str(exc))
                return
            self._waiting_bytes -= sent
            if sent < len(data):
                self._waiting.appendleft(memoryview(data)[sent:])
                break
        if self.closed:
            return
        if bool(self._waiting) != self._blocked:
            self._blocked = bool(self._waiting)
            if self._blocked:
                self._loop.add_writer(self._socket, self._write)
            else:
                self._loop.remove_writer(self._socket)
        if was_full and not self.full:
            self._on_room()

    def _next_piece(self) -> bytes | memoryview:
        """Return the bytes to write next: short commands together, a long one alone."""
        pieces = [self._waiting.popleft()]
        size = len(pieces[0])
        while self._waiting and size + len(self._waiting[0]) <= _WRITE_BYTES:
            pieces.append(self._waiting.popleft())
            size += len(pieces[-1])
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _read(self) -> None:
        """Read the bytes that have arrived, and read again in the next turn until none are left.

        If a data plane ends before it has read all our bytes, uvloop reports the end only once.
        And the bytes read in one turn are bounded: other tasks have their turns in between.
        """
        if self.closed:
            return
        try:
            for _ in range(_READS_AT_ONCE):
                data = self._receive()
                if not data:
                    self._lose("it has closed the link")
                    return
                self._decode(data)
                if self.closed:
                    return
                if len(data) < _READ_BYTES:
                    break
            self._loop.call_soon(self._read)
        except BlockingIOError:
            return
        except (OSError, WireError) as exc:
            self._lose(str(exc))

    def _receive(self) -> bytes:
        data, ancillary, flags, _ = self._socket.recvmsg(
            _READ_BYTES, socket.CMSG_SPACE(_DESCRIPTORS * _INT_BYTES), socket.MSG_CMSG_CLOEXEC
        )
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                found = array.array("i")
                found.frombytes(content[: len(content) - len(content) % _INT_BYTES])
                self._descriptors.extend(found)
        if flags & socket.MSG_CTRUNC:
            # The data plane sends one descriptor at a time, and a call's bytes end behind it.
            self._descriptors.append(None)
        return data

    def _decode(self, data: bytes) -> None:
        for event in self._decoder.feed(data):
            descriptor = None
            if isinstance(event, HandoverEvent):
                if not self._descriptors:
                    raise WireError("a handover without a descriptor")
                descriptor = self._descriptors.popleft()
            self._on_event(event, descriptor)
            if self.closed:
                return


class AnswerBackpressure:
    """Verbs and their answers, while the link to the data plane has room for answers.

    An answer can be a megabyte, and a crowd asks at once. So verbs wait here while the link is
    full, in their order. Tasks that make an answer later wait, too (:meth:`wait`), and are released
    one at a time. Both are bounded by one for each reader: the data plane sends no reader's next
    verb before this one is answered.

    ``is_full`` returns whether the link has no room; False also while there is no link.
    """

    def __init__(self, is_full: Callable[[], bool]) -> None:
        self.is_full = is_full
        #: Answers a verb, once for each connection. It may not block or raise.
        self.answer: Callable[[bytes, bytes, bytes], None]
        self._verbs: collections.deque[Verb] = collections.deque()
        # The task whose turn it is waits for room: if all woke at once, most would find none.
        self._turn = asyncio.Lock()
        self._grew = asyncio.Event()

    def receive(self, verbs: Iterable[Verb]) -> None:
        """Take verbs that were received: they are answered as long as there is room."""
        self._verbs.extend(verbs)
        self._answer()

    def on_room(self) -> None:
        """Answer the verbs and wake the tasks that wait: there is room again."""
        self._grew.set()
        self._answer()

    def reset(self) -> None:
        """Forget the verbs of an attachment that has ended: each is sent again. End all waiting."""
        self._verbs.clear()
        self._grew.set()

    async def wait(self) -> None:
        """Return when an answer may be made, or when there is no attachment to send it to."""
        if self.is_full():
            async with self._turn:
                while self.is_full():
                    self._grew.clear()
                    await self._grew.wait()

    def _answer(self) -> None:
        while self._verbs and not self.is_full():
            self.answer(*self._verbs.popleft())


def connected(path: Path) -> socket.socket:
    """Return a socket connected to the data plane at ``path``; OSError if none listens there."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # A frozen data plane with a full backlog would make us wait: EAGAIN, unix(7).
    connection.setblocking(False)
    try:
        connection.connect(str(path))
    except BaseException:
        connection.close()
        raise
    return connection
