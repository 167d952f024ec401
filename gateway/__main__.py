"""The command line of a retail box's gateway: its options, and the choice of the engine."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from gateway.native.program import find_program
from gateway.process.descriptors import raise_limit
from gateway.process.settings import ANY_ORIGIN, GatewaySettings, NativeSettings, TokenSettings
from gateway.run import app, native_app
from newsfabric.amqp.link import connect
from newsfabric.errors import ConfigError, SetupError
from newsfabric.http.networks import Network
from newsfabric.http.origins import is_origin
from newsfabric.process.operators import admin_host_option
from newsfabric.process.service import networks_given, process_options, run
from newsfabric.safe_output import terminal_safe
from newsfabric.settings import credentials_from, without_login
from newsfabric.store import open_store
from newsfabric.topics import load_topics
from newsfabric.tracing.otel_tracer import trace_options

logger = logging.getLogger(__name__)

_RUNNING: Final = {"native": native_app.running, "tornado": app.running}


def choose_engine(wanted: str) -> str:
    """Return the engine to run. SetupError if ``native`` is wanted and its program isn't there.

    ``auto`` takes ``native`` if possible. ``native`` never falls back: production must notice.
    """
    if wanted == "tornado":
        return "tornado"
    try:
        find_program()
    except SetupError as exc:
        if wanted == "native":
            raise
        logger.warning("running the Tornado engine: %s", exc)
        return "tornado"
    return "native"


def _origins(
    _context: click.Context, _option: click.Parameter, given: Sequence[str]
) -> tuple[str, ...]:
    """Return the origins in lower case; click's UsageError for a text that is no origin."""
    found = tuple(origin.lower() for origin in given)
    if found in ((), ANY_ORIGIN):
        return ANY_ORIGIN
    for origin in found:
        if not is_origin(origin):
            # Refused too: "null", which every page can send, and "*" together with others.
            text = f"--origin {origin}: write https://HOST or https://HOST:PORT"
            raise click.UsageError(terminal_safe(text))
    return found


