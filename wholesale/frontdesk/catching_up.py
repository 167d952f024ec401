"""``GET /history?after=POSITION``: what a reader has missed, asked of one of the region's gateways.

What lies beyond a position, and whether that is certainly all, only a gateway knows: it follows
the routers' streams and keeps the marks. So the frontdesk hands the question on, and the answer
back as it came: the same code answers in both places. A gateway that doesn't answer is left for
another one.

The decision that one would question: the frontdesk has the store as well, and could read the rows
itself. It couldn't say ``recovered`` without following every stream, which is what a gateway is.

Answers are held here until they are whole, since only then they are known to be any. All that are
on their way have one bound together. Where it is reached, the largest is given up and dropped as it
comes, and who asked for it is told to come back (503): so whoever has missed little gets it beside
others who missed much. Nobody is kept waiting for room: who waits would hold a connection, too.
What a reader takes slowly is no affair of this module (:mod:`newsfabric.http.taking`).

A question that nobody waits for any more can't be ended: Tornado's client keeps it until the box
answers, or for 15 s. A box that has left a few of them open is slow or silent, and isn't asked
until they have ended, so it keeps nobody from the others.

A box says where its gateway is, so its name may lead anywhere, and elsewhere each time that it is
looked up. Where the operator has listed no hosts, the addresses are checked that are connected to.
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
from wholesale.frontdesk import counters

logger = logging.getLogger(__name__)

# A page has at most 1 MiB of messages; frames and what a publisher wrote as \\u0000 add to that.
_MAX_ANSWER: Final = 16 << 20
_CONNECT_SECONDS: Final = 2.0
# A gateway reads the store twice if need be, for five seconds each, and says so.
_ANSWER_SECONDS: Final = 15.0
_BOXES_TRIED: Final = 3
# However many of them are asked. A box that sends a byte a second holds nobody up for longer.
_SECONDS: Final = 20.0
_AT_ONCE: Final = 100
# That nobody waits for any more: by one box, and by all. Beside those above they keep connections.
_LEFT_BY_A_BOX: Final = 10
_LEFT: Final = 100
# Of all answers that are on their way: four of the largest, or a hundred of a usual page.
_MOST_BYTES: Final = 64 << 20
# What a gateway goes by. Cookies are no business of other boxes.
_PASSED_ON: Final = ("Authorization",)


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """What a gateway answered: its HTTP status, and JSON."""

    status: int
    body: bytes


class CatchingUp:
    """Asks gateways. Lives on one loop; :meth:`close` it."""

    def __init__(
        self,
        machines: OtherMachines | None = None,
        *,
        most_bytes: int = _MOST_BYTES,
        seconds: float = _SECONDS,
    ) -> None:
        """Only ``machines`` are connected to, if they are given. Answers on their way have
        ``most_bytes`` together, and each question ``seconds``."""
        self._http = SimpleAsyncHTTPClient(
            force_instance=True,
            max_clients=_AT_ONCE + _LEFT,
            max_body_size=_MAX_ANSWER,
            resolver=None if machines is None else _Checked(machines=machines),
        )
        self._room = _Room(most_bytes)
        self._seconds = seconds
        self._asking = 0
        self._left = _Left()

    def close(self) -> None:
        """Let go of the connections."""
        self._left.close()
        self._http.close()

    async def ask(
        self, boxes: Sequence[LoadReport], query: Mapping[str, str], headers: Mapping[str, str]
    ) -> Answer:
        """What the first of ``boxes`` that can answers to ``query``; HttpProblem if none does.

        To be cancelled when nobody waits for it any more.
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
    ) -> Answer:
        if self._asking >= _AT_ONCE or self._left.are_many():
            raise _busy()
        boxes = [box for box in boxes if not self._left.is_slow(box.box)]
        self._asking += 1
        try:
            async with asyncio.timeout(self._seconds):
                for box in boxes[:_BOXES_TRIED]:
                    answer = await self._ask(box, query, headers)
                    if answer is not None:
                        return answer
        except TimeoutError:
            logger.debug("boxes have taken too long to answer")
        finally:
            self._asking -= 1
        raise HttpProblem(503, "unavailable", "no gateway of this region answers", headers=RETRY)

    async def _ask(
        self, box: LoadReport, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> Answer | None:
        body = _Body(self._room)
        request = HTTPRequest(
            f"{urljoin(box.sse_url, 'history')}?{urlencode(query)}",
            headers={name: headers[name] for name in _PASSED_ON if name in headers},
            connect_timeout=_CONNECT_SECONDS,
            request_timeout=_ANSWER_SECONDS,
            follow_redirects=False,
            streaming_callback=body.take,
        )
        asked = asyncio.ensure_future(fetch(self._http, request, raise_error=False))
        try:
            response = await asyncio.shield(asked)
            if body.given_up:
                raise _busy()
            # Draining or full, asked too often, or not its real answer: another may do better.
            if response.code >= 500 or response.code == 429:
                return None
            return Answer(response.code, bytes(body.held))
        except (OSError, ValueError, HTTPClientError) as exc:
            logger.debug("%s can't be asked: %s", box.box, exc)
            return None
        except asyncio.CancelledError:
            self._left.add(box.box, asked)
            raise
        finally:
            body.give_up()


def _busy() -> HttpProblem:
    return HttpProblem(503, "busy", "too many are catching up", headers=RETRY)


class _Left:
    """Questions that nobody waits for any more, by box, until they end."""

    def __init__(self) -> None:
        self._open: dict[asyncio.Future[HTTPResponse], str] = {}

    def add(self, box: str, asked: asyncio.Future[HTTPResponse]) -> None:
        """Nobody waits for ``asked``, which is a question to ``box``."""
        self._open[asked] = box
        asked.add_done_callback(self._ended)

    def is_slow(self, box: str) -> bool:
        """Whether ``box`` has left too many open."""
        return sum(each == box for each in self._open.values()) >= _LEFT_BY_A_BOX

    def are_many(self) -> bool:
        """Whether all boxes together have."""
        return len(self._open) >= _LEFT

    def close(self) -> None:
        """Forget them."""
        for asked in self._open:
            asked.cancel()

    def _ended(self, asked: asyncio.Future[HTTPResponse]) -> None:
        del self._open[asked]
        if not asked.cancelled():
            # Nobody else is told of its error.
            asked.exception()


class _Body:
    """An answer as far as it has come. Once it is given up, the rest is dropped as it comes: a
    request of Tornado's client can't be ended before its time."""

    def __init__(self, room: _Room) -> None:
        self.held = bytearray()
        self.given_up = False
        self._room = room

    def take(self, chunk: bytes) -> None:
        """Tornado calls it with each part."""
        if not self.given_up:
            self.held += chunk
            self._room.grown(self, len(chunk))

    def give_up(self) -> None:
        """Hold nothing any more."""
        if not self.given_up:
            self.given_up = True
            self._room.left(self)
            self.held = bytearray()


class _Room:
    """What all answers on their way hold together: ``most_bytes`` at most."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._bodies: set[_Body] = set()

    def grown(self, body: _Body, size: int) -> None:
        """``body`` has ``size`` bytes more: the largest goes, if there is no room for all."""
        self._bodies.add(body)
        self._bytes += size
        if self._bytes > self._most_bytes:
            max(self._bodies, key=lambda one: len(one.held)).give_up()
        counters.CATCHING_UP_BYTES.set(self._bytes)

    def left(self, body: _Body) -> None:
        """``body`` isn't held any more."""
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
