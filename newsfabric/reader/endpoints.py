"""Where a region's gateways are: ``/endpoints.json``, fetched and checked."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

import orjson
from tornado.httpclient import HTTPClientError
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from newsfabric.errors import Disconnected

_TIMEOUT: Final = 5.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """One gateway's URLs."""

    sockjs_url: str
    websocket_url: str
    sse_url: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """A region's gateways, the one to take first."""

    region: str
    gateways: tuple[Gateway, ...]
    retry_ms: int


async def fetch_endpoints(url: str) -> Endpoints:
    """Ask ``url``; Disconnected (1006) when nobody answers, or with something else."""
    http = SimpleAsyncHTTPClient(force_instance=True)
    try:
        answer = await http.fetch(url, connect_timeout=_TIMEOUT, request_timeout=_TIMEOUT)
        return parse_endpoints(orjson.loads(answer.body))
    except (OSError, HTTPClientError, ValueError) as exc:
        raise Disconnected(1006, f"{url}: {exc}") from exc
    finally:
        http.close()


def parse_endpoints(document: Any) -> Endpoints:
    """The endpoints in a parsed ``endpoints.json``; ValueError if it isn't one."""
    try:
        gateways = tuple(
            Gateway(
                sockjs_url=str(entry["sockjs_url"]),
                websocket_url=str(entry["websocket_url"]),
                sse_url=str(entry["sse_url"]),
            )
            for entry in document["gateways"]
        )
        return Endpoints(
            region=str(document["region"]),
            gateways=gateways,
            retry_ms=int(document.get("retry_ms", 1000)),
        )
    except (KeyError, TypeError, AttributeError) as exc:
        raise ValueError(f"not an endpoints.json: {exc!r}") from exc
