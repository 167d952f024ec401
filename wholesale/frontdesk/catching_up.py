"""``GET /history?after=POSITION``: what a reader has missed, asked of one of the region's gateways.

What lies beyond a position, and whether that is certainly all, only a gateway knows: it follows
the routers' streams and keeps the marks. So the frontdesk hands the question on, and the answer
back as it came: the same code answers in both places. A gateway that doesn't answer is left for
another one.

The decision that one would question: the frontdesk has the store as well, and could read the rows
itself. It couldn't say ``recovered`` without following every stream, which is what a gateway is.

A box says where its gateway is, so its name may lead anywhere, and elsewhere each time that it is
looked up. Where the operator has listed no hosts, the addresses are checked that are connected to.
"""

from __future__ import annotations

import dataclasses
import logging
import socket
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode, urljoin

from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.netutil import DefaultLoopResolver
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from newsfabric.control import LoadReport
from newsfabric.fetching import fetch
from newsfabric.networks import OtherMachines
from wholesale.http import RETRY, HttpProblem

logger = logging.getLogger(__name__)

# A page has at most 1 MiB of messages; frames and what a publisher wrote as \\u0000 add to that.
_MAX_ANSWER: Final = 16 << 20
_CONNECT_SECONDS: Final = 2.0
# A gateway reads the store twice if need be, for five seconds each, and says so.
_ANSWER_SECONDS: Final = 15.0
_BOXES_TRIED: Final = 3
_AT_ONCE: Final = 100
# What a gateway goes by. Cookies are no business of other boxes.
_PASSED_ON: Final = ("Authorization",)


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """What a gateway answered: its HTTP status, and JSON."""

    status: int
    body: bytes


class CatchingUp:
    """Asks gateways. Lives on one loop; :meth:`close` it."""

    def __init__(self, machines: OtherMachines | None = None) -> None:
        """Only ``machines`` are connected to, if they are given."""
        self._http = SimpleAsyncHTTPClient(
            force_instance=True,
            max_clients=_AT_ONCE,
            max_body_size=_MAX_ANSWER,
            resolver=None if machines is None else _Checked(machines=machines),
        )
        self._asking = 0

    def close(self) -> None:
        """Let go of the connections."""
        self._http.close()

    async def ask(
        self, boxes: Sequence[LoadReport], query: Mapping[str, str], headers: Mapping[str, str]
    ) -> Answer:
        """What the first of ``boxes`` that can answers to ``query``; HttpProblem if none does."""
        if self._asking >= _AT_ONCE:
            raise HttpProblem(503, "busy", "too many are catching up", headers=RETRY)
        self._asking += 1
        try:
            for box in boxes[:_BOXES_TRIED]:
                answer = await self._ask(box, query, headers)
                if answer is not None:
                    return answer
        finally:
            self._asking -= 1
        raise HttpProblem(503, "unavailable", "no gateway of this region answers", headers=RETRY)

    async def _ask(
        self, box: LoadReport, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> Answer | None:
        request = HTTPRequest(
            f"{urljoin(box.sse_url, 'history')}?{urlencode(query)}",
            headers={name: headers[name] for name in _PASSED_ON if name in headers},
            connect_timeout=_CONNECT_SECONDS,
            request_timeout=_ANSWER_SECONDS,
            follow_redirects=False,
        )
        try:
            response = await fetch(self._http, request, raise_error=False)
        except (OSError, ValueError, HTTPClientError) as exc:
            logger.debug("%s can't be asked: %s", box.box, exc)
            return None
        # Draining or full, asked too often, or not its real answer: another one may do better.
        if response.code >= 500 or response.code == 429:
            return None
        return Answer(response.code, response.body)


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
