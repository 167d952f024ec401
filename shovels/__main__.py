"""``python -m shovels``: the keeper of one region's shovels, as a service."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

import click

from newsfabric.process import service
from newsfabric.process.operators import OperatorsApplication, admin_host_option
from newsfabric.settings import (
    Credentials,
    Fabric,
    ServerFiles,
    check_name,
    credentials_from,
    load_fabric,
    server_files_from,
    shovel_credentials_from,
)
from newsfabric.topics import TopicTable, load_topics
from shovels.apply import ManagementClients
from shovels.keeper import Keeper


@click.command(
    context_settings={"auto_envvar_prefix": "NEWSFABRIC"},
    epilog="\b\nExample:\n  python -m shovels --region oregon --fabric fabric.json "
    "--topics topics.toml --port 15090",
)
@click.option("--region", required=True, help="The region to keep.")
@click.option("--name", help="What the board calls it; by default REGION-shovels.")
@click.option("--fabric", type=click.Path(path_type=Path), required=True, help="fabric.json")
@click.option("--topics", type=click.Path(path_type=Path), required=True, help="topics.toml")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where --port listens.")
@click.option(
    "--port", type=click.IntRange(0, 65535), required=True, help="/healthz, /canaries, /metrics."
)
@admin_host_option
@click.option("--log-level", default="info", show_default=True)
@service.process_options
def main(
    region: str,
    name: str | None,
    fabric: Path,
    topics: Path,
    host: str,
    port: int,
    admin_hosts: tuple[str, ...],
    log_level: str,
) -> None:
    """Keep the shovels of a region as planned, for ever.

    It logs in as NEWSFABRIC_AMQP_USERNAME with NEWSFABRIC_AMQP_PASSWORD_FILE. Shovels log in as
    NEWSFABRIC_SHOVEL_USERNAME with NEWSFABRIC_SHOVEL_PASSWORD_FILE; as it does, if that isn't set.
    """

    async def keep(stop: asyncio.Event) -> None:
        known = load_fabric(fabric)
        known.region(region)
        if name is not None:
            check_name(name)
        await run(
            stop,
            name=name,
            region=region,
            fabric=known,
            topics=load_topics(topics),
            credentials=credentials_from(os.environ),
            shovels=shovel_credentials_from(os.environ),
            address=(host, port),
            admin_hosts=admin_hosts,
            tls=server_files_from(os.environ),
        )

    service.run(keep, name=f"shovels of {region}", log_level=log_level)


async def run(
    stop: asyncio.Event,
    *,
    name: str | None = None,
    region: str,
    fabric: Fabric,
    topics: TopicTable,
    credentials: Credentials,
    shovels: Credentials,
    address: tuple[str, int],
    admin_hosts: Sequence[str] = (),
    tls: ServerFiles | None = None,
) -> None:
    """Serve pages on ``address``, and keep the shovels until ``stop`` is set."""
    async with ManagementClients(fabric, credentials, shovels=shovels) as brokers:
        keeper = Keeper(brokers, region, topics, name=name)
        routes = [
            (r"/canaries", service.DocumentHandler, {"document": keeper.canaries}),
            *service.operators_routes(keeper.readiness),
        ]
        pages = OperatorsApplication(routes, names=admin_hosts)
        async with service.serving(pages, host=address[0], port=address[1], tls=tls):
            service.up()
            await keeper.run(stop)


if __name__ == "__main__":
    main()
