"""``GET /history?after=POSITION``: the messages that a reader missed, from one of the gateways.

Only a gateway knows the messages after a position, and whether they are certainly all: it follows
the routers' streams and keeps the marks. So the frontdesk forwards the request, and returns the
reply unchanged: the same code replies in both places. If a gateway doesn't reply, another is asked.

The decision that a reader would question: the frontdesk has the store as well, and could read the
rows itself. But it couldn't report ``recovered`` without following every stream, which is the task
of a gateway.

Replies are held here until they are complete, since only then they are known to be valid. All
replies in transfer share one bound. Above it the largest is given up, the rest of it is dropped as
it arrives, and its reader gets 503 and retries. So readers that missed little are served beside
others that missed much. No request waits for room, since it would hold a connection meanwhile. The
reader's own speed is handled elsewhere (:mod:`newsfabric.http.taking`).

An abandoned request can't be ended: Tornado's client keeps it until the box replies, or for 15 s. A
box with several abandoned requests is slow or silent. It isn't asked until they have ended, so that
it doesn't delay other readers.

A box reports its gateway's URL, whose host name may resolve to any address, and to a different one
each time. Where the operator has listed no hosts, the address of each connection is checked.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import socket
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode, urljoin

from tornado.httpclient import HTTPClientError, HTTPRequest, HTTPResponse
from tornado.netutil import DefaultLoopResolver
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from newsfabric.http.fetching import fetch
from newsfabric.http.networks import OtherMachines
from newsfabric.messages.control import LoadReport
from wholesale.common.http import RETRY, HttpProblem
from wholesale.frontdesk.api import counters

logger = logging.getLogger(__name__)

# A page has at most 1 MiB of messages; frames, and \u0000 escapes of publishers, add to that.
_MAX_ANSWER: Final = 16 << 20
_CONNECT_SECONDS: Final = 2.0
# A gateway reads the store at most twice, for five seconds each, and then replies.
_ANSWER_SECONDS: Final = 15.0
_BOXES_TRIED: Final = 3
# For all boxes asked. A box that sends a byte a second delays a request for no longer.
_SECONDS: Final = 20.0
_AT_ONCE: Final = 100
# Abandoned requests, of one box and of all. They hold connections, beside the requests above.
_LEFT_BY_A_BOX: Final = 10
_LEFT: Final = 100
# Of all replies in transfer: four of the largest, or a hundred of a usual page.
_MOST_BYTES: Final = 64 << 20
# The headers that a gateway needs. Cookies must not be sent to boxes.
_PASSED_ON: Final = ("Authorization",)


@dataclasses.dataclass(frozen=True, slots=True)
class HistoryReply:
    """The reply of a gateway: its HTTP status, and JSON."""

    status: int
    body: bytes


class HistoryProxy:
    """Asks gateways. It belongs to one event loop; :meth:`close` it."""

    def __init__(
        self,
        machines: OtherMachines | None = None,
        *,
        most_bytes: int = _MOST_BYTES,
        seconds: float = _SECONDS,
    ) -> None:
        """Connect only to ``machines``, if given.

        ``most_bytes`` bounds all replies in transfer together, ``seconds`` each request.
        """
        self._http = SimpleAsyncHTTPClient(
            force_instance=True,
            max_clients=_AT_ONCE + _LEFT,
            max_body_size=_MAX_ANSWER,
            resolver=None if machines is None else _Checked(machines=machines),
        )
        self._room = _SharedBuffer(most_bytes)
        self._seconds = seconds
        self._asking = 0
        self._abandoned = _Abandoned()

    def close(self) -> None:
        """Close the connections."""
        self._abandoned.close()
        self._http.close()

    async def ask_boxes(
        self, boxes: Sequence[LoadReport], query: Mapping[str, str], headers: Mapping[str, str]
    ) -> HistoryReply:
        """Return the reply to ``query`` of the first of ``boxes`` that can reply, or HttpProblem.

        Cancel it when nobody waits for the reply any more.
        """
        try:
            answer = await self._ask_some(boxes, query, headers)
        except asyncio.CancelledError:
            counters.CATCHING_UP_LEFT.inc()
            raise
        except HttpProblem as problem:
            counters.CATCHING_UP.labels(problem.reason).inc()
            raise
        counters.CATCHING_UP_ANSWERED.inc()
        return answer

    async def _ask_some(
        self, boxes: Sequence[LoadReport], query: Mapping[str, str], headers: Mapping[str, str]
    ) -> HistoryReply:
        if self._asking >= _AT_ONCE or self._abandoned.are_many():
            raise _busy()
        boxes = [box for box in boxes if not self._abandoned.is_slow(box.box)]
        self._asking += 1
        try:
            async with asyncio.timeout(self._seconds):
                for box in boxes[:_BOXES_TRIED]:
                    answer = await self._ask(box, query, headers)
                    if answer is not None:
                        return answer
        except TimeoutError:
            logger.debug("history request timed out at all boxes")
        finally:
            self._asking -= 1
        raise HttpProblem(503, "unavailable", "no gateway of this region answers", headers=RETRY)

    async def _ask(
        self, box: LoadReport, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> HistoryReply | None:
        body = _Body(self._room)
        request = HTTPRequest(
            f"{urljoin(box.sse_url, 'history')}?{urlencode(query)}",
            headers={name: headers[name] for name in _PASSED_ON if name in headers},
            connect_timeout=_CONNECT_SECONDS,
            request_timeout=_ANSWER_SECONDS,
            follow_redirects=False,
            streaming_callback=body.append,
        )
        asked = asyncio.ensure_future(fetch(self._http, request, raise_error=False))
        try:
            response = await asyncio.shield(asked)
            if body.given_up:
                raise _busy()
            # Draining, full, or the rate limit is exceeded: another gateway may reply.
            if response.code >= 500 or response.code == 429:
                return None
            return HistoryReply(response.code, bytes(body.held))
        except (OSError, ValueError, HTTPClientError) as exc:
            logger.debug("can't ask %s: %s", box.box, exc)
            return None
        except asyncio.CancelledError:
            self._abandoned.add(box.box, asked)
            raise
        finally:
            body.give_up()


def _busy() -> HttpProblem:
    return HttpProblem(503, "busy", "too many are catching up", headers=RETRY)


class _Abandoned:
    """Abandoned requests, by box, until they end."""

    def __init__(self) -> None:
        self._open: dict[asyncio.Future[HTTPResponse], str] = {}

    def add(self, box: str, asked: asyncio.Future[HTTPResponse]) -> None:
        """Note that nobody waits for ``asked``, a request to ``box``, any more."""
        self._open[asked] = box
        asked.add_done_callback(self._ended)

    def is_slow(self, box: str) -> bool:
        """Return whether ``box`` has too many abandoned requests open."""
        return sum(each == box for each in self._open.values()) >= _LEFT_BY_A_BOX

    def are_many(self) -> bool:
        """Return whether all boxes together have too many."""
        return len(self._open) >= _LEFT

    def close(self) -> None:
        """Cancel all."""
        for asked in self._open:
            asked.cancel()

    def _ended(self, asked: asyncio.Future[HTTPResponse]) -> None:
        del self._open[asked]
        if not asked.cancelled():
            # Retrieves the error, which would otherwise be logged as never retrieved.
            asked.exception()


class _Body:
    """A reply, as far as it has arrived.

    After it is given up, the rest is dropped as it arrives: a request of Tornado's client can't be
    ended before its time.
    """

    def __init__(self, room: _SharedBuffer) -> None:
        self.held = bytearray()
        self.given_up = False
        self._room = room

    def append(self, chunk: bytes) -> None:
        """Add a part of the reply. Called by Tornado."""
        if not self.given_up:
            self.held += chunk
            self._room.grown(self, len(chunk))

    def give_up(self) -> None:
        """Drop the bytes held, and all that will arrive."""
        if not self.given_up:
            self.given_up = True
            self._room.left(self)
            self.held = bytearray()


class _SharedBuffer:
    """The bytes of all replies in transfer together: ``most_bytes`` at most."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._bodies: set[_Body] = set()

    def grown(self, body: _Body, size: int) -> None:
        """Count ``size`` more bytes of ``body``; if there is no room, give up the largest."""
        self._bodies.add(body)
        self._bytes += size
        if self._bytes > self._most_bytes:
            max(self._bodies, key=lambda one: len(one.held)).give_up()
        counters.CATCHING_UP_BYTES.set(self._bytes)

    def left(self, body: _Body) -> None:
        """Forget ``body``, which isn't held any more."""
        self._bodies.discard(body)
        self._bytes -= len(body.held)
        counters.CATCHING_UP_BYTES.set(self._bytes)


class _Checked(DefaultLoopResolver):
    """Leaves out addresses that are none of ``machines``; OSError where no other is left."""

    def initialize(self, *, machines: OtherMachines) -> None:
        self._machines = machines

    async def resolve(
        self, host: str, port: int, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[tuple[int, Any]]:
        found = await super().resolve(host, port, family)
        allowed = [each for each in found if self._machines.allows_address(each[1][0])]
        if not allowed:
            raise OSError(f"{host} leads to no other machine")
        return allowed
