"""A unix socket that carries messages and descriptors, and the room that it has for answers.

A thin shell over a non-blocking socket, because asyncio's streams don't receive descriptors.
Commands of one turn of the loop leave in one write. What waits to be written is bounded: a data
plane that takes nothing is given up, and what it missed is sent again to the next attachment.
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

from gateway.native.events import Decoder, Event, Handover, Verb
from gateway.native.wire import WireError

_READ_BYTES: Final = 256 * 1024
# More than these leave the loop to others first.
_READS_AT_ONCE: Final = 16
# SCM_MAX_FD, unix(7).
_DESCRIPTORS: Final = 253
_INT_BYTES: Final = array.array("i").itemsize
# Publications are bounded by the feed's prefetch, answers by FULL_BYTES: beyond that no more of
# them may be made, since each can be a megabyte.
_WAITING_BYTES: Final = 256 << 20
FULL_BYTES: Final = 8 << 20
# What leaves in one write, if it comes in smaller pieces; and so many writes before others' turn.
_WRITE_BYTES: Final = 256 * 1024
_WRITES_AT_ONCE: Final = 64


class ControlLink:
    """A connected link. ``on_event`` gets each event, and a handover's descriptor with it; None if
    that was lost, because this process may have no more.

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
        # Descriptors whose message isn't whole yet, in the order in which they came.
        self._descriptors: collections.deque[int | None] = collections.deque()
        self._waiting: collections.deque[bytes | memoryview] = collections.deque()
        self._waiting_bytes = 0
        self._scheduled = False
        self._blocked = False
        self.closed = False
        self._loop.add_reader(self._socket, self._read)

    @property
    def full(self) -> bool:
        """Whether so much waits that no more answers should be made."""
        return self._waiting_bytes > FULL_BYTES

    def send(self, command: bytes) -> None:
        """Send ``command`` at the end of this turn; nothing if the link is closed."""
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
        """Let go of the data plane; it goes on without us. Idempotent."""
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
        """Nothing can be written any more, but what was said last is still to be read, and with it
        come requests of readers: each is a reset to its reader if its socket is closed unread.
        """
        with contextlib.suppress(OSError, WireError):
            for _ in range(_READS_AT_ONCE):
                if not (data := self._receive()):
                    break
                self._take(data)
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
        """What to write next: commands that are short together, a long one alone."""
        pieces = [self._waiting.popleft()]
        size = len(pieces[0])
        while self._waiting and size + len(self._waiting[0]) <= _WRITE_BYTES:
            pieces.append(self._waiting.popleft())
            size += len(pieces[-1])
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _read(self) -> None:
        """Read what there is, and look again in the next turn until there is nothing left.

        Of a data plane that ended without reading all from us uvloop tells once, and never again.
        And what is read in one turn is bounded: others have their turns in between.
        """
        if self.closed:
            return
        try:
            for _ in range(_READS_AT_ONCE):
                data = self._receive()
                if not data:
                    self._lose("it has closed the link")
                    return
                self._take(data)
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
            # The data plane sends one at a time, and what one call receives ends behind it.
            self._descriptors.append(None)
        return data

    def _take(self, data: bytes) -> None:
        for event in self._decoder.feed(data):
            descriptor = None
            if isinstance(event, Handover):
                if not self._descriptors:
                    raise WireError("a handover without a descriptor")
                descriptor = self._descriptors.popleft()
            self._on_event(event, descriptor)
            if self.closed:
                return


class Room:
    """Verbs and their answers, while the link to the data plane has room for answers.

    An answer can be a megabyte, and a crowd asks at once. So verbs wait here while the link is
    full, in their order, and so does whoever makes an answer later (:meth:`wait`), one let on at a
    time. The bound of both is one for each reader: the data plane sends nobody's next verb before
    this one is answered.

    ``is_full`` says whether the link has no room; False also while there is no link.
    """

    def __init__(self, is_full: Callable[[], bool]) -> None:
        self.is_full = is_full
        #: Answers a verb, each who said it once. It may not block or raise.
        self.answer: Callable[[bytes, bytes, bytes], None]
        self._verbs: collections.deque[Verb] = collections.deque()
        # Whose turn it is waits for room; all at once would find none for most of them.
        self._turn = asyncio.Lock()
        self._grew = asyncio.Event()

    def heard(self, verbs: Iterable[Verb]) -> None:
        """These have come: they are answered as long as there is room."""
        self._verbs.extend(verbs)
        self._answer()

    def grew(self) -> None:
        """There is room again: answer who waits."""
        self._grew.set()
        self._answer()

    def forget(self) -> None:
        """The attachment has ended: its verbs come again, and nobody need wait for room."""
        self._verbs.clear()
        self._grew.set()

    async def wait(self) -> None:
        """Return when an answer may be made, or there is no attachment to send it to."""
        if self.is_full():
            async with self._turn:
                while self.is_full():
                    self._grew.clear()
                    await self._grew.wait()

    def _answer(self) -> None:
        while self._verbs and not self.is_full():
            self.answer(*self._verbs.popleft())


def connected(path: Path) -> socket.socket:
    """A socket connected to the data plane at ``path``; OSError if none listens there."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # A frozen one that has enough connections to accept would have us wait: EAGAIN, unix(7).
    connection.setblocking(False)
    try:
        connection.connect(str(path))
    except BaseException:
        connection.close()
        raise
    return connection
