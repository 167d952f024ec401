"""The bounds of all bytes that wait for readers in this process, and of the time without progress.

Each outbox has limits of its own. But ten thousand readers who take no bytes fill ten thousand
outboxes, and an HTTP answer that isn't taken waits in its stream. So all these bytes together have
a bound. Above it, the readers furthest behind are closed as slow readers, until an eighth of it is
free. So all readers are scanned at most once for each such eighth of new bytes.

A reader that has taken nothing for ``stalled_seconds`` while bytes wait is closed too, however few
they are. A reader counts as taking bytes when its kernel buffer here has room again.

A stream is checked once a second; until the next check, bytes sent meanwhile count as waiting.
"""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from gateway.process import measures
from gateway.wire.outbox import Account, Outbox
from newsfabric.closing import SLOW_READER, CloseReason
from newsfabric.http.taking import WatchedStream

_LOOK_SECONDS: Final = 1.0
# Bytes in a closing reader's stream that are still sent, so that the goodbye behind them arrives.
# With more, the connection is cut at once: the bytes would stay for as long as a goodbye may take.
# Where room is needed, it is also cut if most of its bytes are in the stream, or if it was closing
# already: a goodbye would free too few, and readers hardly behind would be closed too.
_GOODBYE_BEHIND: Final = 128 * 1024


class BudgetedReader(Protocol):
    """A reader for whom bytes may wait: in its outbox, and in ``stream`` if it has its own."""

    outbox: Outbox
    stream: ReaderStream | None

    @property
    def waiting_bytes(self) -> int:
        """All bytes that wait for the reader, wherever they are."""

    def close(self, reason: CloseReason) -> None:
        """Close the connection, with a goodbye."""


class Budget:
    """The bytes that wait in one process for ``readers``, closing ones included.

    ``clock`` is any clock in seconds. A budget belongs to the event loop that made it.
    """

    def __init__(
        self,
        most_bytes: int,
        stalled_seconds: float,
        readers: Callable[[], Sequence[BudgetedReader]],
        clock: Callable[[], float],
    ) -> None:
        self.account = Account(self._check, lambda policy: measures.DROPPED.labels(policy).inc())
        self._most_bytes = self._close_above = most_bytes
        self._stalled_seconds = stalled_seconds
        self._readers = readers
        self._clock = clock
        # Streams with bytes that the kernel didn't take, in the order in which they began to wait.
        # Of each, as of its last check: the bytes that wait, the bytes ever sent, and the time
        # since which the latter hasn't changed.
        self._streams: dict[ReaderStream, tuple[int, int, float]] = {}
        self._in_streams = 0
        self._scheduled = False

    @property
    def waiting_bytes(self) -> int:
        """All bytes that wait: in outboxes, and in streams as of their last check."""
        return self.account.bytes + self._in_streams

    async def watch(self) -> None:
        """Check all streams regularly, for as long as the gateway lives."""
        while True:
            await asyncio.sleep(min(_LOOK_SECONDS, self._stalled_seconds / 4))
            self.check_streams()

    def waits(self, stream: ReaderStream) -> None:
        """Count ``stream``: the kernel didn't take all bytes written to it."""
        self._note(stream)
        self._check()

    def check_streams(self) -> None:
        """Check the progress of streams, and close those that have sent nothing for too long."""
        now = self._clock()
        for stream in list(self._streams):
            if now - self._note(stream) >= self._stalled_seconds:
                self._close_stalled(stream)
        self._close_above = min(self._close_above, max(self._most_bytes, self._enough_more()))

    def _note(self, stream: ReaderStream) -> float:
        """Count the bytes that wait in ``stream``; return the time since which none was sent."""
        now, waiting = self._clock(), stream.waiting
        known, sent, since = self._streams.get(stream, (0, stream.sent, now))
        self._in_streams += waiting - known
        if not waiting or stream.sent != sent:
            since = now
        if waiting:
            self._streams[stream] = waiting, stream.sent, since
        else:
            self._streams.pop(stream, None)
        return since

    def _check(self) -> None:
        if self.waiting_bytes > self._close_above and not self._scheduled:
            # Not now: the caller is in the middle of a write.
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._make_room)

    def _make_room(self) -> None:
        self._scheduled = False
        self.check_streams()
        # Of readers equally far behind, the newest is closed first.
        behind: list[tuple[int, BudgetedReader | ReaderStream]]
        behind = [(reader.waiting_bytes, reader) for reader in reversed(self._readers())]
        behind += [(stream.waiting, stream) for stream in self._streams if stream.reader is None]
        behind.sort(reverse=True, key=operator.itemgetter(0))
        enough = self._most_bytes - self._most_bytes // 8
        for waiting, one in behind:
            if self.waiting_bytes <= enough or not waiting:
                break
            if isinstance(one, ReaderStream):
                self._close_stalled(one)
            else:
                one.close(SLOW_READER)
                if one.waiting_bytes > min(_GOODBYE_BEHIND, waiting // 2):
                    self._abort(one)
        # Bytes that goodbyes still need must not start this search again and again.
        self._close_above = max(self._most_bytes, self._enough_more())

    def _enough_more(self) -> int:
        return self.waiting_bytes + self._most_bytes // 8

    def _close_stalled(self, stream: ReaderStream) -> None:
        """Close a stream whose peer takes nothing, with a goodbye if it has a reader."""
        if stream.reader is None:
            stream.close()
        else:
            stream.reader.close(SLOW_READER)
            if stream.waiting > _GOODBYE_BEHIND:
                stream.close()
        self._note(stream)

    def _abort(self, reader: BudgetedReader) -> None:
        """Cut a connection that is closing already, at once and without a goodbye."""
        reader.outbox.clear()
        if reader.stream is not None:
            reader.stream.close()
            self._note(reader.stream)


class ReaderStream(WatchedStream):
    """A stream to an unknown peer, who may take nothing.

    ``reader`` is the connection that owns the stream; None if HTTP requests share it.
    """

    reader: BudgetedReader | None = None
    #: Asks the reader on the stream for a sign of life; None where that can't be done.
    probe: Callable[[], None] | None = None
    #: True if the peer only gets the answer that there is no room.
    turned_away = False
