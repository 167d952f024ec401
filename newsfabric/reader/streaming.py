"""An HTTP response with an endless body, handed on as it arrives.

Tornado's own HTTP client can't close a connection in the middle of a response; its HTTP/1
connection can.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from urllib.parse import urlsplit

import orjson
from tornado.http1connection import HTTP1Connection, HTTP1ConnectionParameters
from tornado.httputil import (
    HTTPHeaders,
    HTTPInputError,
    HTTPMessageDelegate,
    RequestStartLine,
    ResponseStartLine,
)
from tornado.iostream import IOStream, StreamClosedError
from tornado.tcpclient import TCPClient

from newsfabric.errors import Disconnected

_CONNECT_TIMEOUT: Final = 10.0
_NO_LIMIT: Final = 1 << 62
# Bytes of a refusal that are shown.
_SHOWN: Final = 200


async def stream(
    method: str,
    url: str,
    on_chunk: Callable[[bytes], Awaitable[None]],
    headers: Mapping[str, str] | None = None,
) -> None:
    """Send an empty request and give every piece of the response's body to ``on_chunk``.

    ``headers`` are added to the required ones. The next piece is read after ``on_chunk`` has
    returned. Returns when the response is complete; Disconnected if it is cut off or has a status
    other than 200. An error of ``on_chunk`` ends it, and is raised.
    """
    try:
        parts = urlsplit(url)
        secure = ssl.create_default_context() if parts.scheme == "https" else None
        port = parts.port or (443 if secure else 80)
        connection = await TCPClient().connect(
            parts.hostname or "", port, ssl_options=secure, timeout=_CONNECT_TIMEOUT
        )
    except (OSError, ValueError) as exc:
        raise Disconnected(1006, f"{url}: {exc}") from exc
    answer = _Answer(on_chunk, connection)
    try:
        parameters = HTTP1ConnectionParameters(no_keep_alive=True, max_body_size=_NO_LIMIT)
        http = HTTP1Connection(connection, is_client=True, params=parameters)
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        sent = HTTPHeaders({"Host": parts.netloc, "Content-Length": "0", **(headers or {})})
        await http.write_headers(RequestStartLine(method, path, ""), sent)
        http.finish()
        complete = await http.read_response(answer)
    except (StreamClosedError, HTTPInputError) as exc:
        answer.check(url, complete=True)
        raise Disconnected(1006, f"{url}: {exc}") from exc
    finally:
        connection.close()
    answer.check(url, complete)


class _Answer(HTTPMessageDelegate):
    def __init__(self, on_chunk: Callable[[bytes], Awaitable[None]], connection: IOStream) -> None:
        self._on_chunk = on_chunk
        self._connection = connection
        self._status = 0
        self._refusal = b""
        self._end: Exception | None = None

    def headers_received(
        self, start_line: RequestStartLine | ResponseStartLine, headers: HTTPHeaders
    ) -> None:
        assert isinstance(start_line, ResponseStartLine)
        self._status = start_line.code

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        if self._status == 200:
            return self._feed(chunk)
        self._refusal = (self._refusal + chunk)[:_SHOWN]
        return None

    async def _feed(self, chunk: bytes) -> None:
        try:
            await self._on_chunk(chunk)
        except Exception as exc:
            # Tornado would log a delegate's error, and treat the response as cut off.
            self._end = exc
            self._connection.close()

    def check(self, url: str, complete: bool) -> None:
        """Raise Disconnected unless the response was a whole 200; raise its error, if any."""
        if self._end is not None:
            raise self._end
        if self._status not in (0, 200):
            refusal = _refusal_text(self._refusal)
            # A client error (4xx) stays wrong in a retry.
            wrong = 400 <= self._status < 500 and self._status != 429
            raise Disconnected(1006, f"{url}: {self._status} {refusal}", reconnect=not wrong)
        if not complete:
            raise Disconnected(1006, f"{url}: cut off")


def _refusal_text(refusal: bytes) -> str:
    """Return the text of a refusal for a person: a frontdesk's is JSON."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return str(orjson.loads(refusal)["error"]["detail"])
    return refusal.decode("utf-8", "replace").strip()
