"""One bound for all that waits for readers in this process, and one for how long they take nothing.

Each outbox has limits of its own, but ten thousand readers who take nothing fill ten thousand of
them, and each HTTP answer that isn't taken waits in its stream. So all of it together has a bound.
Over it, those who are furthest behind are closed as slow readers, until an eighth is free again:
so everybody is looked at once for at least so many bytes that came in between.

Who has taken nothing for ``stalled_seconds`` while something waits is closed too, however little
that is. A reader takes something when the kernel does: its buffer has room again.

A stream is looked at once a second; until then what it has sent meanwhile counts as waiting.
"""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from gateway import measures
from gateway.outbox import Account, Outbox
from newsfabric.closing import SLOW_READER, CloseReason
from newsfabric.http.taking import WatchedStream

_LOOK_SECONDS: Final = 1.0
# What a stream has begun to send is finished for the goodbye behind it, unless it is longer: then
# it would be kept for as long as the goodbye may take, and the connection ends at once. So it does
# where room is needed and that is most of what waits, or it was closing before: its goodbye would
# free nothing, and those who are hardly behind would be closed too.
_GOODBYE_BEHIND: Final = 128 * 1024


class Waiting(Protocol):
    """A reader for whom something may wait: in its outbox, in its ``stream`` if it has its own."""

    outbox: Outbox
    stream: ReaderStream | None

    @property
    def waiting_bytes(self) -> int:
        """All that waits for it, wherever."""

    def close(self, reason: CloseReason) -> None:
        """End it, with a goodbye."""


class Budget:
    """What waits in one process, for ``readers``, those who are closing too.

    ``clock`` is any, in seconds. Lives on the loop that made it.
    """

    def __init__(
        self,
        most_bytes: int,
        stalled_seconds: float,
        readers: Callable[[], Sequence[Waiting]],
        clock: Callable[[], float],
    ) -> None:
        self.account = Account(self._check, lambda policy: measures.DROPPED.labels(policy).inc())
        self._most_bytes = self._close_above = most_bytes
        self._stalled_seconds = stalled_seconds
        self._readers = readers
        self._clock = clock
        # Streams that the kernel doesn't take everything from, in the order in which they began to
        # wait: what waits there as far as is known, how much they have ever sent, and since when
        # that is so.
        self._streams: dict[ReaderStream, tuple[int, int, float]] = {}
        self._in_streams = 0
        self._scheduled = False

    @property
    def waiting_bytes(self) -> int:
        """All that waits: in outboxes, and in streams as far as is known."""
        return self.account.bytes + self._in_streams

    async def watch(self) -> None:
        """Look after everybody now and then, for as long as the gateway lives."""
        while True:
            await asyncio.sleep(min(_LOOK_SECONDS, self._stalled_seconds / 4))
            self.look()

    def waits(self, stream: ReaderStream) -> None:
        """The kernel didn't take all of what was written to ``stream``."""
        self._note(stream)
        self._check()

    def look(self) -> None:
        """See what streams have sent, and close those that have sent nothing for too long."""
        now = self._clock()
        for stream in list(self._streams):
            if now - self._note(stream) >= self._stalled_seconds:
                self._give_up(stream)
        self._close_above = min(self._close_above, max(self._most_bytes, self._enough_more()))

    def _note(self, stream: ReaderStream) -> float:
        """Count what waits in ``stream`` now; since when has it taken nothing of that?"""
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
            # Not now: whoever writes is in the middle of something.
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._make_room)

    def _make_room(self) -> None:
        self._scheduled = False
        self.look()
        # Of those who are equally far behind the one who came last goes first.
        behind: list[tuple[int, Waiting | ReaderStream]]
        behind = [(reader.waiting_bytes, reader) for reader in reversed(self._readers())]
        behind += [(stream.waiting, stream) for stream in self._streams if stream.reader is None]
        behind.sort(reverse=True, key=operator.itemgetter(0))
        enough = self._most_bytes - self._most_bytes // 8
        for waiting, one in behind:
            if self.waiting_bytes <= enough or not waiting:
                break
            if isinstance(one, ReaderStream):
                self._give_up(one)
            else:
                one.close(SLOW_READER)
                if one.waiting_bytes > min(_GOODBYE_BEHIND, waiting // 2):
                    self._cut_short(one)
        # What goodbyes take is not to be searched for again and again.
        self._close_above = max(self._most_bytes, self._enough_more())

    def _enough_more(self) -> int:
        return self.waiting_bytes + self._most_bytes // 8

    def _give_up(self, stream: ReaderStream) -> None:
        """End a stream that nobody reads, with a goodbye if there is a reader to hear one."""
        if stream.reader is None:
            stream.close()
        else:
            stream.reader.close(SLOW_READER)
            if stream.waiting > _GOODBYE_BEHIND:
                stream.close()
        self._note(stream)

    def _cut_short(self, reader: Waiting) -> None:
        """End what is closing already, at once and without a goodbye."""
        reader.outbox.clear()
        if reader.stream is not None:
            reader.stream.close()
            self._note(reader.stream)


class ReaderStream(WatchedStream):
    """A stream to somebody we know nothing of, who may take nothing.

    ``reader`` is the connection that owns it, if one does; requests over HTTP share one.
    """

    reader: Waiting | None = None
    #: Asks whoever is served on it for a sign of life; None where that can't be done.
    ask_for_life: Callable[[], None] | None = None
    #: Whether whoever it is only hears that there is no room.
    turned_away = False
