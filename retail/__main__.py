"""``python -m retail``: the agent of one retail box, as a service."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

import click

from newsfabric.process import service
from newsfabric.process.operators import OperatorsApplication, admin_host_option
from newsfabric.settings import (
    ServerFiles,
    check_name,
    credentials_from,
    server_files_from,
    without_login,
)
from retail.agent import Agent, AgentSettings


@click.command(
    context_settings={"auto_envvar_prefix": "NEWSFABRIC"},
    epilog="\b\nExample:\n  python -m retail --name oregon-retail-1 --region oregon \\\n"
    "    --core amqp://core-1/%2F --core amqp://core-2/%2F --broker amqp://127.0.0.1/%2F \\\n"
    "    --management http://127.0.0.1:15672 --gateway-admin http://127.0.0.1:9101 --port 9100",
)
@click.option("--name", required=True, help="The box's name.")
@click.option("--region", required=True, help="The box's region.")
@click.option("--core", "cores", multiple=True, required=True, help="A core node's AMQP URL.")
@click.option("--broker", required=True, help="AMQP URL of the box's own broker.")
@click.option("--management", required=True, help="Management URL of the box's own broker.")
@click.option("--gateway-admin", required=True, help="URL of the gateway's admin port.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where --port listens.")
@click.option(
    "--port", type=click.IntRange(0, 65535), required=True, help="/healthz, /canaries, /metrics."
)
@admin_host_option
@click.option(
    "--drain-timeout",
    type=click.FloatRange(0),
    default=120.0,
    show_default=True,
    help="Seconds that readers get to leave.",
)
@click.option("--log-level", default="info", show_default=True)
@service.process_options
def main(
    name: str,
    region: str,
    cores: tuple[str, ...],
    broker: str,
    management: str,
    gateway_admin: str,
    host: str,
    port: int,
    admin_hosts: tuple[str, ...],
    drain_timeout: float,
    log_level: str,
) -> None:
    """Feed a retail box from the core, report its load, drain it on SIGTERM."""

    async def serve(stop: asyncio.Event) -> None:
        for word in (name, region):
            check_name(word)
        for url in (*cores, broker, management, gateway_admin):
            without_login(url, "--core, --broker, --management and --gateway-admin")
        settings = AgentSettings(
            box=name,
            region=region,
            cores=tuple(dict.fromkeys(cores)),
            broker=broker,
            management=management,
            gateway_admin=gateway_admin,
            drain_timeout=drain_timeout,
            credentials=credentials_from(os.environ),
        )
        await run(
            stop,
            settings,
            address=(host, port),
            admin_hosts=admin_hosts,
            tls=server_files_from(os.environ),
        )

    service.run(serve, name=f"{name}-agent", log_level=log_level)


async def run(
    stop: asyncio.Event,
    settings: AgentSettings,
    *,
    address: tuple[str, int],
    admin_hosts: Sequence[str] = (),
    tls: ServerFiles | None = None,
) -> None:
    """Serve pages on ``address``, run the agent until ``stop`` is set, then drain."""
    agent = Agent(settings)
    routes = [
        (r"/canaries", service.DocumentHandler, {"document": agent.canaries}),
        *service.operators_routes(agent.readiness),
    ]
    pages = OperatorsApplication(routes, names=admin_hosts)
    async with service.serving(pages, host=address[0], port=address[1], tls=tls):
        service.up()
        await agent.run(stop)


if __name__ == "__main__":
    main()
