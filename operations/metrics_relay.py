"""``python -m operations.metrics_relay``: hands the metrics of a host's processes to Prometheus.

A process's own port has more than metrics: a client that reaches a gateway's can drain it. So these
ports are on loopback. This one, which a region's Prometheus reaches, has only ``/metrics/NAME`` for
the listed addresses, and its own health.

The decision that a reader may question: one more process on each host, instead of a Prometheus that
pushes. A failed scrape shows which process is away, and since when; a missing push shows nothing.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click
from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from newsfabric.errors import ConfigError
from newsfabric.http.fetching import fetch
from newsfabric.http.networks import Network, parse_address, parse_networks
from newsfabric.process import service
from newsfabric.process.operators import OperatorsApplication, admin_host_option
from newsfabric.process.service import PlainHandler, Readiness
from newsfabric.settings import server_files_from

#: Of one process; the metrics of a gateway with a thousand topics are some 300 KB.
MAX_BYTES: Final = 16 << 20
#: Less than Prometheus's time-out of ten seconds.
SECONDS: Final = 8.0
#: Concurrent fetches, of all processes.
MAX_FETCHES: Final = 8
#: Open connections of one address: a Prometheus keeps one for each target.
PER_ADDRESS: Final = 64
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,127}")
_MAX_ACCEPT: Final = 1024


def parse_processes(texts: Sequence[str]) -> dict[str, int]:
    """Return the port of this host for each name in ``NAME=PORT``. ConfigError for other texts."""
    found: dict[str, int] = {}
    for text in texts:
        name, _, port = text.partition("=")
        whole = port.isascii() and port.isdigit() and len(port) <= 5
        if not _NAME.fullmatch(name) or not whole or not 0 < int(port) < 65536:
            raise ConfigError(f"{text!r} is not NAME=PORT")
        if name in found:
            raise ConfigError(f"{name} is there twice")
        found[name] = int(port)
    return found


class RelayedHandler(PlainHandler):
    """A handler of ``GET /metrics/NAME``: the reply of that process; 502 without one."""

    def initialize(
        self, processes: Mapping[str, int], askers: Sequence[Network], http: AsyncHTTPClient
    ) -> None:
        """Set up with the arguments of :func:`routes`; Tornado calls it."""
        self._processes, self._askers, self._http = processes, askers, http

    async def get(self, name: str) -> None:
        """Reply 403 to addresses not in ``askers``, 404 to unknown names, else the metrics."""
        if not self._may_ask():
            self._refuse(403, "not for this address")
            return
        port = self._processes.get(name)
        if port is None:
            self._refuse(404, "no such process")
            return
        accepted = self.request.headers.get("Accept", "")[:_MAX_ACCEPT]
        request = HTTPRequest(
            f"http://127.0.0.1:{port}/metrics",
            headers={"Accept": accepted} if accepted else {},
            connect_timeout=SECONDS,
            request_timeout=SECONDS,
            follow_redirects=False,
        )
        try:
            answer = await fetch(self._http, request)
        except (HTTPClientError, OSError, ValueError) as exc:
            self._refuse(502, f"no answer: {type(exc).__name__}")
            return
        self.set_header("Content-Type", answer.headers.get("Content-Type", "text/plain"))
        self.write(answer.body)

    def _may_ask(self) -> bool:
        address = parse_address(self.request.remote_ip or "")
        return any(address in network for network in self._askers)

    def _refuse(self, status: int, why: str) -> None:
        self.set_status(status)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(f"{why}\n")


def routes(
    processes: Mapping[str, int], askers: Sequence[Network], http: AsyncHTTPClient
) -> list[Any]:
    """Return the only routes that there are."""
    given = {"processes": processes, "askers": askers, "http": http}
    return [(r"/metrics/([a-z0-9-]{1,128})", RelayedHandler, given)]


@click.command(
    context_settings={"auto_envvar_prefix": "NEWSFABRIC"},
    epilog="\b\nExample:\n  python -m operations.metrics_relay --host 10.0.1.5 --port 9100 "
    "--from 10.0.1.4/32 router-1=9111",
)
@click.option("--host", required=True, help="Where --port listens.")
@click.option("--port", type=click.IntRange(0, 65535), required=True, help="/metrics/NAME.")
@click.option(
    "--from", "askers", multiple=True, required=True, metavar="NETWORK", help="Who may ask; repeat."
)
@admin_host_option
@click.option("--log-level", default="info", show_default=True)
@click.argument("processes", nargs=-1, required=True, metavar="NAME=PORT…")
@service.process_options
def main(
    host: str,
    port: int,
    askers: tuple[str, ...],
    admin_hosts: tuple[str, ...],
    log_level: str,
    processes: tuple[str, ...],
) -> None:
    """Hand on the metrics of processes on this host, for ever."""

    async def relay(stop: asyncio.Event) -> None:
        try:
            networks = parse_networks(askers)
        except ValueError as exc:
            raise ConfigError(f"--from: {exc}") from exc
        http = SimpleAsyncHTTPClient(
            force_instance=True, max_clients=MAX_FETCHES, max_body_size=MAX_BYTES
        )
        pages = OperatorsApplication(
            [
                *routes(parse_processes(processes), networks, http),
                *service.health_routes(lambda: Readiness(True)),
            ],
            names=admin_hosts,
        )
        server, _ = service.listen(
            pages,
            host=host,
            port=port,
            tls=server_files_from(os.environ),
            per_address=PER_ADDRESS,
        )
        service.up()
        try:
            await stop.wait()
        finally:
            server.stop()
            await server.close_all_connections()
            http.close()

    service.run(relay, name="metrics relay", log_level=log_level)


if __name__ == "__main__":
    main()
