"""The command line of the services: options become settings, and links and a store are opened."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import click

from newsfabric import topology
from newsfabric.amqp import Links
from newsfabric.amqp.spread import connect_each
from newsfabric.http.networks import Network, Places
from newsfabric.process import service
from newsfabric.process.operators import admin_host_option
from newsfabric.safe_output import terminal_safe
from newsfabric.settings import (
    Node,
    Region,
    authorities_from,
    credentials_from,
    is_name,
    load_fabric,
    server_files_from,
)
from newsfabric.store import Store, check_region, open_store
from newsfabric.topics import TopicTable, load_topics
from newsfabric.tracing.otel_tracer import trace_options
from wholesale.common.core_service import CoreService, CoreSettings
from wholesale.frontdesk.api.access import read_keys
from wholesale.frontdesk.board.board_access import BoardSettings
from wholesale.frontdesk.service import FrontdeskService, FrontdeskSettings
from wholesale.mailbox.service import MailboxService, MailboxSettings
from wholesale.router.service import RouterService, RouterSettings
from wholesale.scaler.options import ScalerOptions, plan_options
from wholesale.scaler.service import ScalerService, ScalerSettings

_ROUTER_EXAMPLES = """
\b
Examples:
  python -m wholesale router --name oregon-router-1 --region oregon \\
      --fabric fabric.json --topics topics.toml --store sqlite:news.db --port 15081
  curl http://127.0.0.1:15081/healthz/ready
"""

_MAILBOX_EXAMPLES = """
\b
Examples:
  python -m wholesale mailbox --name oregon-mailbox-1 --region oregon \\
      --fabric fabric.json --topics topics.toml --store sqlite:news.db --port 15082
  curl http://127.0.0.1:15082/healthz/ready
"""

_FRONTDESK_EXAMPLES = """
\b
Examples:
  python -m wholesale frontdesk --name oregon-frontdesk-1 --region oregon \\
      --fabric fabric.json --topics topics.toml --store sqlite:news.db --port 15080
  curl http://127.0.0.1:15080/endpoints.json
  curl http://127.0.0.1:15080/publish -H 'Content-Type: application/json' \\
      -d '{"topic": "news.breaking", "body": {"headline": "…"}}'
"""

_SCALER_EXAMPLES = """
\b
Examples:
  python -m wholesale scaler --name oregon-scaler-1 --region oregon \\
      --fabric fabric.json --port 15083
  python -m wholesale scaler … --driver command --command '/usr/local/bin/boxes --site oregon'
  python -m wholesale scaler … --driver aws --group oregon-retail --zones 3 --boot 3m --least 4
  curl http://127.0.0.1:15083/scale
