"""examples/in-front: nginx, HAProxy and Caddy, run as sites run them before a gateway, with TLS."""

from __future__ import annotations

import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import websockets
from authorities import Certified, certify
from gateways import ENGINES, Box, opened_box
from proxies import started

from gateway.process.settings import NativeSettings
from localfabric.nodes.ports import free_ports

FOLDER = Path(__file__).parents[2] / "examples" / "in-front"
SAMPLES = {
    "haproxy.cfg": "haproxy",
    "nginx-stream.conf": "nginx",
    "nginx-http.conf": "nginx",
    "Caddyfile": "caddy",
}
# The samples that tell the gateway a reader's address.
TELLING = ("haproxy.cfg", "nginx-stream.conf")


def adapted(sample: str, box: Box, shown: Certified, port: int, folder: Path) -> str:
    """Return the sample with our ports and files, changed to run in ``folder`` without root."""
    both = folder / "readers.pem"
    both.write_bytes(shown.certificate.read_bytes() + shown.key.read_bytes())
    text = (FOLDER / sample).read_text("utf-8")
    for theirs, ours in (
        ("127.0.0.1:9000", box.host),
        ("/etc/haproxy/readers.pem", str(both)),
        ("/etc/nginx/readers-certificate.pem", str(shown.certificate)),
        ("/etc/nginx/readers-key.pem", str(shown.key)),
        ("bind :443", f"bind 127.0.0.1:{port}"),
        ("listen 443", f"listen 127.0.0.1:{port}"),
        ("https://readers.example.com {", caddy_here(port, shown, folder)),
        # Numbers within this machine's limits.
        ("worker_rlimit_nofile 250000;", ""),
        ("worker_connections 120000", "worker_connections 64"),
        ("maxconn 200000", "maxconn 64"),
    ):
        text = text.replace(theirs, ours)
    if sample.startswith("nginx"):
        paths = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        temporary = " ".join(f"{name}_temp_path {folder}/{name};" for name in paths)
        text = f"daemon off; pid {folder}/pid; error_log stderr;\n" + text.replace(
            "http {", f"http {{ {temporary}"
        )
        # Modules must be loaded before any other directive.
        lines = text.splitlines()
        lines.sort(key=lambda line: not line.startswith("load_module"))
        text = "\n".join(lines)
    return text


def caddy_here(port: int, shown: Certified, folder: Path) -> str:
    settings = f"{{\n\tadmin off\n\tauto_https off\n\tstorage file_system {folder}\n}}\n"
    return f"{settings}https://127.0.0.1:{port} {{\n\ttls {shown.certificate} {shown.key}\n"


@contextlib.asynccontextmanager
async def behind(sample: str, box: Box, folder: Path) -> AsyncIterator[TlsReaders]:
    shown = certify(folder, "readers")
    (port,) = free_ports(1)
    text = adapted(sample, box, shown, port, folder)
    async with started(SAMPLES[sample], text, folder, port):
        yield TlsReaders(port, ssl.create_default_context(cafile=str(shown.authority)))


class TlsReaders:
    """Readers that connect to the proxy over TLS."""

    def __init__(self, port: int, trusting: ssl.SSLContext) -> None:
        self._port = port
        self._trusting = trusting

    def connect(self, source: str = "127.0.0.1") -> websockets.connect:
        where = f"wss://127.0.0.1:{self._port}/websocket"
        return websockets.connect(
            where, ssl=self._trusting, local_addr=(source, 0), open_timeout=60
        )


async def subscribed(connection: websockets.ClientConnection) -> None:
    await connection.send(json.dumps({"action": "subscribe", "topic": "news.breaking"}))
    while json.loads(await connection.recv())["type"] != "subscribed":
        pass


@pytest.mark.parametrize("sample", SAMPLES)
async def test_a_reader_gets_news_over_tls(sample: str, tmp_path: Path) -> None:
    engine = "native" if sample in TELLING else next(iter(ENGINES))
    proxies = NativeSettings(proxy_from=("127.0.0.0/8",) if sample in TELLING else ())
    if engine not in ENGINES:
        pytest.skip("the data plane isn't built")
    async with (
        opened_box(engine, native=proxies) as box,
        behind(sample, box, tmp_path) as readers,
        readers.connect() as connection,
    ):
        await subscribed(connection)
        box.publish(body={"n": 1})
        assert json.loads(await connection.recv())["body"] == {"n": 1}


@pytest.mark.parametrize("sample", TELLING)
async def test_the_gateway_bounds_connections_of_readers_and_not_of_the_proxy(
    sample: str, tmp_path: Path
) -> None:
    if "native" not in ENGINES:
        pytest.skip("the data plane isn't built")
    proxies = NativeSettings(proxy_from=("127.0.0.1/32",))
    async with (
        opened_box("native", per_address=1, native=proxies) as box,
        behind(sample, box, tmp_path) as readers,
        readers.connect("127.0.0.2") as one,
        readers.connect("127.0.0.3") as another,
    ):
        await subscribed(one)
        await subscribed(another)
        with pytest.raises((websockets.WebSocketException, OSError)):
            async with readers.connect("127.0.0.2") as too_many:
                await subscribed(too_many)
