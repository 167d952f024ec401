"""Frames of SockJS and of event streams, parsed from pieces of any size. Pure.

SockJS 1.0: ``o`` open, ``h`` heartbeat, ``a[…]`` messages, ``c[code,"reason"]`` close; over
xhr-streaming each on a line of its own, after a prelude of ``h``. Event streams: WHATWG HTML
section 9.2.6, without ``retry`` and named events, which gateways don't send.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import orjson

from newsfabric.errors import Disconnected
from newsfabric.numbers import is_whole

# The largest push is a body of 64 KiB, six times as long when all of it is escaped.
MAX_LINE_BYTES: Final = 1 << 20


class LineSplitter:
    """A splitter of bytes into lines at LF; a line of more than ``longest`` bytes is an error."""

    def __init__(self, longest: int = MAX_LINE_BYTES) -> None:
        self._longest = longest
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that ``chunk`` completes, without (CR) LF; Disconnected if endless."""
        self._rest += chunk
        *lines, rest = self._rest.split(b"\n")
        self._rest = bytearray(rest)
        if len(self._rest) > self._longest:
            raise Disconnected(1009, "the gateway sent a line without end", reconnect=False)
        return [bytes(line).removesuffix(b"\r") for line in lines]


def sockjs_messages(frame: str | bytes) -> list[str]:
    """Return the messages in a SockJS frame (none in ``o``, ``h``); Disconnected for a close."""
    text = frame.decode("utf-8", "replace") if isinstance(frame, bytes) else frame
    kind, rest = text[:1], text[1:]
    # The prelude of xhr-streaming is 2,048 times "h".
    if kind in ("o", "h", ""):
        return []
    try:
        values = orjson.loads(rest)
    except orjson.JSONDecodeError as exc:
        raise Disconnected(1002, f"not a SockJS frame: {exc}", reconnect=False) from exc
    if kind == "a" and isinstance(values, list):
        return [str(value) for value in values]
    if kind == "c" and isinstance(values, list) and len(values) == 2 and _is_code(values[0]):
        raise closed(values[0], str(values[1]))
    raise Disconnected(1002, f"not a SockJS frame: {text[:20]!r}", reconnect=False)


def _is_code(value: Any) -> bool:
    # RFC 6455 section 7.4: codes have four digits.
    return is_whole(value, 1000, 9999)


class ServerSentEvent(NamedTuple):
    """An event: its data, and the last id so far (None: none yet)."""

    data: bytes
    last_id: str | None


class EventStream:
    """A parser of ``text/event-stream``; ``last_id`` is the last event id so far.

    An event whose data have more than ``longest`` bytes is an error.
    """

    def __init__(self, longest: int = MAX_LINE_BYTES) -> None:
        self._longest = longest
        self.last_id: str | None = None
        self._id: str | None = None
        self._lines = LineSplitter(longest)
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """Return the events with data that ``chunk`` completes; Disconnected for an endless one."""
        events = []
        for line in self._lines.feed(chunk):
            field, _, value = line.partition(b":")
            if field == b"data":
                self._data.append(value.removeprefix(b" "))
                self._size += len(value) + 1
                if self._size > self._longest:
                    raise Disconnected(1009, "an event without end", reconnect=False)
            elif field == b"id":
                self._id = value.removeprefix(b" ").decode("utf-8", "replace")
            elif not line:
                self.last_id = self._id
                if self._data:
                    events.append(ServerSentEvent(b"\n".join(self._data), self.last_id))
                    self._data, self._size = [], 0
        return events


def closed(code: int, reason: str) -> Disconnected:
    """Return an error for ``code``; its range decides whether to reconnect (newsfabric.closing)."""
    final = 4000 <= code <= 4099 or code in (1000, 1009)
    return Disconnected(code, reason or "closed", reconnect=not final)
