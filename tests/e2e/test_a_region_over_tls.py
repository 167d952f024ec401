"""A region's services as processes, with TLS on each connection and its password in a file."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from authorities import Authority, Certified, put
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from localfabric.nodes.ports import free_ports
from localfabric.nodes.rabbitmq import LocalNode
from localfabric.world.rabbitmq_home import RabbitmqHome
from newsfabric.amqp import Declare
from newsfabric.amqp.link import connect
from newsfabric.settings import Credentials, TlsFiles
from newsfabric.tls import ClientTls
from newsfabric.topology import declare_client, declare_core

pytestmark = pytest.mark.broker

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0
PASSWORD = "s3cret-word"
USER = "fabric"


@dataclasses.dataclass(frozen=True)
class TlsRegion:
    """The processes, and their addresses."""

    nodes: Mapping[str, LocalNode]
    ours: Authority
    shown: Certified
    ports: Mapping[str, int]
    processes: Mapping[str, subprocess.Popen[bytes]]

    async def fetch_from(self, process: str, path: str, body: Any = None) -> str:
        """Return the reply of ``process`` over https."""
        http = SimpleAsyncHTTPClient(force_instance=True)
        request = HTTPRequest(
            f"https://127.0.0.1:{self.ports[process]}{path}",
            method="GET" if body is None else "POST",
            body=None if body is None else json.dumps(body),
            headers={"Content-Type": "application/json"},
            ssl_options=ClientTls(TlsFiles(authorities=self.ours.file)).context(),
        )
        try:
            return (await http.fetch(request)).body.decode()
        finally:
            http.close()


def secured(
    name: str, folder: Path, home: RabbitmqHome, ours: Authority, shown: Certified
) -> tuple[LocalNode, dict[str, str]]:
    """Return a node with TLS, and its entry in fabric.json."""
    port, management = free_ports(2)
    files = {"cacertfile": ours.file, "certfile": shown.certificate, "keyfile": shown.key}
    settings = [
        f"listeners.ssl.default = 127.0.0.1:{port}",
        *(f"ssl_options.{what} = {file}" for what, file in files.items()),
        "management.ssl.ip = 127.0.0.1",
        f"management.ssl.port = {management}",
        *(f"management.ssl.{what} = {file}" for what, file in files.items()),
        # There are no listeners without TLS.
        f"default_user = {USER}",
        f"default_pass = {PASSWORD}",
    ]
    entry = {
        "name": name,
        "amqp_url": f"amqps://127.0.0.1:{port}/%2F",
        "management_url": f"https://127.0.0.1:{management}",
    }
    also_on = [port, management]
    return LocalNode(folder / name, home, settings=settings, also_on=also_on, name=name), entry


async def declared(url: str, tls: TlsFiles, *parts: Callable[[Declare], Awaitable[None]]) -> None:
    link = await connect([url], name="test", credentials=Credentials(USER, PASSWORD, tls))
    try:
        for part in parts:
            await link.on_connect(part)
        await (await link.publisher()).ready()
        assert link.established
    finally:
        await link.close()


@pytest.fixture
def nodes(
    rabbitmq_home: RabbitmqHome, tmp_path: Path
) -> Iterator[tuple[dict[str, LocalNode], dict[str, Any], Authority, Certified]]:
    ours = Authority(tmp_path, "ours")
    shown = ours.issue()
    made = {
        role: secured(f"oregon-{role}-1", tmp_path, rabbitmq_home, ours, shown)
        for role in ("client", "core")
    }
    for node, _ in made.values():
        node.folder.mkdir()
    with made["client"][0], made["core"][0]:
        known = {role: node for role, (node, _) in made.items()}
        yield known, {role: [entry] for role, (_, entry) in made.items()}, ours, shown


@pytest.fixture
async def region(
    nodes: tuple[dict[str, LocalNode], dict[str, Any], Authority, Certified], tmp_path: Path
) -> AsyncIterator[TlsRegion]:
    known, entries, ours, shown = nodes
    tls = TlsFiles(authorities=ours.file)
    await declared(entries["client"][0]["amqp_url"], tls, declare_client)
    await declared(entries["core"][0]["amqp_url"], tls, declare_core)
    ports = dict(zip(("keeper", "router", "frontdesk"), free_ports(3), strict=True))
    frontdesk = f"https://127.0.0.1:{ports['frontdesk']}"
    fabric = tmp_path / "fabric.json"
    place = {"name": "oregon", "frontdesk_url": frontdesk, **entries}
    fabric.write_text(json.dumps({"regions": [place]}))
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    (credentials / "amqp-password").write_text(f"{PASSWORD}\n")
    environment = os.environ | {
        "CREDENTIALS_DIRECTORY": str(credentials),
        "NEWSFABRIC_AMQP_USERNAME": USER,
        "NEWSFABRIC_AMQP_PASSWORD_FILE": "amqp-password",
        "NEWSFABRIC_TLS_CA_FILE": str(ours.file),
        "NEWSFABRIC_TLS_CERT_FILE": str(shown.certificate),
        "NEWSFABRIC_TLS_KEY_FILE": str(shown.key),
    }
    where = ["--region", "oregon", "--fabric", str(fabric), "--topics", str(ROOT / "topics.toml")]
    store = ["--store", f"sqlite:{tmp_path / 'news.db'}"]
    commands = {
        "keeper": ["shovels", *where],
        "router": ["wholesale", "router", "--name", "oregon-router-1", *where, *store],
        "frontdesk": ["wholesale", "frontdesk", "--name", "oregon-frontdesk-1", *where, *store],
    }
    processes = {}
    try:
        for name, words in commands.items():
            command = [sys.executable, "-m", *words, "--port", str(ports[name])]
            processes[name] = started(command, environment, tmp_path / f"{name}.log")
        found = TlsRegion(known, ours, shown, ports, processes)
        for name, process in processes.items():
            await ready(found, name, process, tmp_path / f"{name}.log")
        yield found
    finally:
        for process in processes.values():
            process.terminate()
        for process in processes.values():
            await asyncio.to_thread(process.wait, 30)


def started(
    command: Sequence[str], environment: Mapping[str, str], log: Path
) -> subprocess.Popen[bytes]:
    with log.open("wb") as file:
        return subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stderr=file
        )


def shown(process: subprocess.Popen[bytes]) -> str:
    """Return the command line and environment of ``process``, as `ps` shows them."""
    return "".join(
        Path(f"/proc/{process.pid}/{what}").read_text() for what in ("cmdline", "environ")
    )


async def ready(region: TlsRegion, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            assert process.poll() is None, f"see {log}"
            try:
                await region.fetch_from(name, "/healthz/ready")
                return
            except (HTTPClientError, OSError):
                await asyncio.sleep(0.2)


async def test_a_message_is_routed_with_tls_on_every_connection(region):
    message = {"topic": "news.breaking", "body": {"headline": "Hello"}}
    answer = json.loads(await region.fetch_from("frontdesk", "/publish", message))
    assert answer["repeated"] is False

    for node in region.nodes.values():
        rows = await asyncio.to_thread(node.ctl, "list_connections", "user", "ssl")
        found = {tuple(row.split("\t")) for row in rows.splitlines() if USER in row}
        # A shovel's own end is a direct connection, without a network.
        assert found >= {(USER, "true")}
        assert (USER, "false") not in found

    for process in region.processes.values():
        assert PASSWORD not in shown(process)

    metrics = await region.fetch_from("router", "/metrics")
    for use in ("authority", "server"):
        metric = f'newsfabric_tls_certificate_expiry_timestamp_seconds{{use="{use}"}}'
        assert metric in metrics

    put(region.ours.sign(days=5), region.shown)
    assert json.loads(await region.fetch_from("frontdesk", "/healthz/ready"))["ready"]
