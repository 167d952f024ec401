"""``newsfabric up``, ``status``, ``targets`` and ``down``."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import click

from localfabric.world.options import StoreKind, WorldOptions
from newsfabric.safe_output import echo, terminal_safe
from newsfabric.settings import is_name
from operations.cli.options import examples, json_option, state_option


def _least_and_most(
    _context: click.Context, _option: click.Parameter, given: str | None
) -> tuple[int, int] | None:
    if given is None:
        return None
    least, colon, most = given.partition(":")
    if not (colon and least.isdecimal() and most.isdecimal()):
        raise click.BadParameter("write LEAST:MOST, like 1:6")
    return int(least), int(most)


def _rabbitmqs(
    _context: click.Context, _option: click.Parameter, given: tuple[str, ...]
) -> dict[str | None, str]:
    """Parse the folders by region; None for all."""
    found: dict[str | None, str] = {}
    for text in given:
        region, sign, folder = text.partition("=")
        named = sign != "" and is_name(region)
        place = region if named else None
        if place in found:
            what = f"{place or 'the whole world'} has two RabbitMQs: name one"
            raise click.BadParameter(terminal_safe(what))
        # Made absolute: a broker may be started later from another folder.
        found[place] = str(Path(folder if named else text).expanduser().absolute())
    return found


@click.command(
    short_help="Start a whole fabric on this machine.",
    epilog=examples(
        "newsfabric up                         two regions, until Ctrl-C",
        "newsfabric up --detach                the same, in the background",
        "newsfabric up --core-nodes 3          with three core brokers in each region",
        "newsfabric up --store cassandra       with a data centre of Cassandra in each region",
        "newsfabric up --regions a,b,c --retail 2 --state /tmp/w2 --port-base 22000",
        "newsfabric up --rabbitmq .tools/rabbitmq-sid --rabbitmq dublin=.tools/rabbitmq-trixie",
        "newsfabric up --scale 1:6 --box-capacity 4000    boxes come and go by themselves",
    ),
)
@state_option
@click.option(
    "--regions", default=",".join(WorldOptions().regions), show_default=True, help="Their names."
)
@click.option("--client-nodes", default=1, show_default=True, help="Client brokers a region.")
@click.option("--core-nodes", default=1, show_default=True, help="Core brokers a region.")
@click.option("--retail", default=1, show_default=True, help="Retail boxes a region.")
@click.option("--box-capacity", type=int, help="Readers a box takes.  [default: 100000]")
@click.option(
    "--scale",
    metavar="LEAST:MOST",
    callback=_least_and_most,
    help="Two scalers a region, which start and end boxes.",
)
@click.option(
    "--store",
    type=click.Choice(["sqlite", "cassandra"]),
    default=WorldOptions().store,
    show_default=True,
    help="Store of messages; Cassandra needs `scripts/setup cassandra`.",
)
@click.option(
    "--store-nodes", default=1, show_default=True, help="Cassandra nodes a region, 1 or 3."
)
@click.option("--proxy", is_flag=True, help="A broker away from all regions, to publish to.")
@click.option(
    "--rabbitmq",
    "rabbitmqs",
    metavar="[REGION=]DIRECTORY",
    multiple=True,
    callback=_rabbitmqs,
    help="The RabbitMQ to run: a server's folder or an unpacked tree; also for a region alone.  "
    "[default: $NEWSFABRIC_RABBITMQ_HOME, else the one that is installed]",
)
@click.option(
    "--port-base",
    default=WorldOptions().port_base,
    envvar="NEWSFABRIC_PORT_BASE",
    show_default=True,
    show_envvar=True,
    help="The first port; see docs/world.md for the others.",
)
@click.option(
    "--topics",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="NEWSFABRIC_TOPICS",
    help="topics.toml.  [default: ./topics.toml, else the project's]",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=1.0),
    help="Give up after so many seconds.  [default: 60, and 10 for each RabbitMQ node, 30 for each "
    "Cassandra node]",
)
@click.option("--detach", is_flag=True, help="Return when everything works; `down` stops it.")
def up(
    state: Path,
    regions: str,
    client_nodes: int,
    core_nodes: int,
    retail: int,
    box_capacity: int | None,
    scale: tuple[int, int] | None,
    store: StoreKind,
    store_nodes: int,
    proxy: bool,
    rabbitmqs: dict[str | None, str],
    port_base: int,
    topics: Path | None,
    timeout: float | None,
    detach: bool,
) -> None:
    """Start a whole fabric on this machine: RabbitMQ nodes, services and gateways, on loopback.

    It is ready when a canary published in each region has reached a reader at every gateway.
    Otherwise it lists the parts that aren't ready, stops everything and exits with 1.
    """
    from localfabric.cli.up import run_up, topics_file

    options = WorldOptions(
        regions=tuple(name.strip() for name in regions.split(",")),
        client_nodes=client_nodes,
        core_nodes=core_nodes,
        retail=retail if scale is None else max(retail, scale[0]),
        box_capacity=box_capacity,
        scale=scale,
        port_base=port_base,
        store=store,
        store_nodes=store_nodes,
        proxy=proxy,
        rabbitmq=rabbitmqs.get(None),
        rabbitmq_of=tuple((place, folder) for place, folder in rabbitmqs.items() if place),
    )
    run_up(options, state, topics_file(topics), seconds=timeout, detach=detach)


@click.command(
    short_help="Show the running processes.",
    epilog=examples("newsfabric status", "newsfabric status --json | jq .regions[0]"),
)
@state_option
@json_option
def status(state: Path, as_json: bool) -> None:
    """Show regions, brokers, services, shovels and gateways, and which of them are dead.

    Of a fabric on machines, too, where --state has a hosts.json (docs/fleet.md).
    """
    from localfabric.cli.show import status_tables
    from newsfabric.console import console

    document = _status_of(state)
    if as_json:
        echo(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        console().print(status_tables(document))


def _status_of(state: Path) -> dict[str, Any]:
    from localfabric.world.state import read_running
    from localfabric.world.status import observe, status_document
    from operations.hosts.described import read_hosts
    from operations.hosts.remote import host_reports
    from operations.hosts.status import hosts_status

    if (hosts := read_hosts(state)) is not None:
        return hosts_status(hosts, host_reports(hosts))
    layout, notes = read_running(state)
    return status_document(layout, notes, asyncio.run(observe(layout)))


@click.command(
    short_help="Print where Prometheus finds a world.",
    epilog=examples("newsfabric targets > targets.json   for file_sd_configs of prometheus.yml"),
)
@state_option
def targets(state: Path) -> None:
    """Print where Prometheus finds the processes of a world (its file_sd format).

    With deploy/observability/prometheus.world.yml that is all that a Prometheus needs.
    """
    from localfabric.world.state import read_running
    from localfabric.world.targets import targets as groups

    layout, _ = read_running(state)
    echo(json.dumps(groups(layout), indent=2, ensure_ascii=False))


@click.command(
    short_help="Stop it and leave nothing behind.",
    epilog=examples("newsfabric down", "newsfabric down --keep-logs"),
)
@state_option
@click.option("--keep-logs", is_flag=True, help="Leave the logs in the world's folder.")
def down(state: Path, keep_logs: bool) -> None:
    """Stop a world, or the rest of a crashed one, and leave no process, port or file."""
    from localfabric.world.state import shown
    from localfabric.world.stop import stop_world

    def print_line(text: str) -> None:
        echo(text, err=True)

    if stop_world(state, keep_logs=keep_logs, print_line=print_line):
        echo(f"stopped; nothing is left of the world in {shown(state)}")
    else:
        echo(f"nothing is running in {shown(state)}")