@click.command(context_settings={"auto_envvar_prefix": "NEWSFABRIC", "show_default": True})
@click.option("--name", required=True, help="The box's name, like oregon-retail-1.")
@click.option("--region", required=True, help="The region whose ticks make it ready.")
@click.option("--broker", required=True, metavar="AMQP_URL", help="The box's own broker.")
@click.option("--topics", required=True, type=click.Path(path_type=Path), help="topics.toml")
@click.option(
    "--store",
    required=True,
    metavar="URL",
    help="sqlite:PATH, memory: or cassandra://HOSTS/KEYSPACE?dc=NAME",
)
@click.option("--host", default="127.0.0.1", help="Address for readers.")
@click.option("--port", default=8080, type=click.IntRange(0, 65535), help="Port for readers.")
@click.option(
    "--admin-port", default=8081, type=click.IntRange(0, 65535), help="For operators, on loopback."
)
@admin_host_option
@click.option(
    "--public-url", default=None, metavar="URL", help="URL at which readers reach this port."
)
@click.option(
    "--origin",
    "origins",
    multiple=True,
    callback=_origins,
    help="https://HOST whose pages may connect; repeat. Without it all may.",
)
@click.option(
    "--endpoints",
    multiple=True,
    metavar="URL",
    help="endpoints.json of a region, the own one first; repeat.",
)
@click.option("--capacity", default=100_000, type=click.IntRange(1), help="Readers at most.")
@click.option(
    "--drain-seconds",
    default=10.0,
    type=click.FloatRange(0),
    help="In a drain, send readers away evenly over so long.",
)
@click.option(
    "--drain-per-second",
    default=2_000,
    type=click.IntRange(1),
    help="In a drain, send away at most so many a second.",
)
@click.option(
    "--outbox-memory",
    default=256,
    type=click.IntRange(1),
    metavar="MIB",
    help="Memory for all slow readers of a process; above it the slowest are closed.",
)
@click.option(
    "--stalled-seconds",
    default=30.0,
    type=click.FloatRange(0.1),
    help="Close a reader who has taken nothing for so long while messages wait.",
)
@click.option("--sockjs-url", default="/sockjs.min.js", help="Script of SockJS's iframe page.")
@click.option("--sockjs-legacy", is_flag=True, help="Serve SockJS's jsonp and htmlfile too.")
@click.option(
    "--sockjs-cookie", is_flag=True, help="Set JSESSIONID, for a balancer that goes by this cookie."
)
@click.option(
    "--sockjs-same-address",
    is_flag=True,
    help="A SockJS session over HTTP continues only from the address where it began.",
)
@click.option(
    "--websocket/--no-websocket", default=True, help="Accept WebSockets, or SockJS alone."
)
@click.option(
    "--frontdesk",
    "frontdesks",
    multiple=True,
    metavar="NETWORK",
    callback=networks_given,
    help="Network of frontdesks (10.0.0.0/8): no rate limit of /history; repeat.",
)
@click.option(
    "--engine",
    default="auto",
    envvar="NEWSFABRIC_GATEWAY_ENGINE",
    type=click.Choice(("auto", *_RUNNING)),
    help="auto: native if it is built, else tornado.",
)
@click.option(
    "--dataplane-socket", type=click.Path(path_type=Path), help="The data plane's control socket."
)
@click.option(
    "--dataplane-threads",
    default=0,
    type=click.IntRange(0),
    help="I/O threads of the data plane; 0: one for each core.",
)
@click.option(
    "--proxy-from",
    multiple=True,
    metavar="NETWORK",
    callback=networks_given,
    help="Balancers (10.0.0.0/8) whose PROXY headers say who a reader is; native engine; repeat.",
)
@click.option(
    "--per-address",
    default=0,
    type=click.IntRange(0),
    help="Connections that one address may have, or one IPv6 network of 64 bits, and as many SockJS"
    " sessions over HTTP; 0: any number.",
)
@click.option("--token-keys", metavar="FILE|URL", help="PEM or JWKS; without it no logins.")
@click.option("--token-audience", metavar="AUD", help="Audience of accepted tokens.")
@click.option("--token-issuer", metavar="ISS", help="Issuer of accepted tokens.")
@click.option("--token-cookie", metavar="NAME", help="A cookie that may hold a token.")
@click.option("--log-level", default="info", help="debug, info, warning or error.")
@process_options
@trace_options
def main(
    *,
    broker: str,
    topics: Path,
    store: str,
    outbox_memory: int,
    engine: str,
    dataplane_socket: Path | None,
    dataplane_threads: int,
    proxy_from: tuple[Network, ...],
    token_keys: str | None,
    token_audience: str | None,
    token_issuer: str | None,
    token_cookie: str | None,
    log_level: str,
    # Each option has the name of its setting.
    **values: Any,
) -> None:
    """Serve readers of one retail box: SockJS, WebSocket, SSE."""
    try:
        tokens = TokenSettings(
            keys=token_keys, audience=token_audience, issuer=token_issuer, cookie=token_cookie
        )
    except ConfigError as exc:
        raise click.UsageError(terminal_safe(str(exc))) from exc
    settings = GatewaySettings(
        **values,
        tokens=tokens,
        outbox_memory=outbox_memory << 20,
        native=NativeSettings(
            socket=dataplane_socket,
            threads=dataplane_threads,
            proxy_from=tuple(map(str, proxy_from)),
        ),
    )
    process = f"{settings.name}-gateway"

    async def serve_until(stop: asyncio.Event) -> None:
        chosen = choose_engine(engine)
        if proxy_from and chosen != "native":
            raise SetupError(
                "--proxy-from needs the native engine: this one reads no PROXY headers"
            )
        table = load_topics(topics)
        credentials = credentials_from(os.environ)
        link = await connect(
            [without_login(broker, "--broker")], name=process, credentials=credentials
        )
        async with _RUNNING[chosen](settings, table, open_store(store, table), link, stop):
            await stop.wait()

    raise_limit()
    run(serve_until, name=process, log_level=log_level)


if __name__ == "__main__":
    main(prog_name="python -m gateway")
