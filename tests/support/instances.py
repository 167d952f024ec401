"""A simulated machine of an autoscaling group: its configuration, and its metadata service."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

BOX: Final = "i-0123456789abcdef0"
AWS_REGION: Final = "us-west-2"
DOCUMENT: Final[dict[str, Any]] = {
    "role": "retail",
    "region": "oregon",
    "group": "newsfabric-oregon-retail",
    "hook": "drain",
    "core": [
        "amqps://oregon-core-1.newsfabric.internal/%2F",
        "amqps://oregon-core-2.newsfabric.internal/%2F",
    ],
    "store": "cassandra://10.10.1.7:9042,10.10.2.7:9042/newsfabric?dc=oregon",
    "frontdesks": ["https://oregon.news.example.com", "https://dublin.news.example.com"],
    "public_url": "https://readers.oregon.news.example.com",
    "networks": ["10.10.0.0/16"],
    "proxy_from": ["10.10.0.0/20"],
    "origins": ["https://www.example.com"],
    "token_keys": "",
    "token_audience": "",
    "token_issuer": "",
    "capacity": 50000,
    "drain_seconds": 120,
    "secrets": {
        "tls": "newsfabric-oregon/tls/retail",
        "store": "newsfabric-oregon/store/reader",
        "boxes": "newsfabric-oregon/box/",
    },
}


class Imds:
    """A metadata service that requires a token; a ``status`` is the status of all its answers."""

    def __init__(self) -> None:
        self.paths = {
            "instance-id": BOX,
            "placement/region": AWS_REGION,
            "autoscaling/target-lifecycle-state": "InService",
        }
        self.status: int | None = None
        self.tokens = 0
        self.endpoint = ""

    def answer(self, method: str, path: str, token: str | None) -> tuple[int, str]:
        """Return the status and body of the answer to one request."""
        if self.status is not None:
            return self.status, ""
        if (method, path) == ("PUT", "/latest/api/token"):
            self.tokens += 1
            return 200, f"token-{self.tokens}"
        if token != f"token-{self.tokens}":
            return 401, ""
        found = self.paths.get(path.removeprefix("/latest/meta-data/"))
        return (404, "") if found is None else (200, found)


@contextmanager
def imds() -> Iterator[Imds]:
    """Serve metadata on loopback, at ``endpoint``."""
    service = Imds()

    class Handler(http.server.BaseHTTPRequestHandler):
        def _answer(self) -> None:
            token = self.headers.get("X-aws-ec2-metadata-token")
            status, text = service.answer(self.command, self.path, token)
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        do_GET = do_PUT = _answer

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        service.endpoint = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield service
        finally:
            server.shutdown()
            thread.join()
