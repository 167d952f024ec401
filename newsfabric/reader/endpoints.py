"""The gateways of a region: ``/endpoints.json``, fetched, checked, and one gateway chosen."""

from __future__ import annotations

import dataclasses
import random
from typing import Any, Final

import orjson
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from newsfabric.errors import Disconnected
from newsfabric.http.fetching import fetch
from newsfabric.numbers import is_number, is_whole

_TIMEOUT: Final = 5.0
# Fifty boxes and eight regions have 12 KB.
_MAX_BYTES: Final = 256 * 1024
# A 503 has the other regions: this one has no gateway that is ready.
_ANSWERS: Final = (200, 503)
_MAX_WEIGHT: Final = 1e9
_MAX_RETRY_MS: Final = 3_600_000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A gateway's URLs, and its relative share of new readers (``weight``)."""

    sockjs_url: str
    websocket_url: str
    sse_url: str
    weight: float = 1.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """A region's gateways, and the other regions' ``endpoints.json``, the nearest first."""

    region: str
    gateways: tuple[Endpoint, ...]
    retry_ms: int
    alternates: tuple[str, ...] = ()

    def choose(self, rng: random.Random) -> Endpoint:
        """Return one of the gateways (at least one) at random by their weights."""
        weights = [gateway.weight for gateway in self.gateways]
        return rng.choices(self.gateways, weights)[0]


async def fetch_endpoints(url: str) -> Endpoints:
    """Ask ``url``; Disconnected (1006) without a reply, or for a reply that isn't valid."""
    http = SimpleAsyncHTTPClient(force_instance=True, max_body_size=_MAX_BYTES)
    try:
        request = HTTPRequest(url, connect_timeout=_TIMEOUT, request_timeout=_TIMEOUT)
        answer = await fetch(http, request, raise_error=False)
        if answer.code not in _ANSWERS:
            answer.rethrow()
        return parse_endpoints(orjson.loads(answer.body))
    except (OSError, HTTPClientError, ValueError) as exc:
        raise Disconnected(1006, f"{url}: {exc}") from exc
    finally:
        http.close()


def parse_endpoints(document: Any) -> Endpoints:
    """Return the endpoints in a parsed ``endpoints.json``; ValueError if it isn't one."""
    try:
        gateways = tuple(
            Endpoint(
                sockjs_url=str(entry["sockjs_url"]),
                websocket_url=str(entry["websocket_url"]),
                sse_url=str(entry["sse_url"]),
                weight=_weight(entry.get("weight", 1.0)),
            )
            for entry in document["gateways"]
        )
        return Endpoints(
            region=str(document["region"]),
            gateways=gateways,
            retry_ms=_retry_ms(document.get("retry_ms", 1000)),
            alternates=tuple(str(one["endpoints_url"]) for one in document.get("alternates", ())),
        )
    except (KeyError, TypeError, AttributeError) as exc:
        raise ValueError(f"not an endpoints.json: {exc!r}") from exc


def _weight(value: Any) -> float:
    if not is_number(value, 0, _MAX_WEIGHT) or value == 0:
        raise ValueError(f"a weight of {value!r:.80}")
    return float(value)


def _retry_ms(value: Any) -> int:
    if not is_whole(value, 0, _MAX_RETRY_MS):
        raise ValueError(f"retry_ms is {value!r:.80}")
    return int(value)