"""


def _option(name: str, **settings: Any) -> Callable[[Any], Any]:
    """Return an option that can also be set by an environment variable, NEWSFABRIC_…."""
    envvar = f"NEWSFABRIC_{name.upper().replace('-', '_')}"
    return click.option(f"--{name}", envvar=envvar, show_envvar=True, **settings)


def _name(_context: click.Context, parameter: click.Parameter, value: str) -> str:
    if not is_name(value):
        raise click.BadParameter("a name has a-z, 0-9 and -, at most 63 of them", param=parameter)
    return value


def _places(
    _context: click.Context, parameter: click.Parameter, given: Sequence[str]
) -> Places | None:
    try:
        return Places(given) if given else None
    except ValueError as exc:
        raise click.BadParameter(terminal_safe(str(exc)), param=parameter) from exc


_FILE = click.Path(dir_okay=False, path_type=Path)
_PLACE = [
    _option("name", required=True, callback=_name, help="Name of this process, unique."),
    _option("region", required=True, callback=_name, help="Which region of fabric.json it is in."),
    _option(
        "fabric", required=True, type=_FILE, help="fabric.json: the regions and their brokers."
    ),
]
_DATA = [
    _option("topics", required=True, type=_FILE, help="topics.toml: every feed and its policy."),
    _option(
        "store",
        required=True,
        help="sqlite:PATH, cassandra://HOSTS/KEYSPACE?dc=NAME, or memory: (one process only).",
    ),
]
_PAGES = [
    _option("host", default="127.0.0.1", show_default=True, help="Address of the HTTP pages."),
    _option("port", required=True, type=click.IntRange(0, 65535), help="Port; 0 takes a free one."),
    _option(
        "log-level",
        default="info",
        show_default=True,
        type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
        help="What is logged.",
    ),
]


def _common(command: Callable[..., Any]) -> Callable[..., Any]:
    return _all(command, [*_PLACE, *_DATA, *_PAGES])


def _without_data(command: Callable[..., Any]) -> Callable[..., Any]:
    return _all(command, [*_PLACE, *_PAGES])


def _all(command: Callable[..., Any], options: Sequence[Any]) -> Callable[..., Any]:
    for option in reversed([*options, service.process_options, admin_host_option]):
        command = option(command)
    return command


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def main() -> None:
    """The services of one region, beside its brokers."""


@main.command(epilog=_ROUTER_EXAMPLES)
@_common
@trace_options
def router(**options: Any) -> None:
    """Number, store and route messages of publishers.

    Run two or more per region: they compete, and the others take over the work of a dead one.
    The HTTP port has /healthz/live, /healthz/ready and /metrics.
    """
    # The objects of a message form no cycles, and some of them stay. With Python's own threshold of
    # 700 new objects the garbage collector runs all the time, for a tenth of a router's work.
    gc.set_threshold(10_000, 20, 50)
    _run_on_core(RouterService, RouterSettings, lambda _own: topology.router_queues(), **options)


@main.command(epilog=_MAILBOX_EXAMPLES)
@_common
def mailbox(**options: Any) -> None:
    """Keep and announce the marks of users on their individual messages.

    Run two or more per region: they compete, and the others take over the work of a dead one.
    The HTTP port has /healthz/live, /healthz/ready and /metrics.
    """
    _run_on_core(
        MailboxService,
        MailboxSettings,
        lambda _own: (topology.MAILBOX_QUEUE,),
        **options,
    )


@main.command(epilog=_FRONTDESK_EXAMPLES)
@_common
@_option(
    "api-key-file",
    type=_FILE,
    help="Publishing takes a key of this file: lines KEY or APP_ID KEY.",
)
@_option(
    "admin-port",
    type=click.IntRange(0, 65535),
    help="Port for /metrics, on loopback; 0 takes a free one. Without it there are none.",
)
@_option(
    "proxy-from",
    multiple=True,
    metavar="NETWORK",
    callback=service.networks_given,
    help="Balancers (10.0.0.0/8) whose X-Forwarded-For has the asker's address; repeat.",
)
@_option(
    "gateways-at",
    multiple=True,
    metavar="PLACE",
    callback=_places,
    help="Addresses that boxes may report: a host, .example.org or 10.0.0.0/8; repeat.",
)
@_option(
    "per-address",
    default=0,
    type=click.IntRange(0),
    help="Connections that one address may have, or one IPv6 network of 64 bits; 0: any number."
    " Behind a balancer all have the balancer's.",
)
@_option("token-keys", metavar="FILE|URL", help="PEM or JWKS: operators log in to the board.")
@_option("token-audience", metavar="AUD", help="What operators' tokens must be for.")
@_option("token-issuer", metavar="ISS", help="Whom operators' tokens must be from.")
@_option(
    "board-key-file",
    type=_FILE,
    help="Keys by which the fabric's frontdesks know each other, one a line: the first is shown to"
    " other regions' frontdesks, each is taken of them. Read each time.",
)
@_option(
    "token-over-http",
    is_flag=True,
    help="Show that key over plain http to other machines, too: in a private network.",
)
def frontdesk(
    *,
    name: str,
    region: str,
    fabric: Path,
    topics: Path,
    store: str,
    host: str,
    port: int,
    admin_port: int | None,
    admin_hosts: tuple[str, ...],
    api_key_file: Path | None,
    proxy_from: tuple[Network, ...],
    gateways_at: Places | None,
    per_address: int,
    token_keys: str | None,
    token_audience: str | None,
    token_issuer: str | None,
    board_key_file: Path | None,
    token_over_http: bool,
    log_level: str,
) -> None:
    """Answer endpoints, publications and history over HTTP, and serve the pages.

    On other addresses than loopback it insists on --api-key-file, and its operations board (/board)
    is only for operators who log in: with a token of --token-keys that has the claim operator.
    """

    async def run(stop: asyncio.Event) -> None:
        regions = load_fabric(fabric)
        own = regions.region(region)
        table = load_topics(topics)
        settings = FrontdeskSettings(
            name=name,
            region=region,
            host=host,
            port=port,
            tls=server_files_from(os.environ),
            authorities=authorities_from(os.environ),
            admin_port=admin_port,
            admin_hosts=admin_hosts,
            api_keys=read_keys(api_key_file),
            login=_login(),
            proxy_from=proxy_from,
            gateways_at=gateways_at,
            per_address=per_address,
            board=BoardSettings(
                token_keys=token_keys,
                token_audience=token_audience,
                token_issuer=token_issuer,
                key_file=board_key_file,
                token_over_http=token_over_http,
            ),
        )
        async with (
            _store(store, table) as opened,
            _links(own.core, f"{name} core") as core,
            _links(own.client, f"{name} client") as client,
        ):
            frontdesk = FrontdeskService(
                settings,
                fabric=regions,
                topics=table,
                core=core,
                client=client.members,
                store=opened,
            )
            await frontdesk.serve(stop)

    service.run(run, name=name, log_level=log_level)


@main.command(epilog=_SCALER_EXAMPLES)
@_without_data
@plan_options
def scaler(
    *,
    name: str,
    region: str,
    fabric: Path,
    host: str,
    port: int,
    admin_hosts: tuple[str, ...],
    log_level: str,
    options: ScalerOptions,
) -> None:
    """Compute the boxes that the region needs, and request them from a driver.

    Run two per region: none leads, and both request the same from the driver. Without --driver it
    only shows the number. The HTTP port has /scale, /healthz/live, /healthz/ready and /metrics.
    """

    async def run(stop: asyncio.Event) -> None:
        own = load_fabric(fabric).region(region)
        settings = ScalerSettings(
            name=name,
            region=own.name,
            login=_login(),
            driver=options.driver,
            host=host,
            port=port,
            tls=server_files_from(os.environ),
            admin_hosts=admin_hosts,
            plan=options.plan,
        )
        async with options.opened(own.name) as (driver, watching), _links(own.core, name) as core:
            await ScalerService(settings, core=core, driver=driver, watching=watching).serve(stop)

    service.run(run, name=name, log_level=log_level)


def _run_on_core(
    make_service: Callable[..., CoreService[Any]],
    make_settings: Callable[..., CoreSettings],
    queues: Callable[[Region], tuple[str, ...]],
    *,
    name: str,
    log_level: str,
    host: str,
    port: int,
    admin_hosts: tuple[str, ...],
    **where: Any,
) -> None:
    async def run(stop: asyncio.Event) -> None:
        async with _on_core(name, **where) as (own, opened):
            settings = make_settings(
                name=name,
                region=own.name,
                queues=queues(own),
                login=_login(),
                host=host,
                port=port,
                tls=server_files_from(os.environ),
                admin_hosts=admin_hosts,
            )
            await make_service(settings, **opened).serve(stop)

    service.run(run, name=name, log_level=log_level)


def _login() -> str:
    return credentials_from(os.environ).username


@contextlib.asynccontextmanager
async def _on_core(
    name: str, *, region: str, fabric: Path, topics: Path, store: str
) -> AsyncIterator[tuple[Region, dict[str, Any]]]:
    """Yield the region, and the arguments of a service that consumes from its core brokers."""
    own = load_fabric(fabric).region(region)
    check_region(store, own.name)
    table = load_topics(topics)
    async with (
        _store(store, table) as opened,
        _links(own.core, name) as links,
        _links(own.core, f"{name} taking") as taking,
    ):
        yield own, {"store": opened, "links": links, "taking": taking, "topics": table}


@contextlib.asynccontextmanager
async def _store(url: str, topics: TopicTable) -> AsyncIterator[Store]:
    store = open_store(url, topics)
    try:
        yield store
    finally:
        await store.close()


@contextlib.asynccontextmanager
async def _links(nodes: Sequence[Node], name: str) -> AsyncIterator[Links]:
    """Yield links to each of ``nodes``."""
    brokers = {node.name: node.amqp_url for node in nodes}
    links = await connect_each(brokers, name=name, credentials=credentials_from(os.environ))
    try:
        yield links
    finally:
        await links.close()
