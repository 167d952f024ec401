"""The metrics of a host's processes: for the region's Prometheus, and for no other client."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence

import pytest
import tornado.web
from tornado.httpclient import HTTPResponse
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from newsfabric.errors import ConfigError
from newsfabric.http.networks import parse_networks
from newsfabric.process import service
from newsfabric.process.operators import OperatorsApplication
from operations.metrics_relay import parse_processes, routes


class RelayedProcess(tornado.web.RequestHandler):
    """A process with metrics and a handler that changes its state."""

    drained = 0

    def get(self) -> None:
        self.set_header("Content-Type", "text/plain; version=0.0.4")
        self.write(f"accepted {self.request.headers.get('Accept', 'nothing')}")

    def post(self) -> None:
        type(self).drained += 1


class Broken(tornado.web.RequestHandler):
    def get(self) -> None:
        self.set_status(500)


@contextlib.asynccontextmanager
async def serving(routes_: list[object]) -> AsyncIterator[int]:
    server, port = service.listen(OperatorsApplication(routes_), host="127.0.0.1", port=0)
    try:
        yield port
    finally:
        server.stop()
        await server.close_all_connections()


@contextlib.asynccontextmanager
async def relay(askers: Sequence[str] = ("127.0.0.0/8",)) -> AsyncIterator[str]:
    """Yield the URL of a relay of a healthy process, a broken one and a dead one."""
    process = [(r"/metrics|/drain", RelayedProcess)]
    http = SimpleAsyncHTTPClient(force_instance=True)
    async with serving(process) as port, serving([(r"/metrics", Broken)]) as broken:
        async with serving([]) as away:
            pass
        given = {"router-1": port, "broken": broken, "away": away}
        async with serving(routes(given, parse_networks(askers), http)) as relayed:
            yield f"http://127.0.0.1:{relayed}"
    http.close()


async def fetch_from(url: str, **options: object) -> HTTPResponse:
    http = SimpleAsyncHTTPClient(force_instance=True)
    try:
        return await http.fetch(url, raise_error=False, **options)
    finally:
        http.close()


async def test_it_hands_on_what_the_process_says_and_what_prometheus_accepts():
    async with relay() as url:
        accept = "application/openmetrics-text"
        answer = await fetch_from(f"{url}/metrics/router-1", headers={"Accept": accept})
    assert (answer.code, answer.body.decode()) == (200, f"accepted {accept}")
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4"


@pytest.mark.parametrize("name", ["broken", "away"])
async def test_a_process_that_doesnt_answer_is_a_failed_scrape(name: str):
    async with relay() as url:
        assert (await fetch_from(f"{url}/metrics/{name}")).code == 502


async def test_what_has_power_over_a_process_isnt_reached():
    async with relay() as url:
        paths = [
            "/drain",
            "/metrics/router-1/../drain",
            "/metrics/router-1%2f..%2fdrain",
            "/metrics",
        ]
        assert [(await fetch_from(url + path)).code for path in paths] == [404] * 4
        posted = await fetch_from(f"{url}/metrics/router-1", method="POST", body="")
        assert posted.code == 405
    assert RelayedProcess.drained == 0


async def test_whoever_isnt_listed_gets_nothing():
    async with relay(askers=["10.1.0.0/16", "::/0"]) as url:
        assert (await fetch_from(f"{url}/metrics/router-1")).code == 403


async def test_a_process_that_isnt_there_is_not_found():
    async with relay() as url:
        assert (await fetch_from(f"{url}/metrics/router-2")).code == 404


def test_processes_are_names_and_ports():
    assert parse_processes(["router-1=9111", "agent=1"]) == {"router-1": 9111, "agent": 1}
    for bad in ("router", "=1", "a=0", "a=65536", "a=1.5", "A=1", "a/b=1", "a=²", f"a={'9' * 6}"):
        with pytest.raises(ConfigError, match="NAME=PORT"):
            parse_processes([bad])
    with pytest.raises(ConfigError, match="twice"):
        parse_processes(["a=1", "a=2"])
