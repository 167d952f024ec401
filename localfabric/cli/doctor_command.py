"""``newsfabric doctor``."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import click

from newsfabric.safe_output import echo
from operations.cli.options import examples, json_option, state_option, with_state


@click.command(
    short_help="Check this machine for a world.",
    epilog=examples(
        "newsfabric doctor",
        "newsfabric doctor --json | jq '.findings[] | select(.do)'",
    ),
)
@state_option
@click.option(
    "--port-base",
    default=18000,
    envvar="NEWSFABRIC_PORT_BASE",
    show_default=True,
    show_envvar=True,
    help="The first port that `up` would take.",
)
@json_option
@click.pass_context
def doctor(context: click.Context, state: Path, port_base: int, as_json: bool) -> None:
    """Check all that a world on this machine needs, and give advice where something is wrong.

    A line each: Python, RabbitMQ, Erlang, the data plane, ports, memory, descriptors, the clock,
    the disk, and the leftovers of an earlier world. It starts and changes nothing. Exits with 1 if
    one is an error; with a warning a world works, but not as well as it could.
    """
    from localfabric.world.doctor import examine, worst
    from localfabric.world.options import WorldOptions

    found = []
    for seen in examine(WorldOptions(port_base=port_base), state, os.environ):
        one = dataclasses.replace(seen, do=with_state(seen.do, context))
        found.append(one)
        if not as_json:
            echo(f"{one.level:<8} {one.what}: {one.says}")
            if one.do:
                echo(f"         → {one.do}")
    level = worst(found)
    if as_json:
        document = {"level": level, "findings": [dataclasses.asdict(one) for one in found]}
        echo(json.dumps(document, indent=2))
    if level == "error":
        context.exit(1)
