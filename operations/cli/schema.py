"""``newsfabric schema plan`` and ``apply``: the tables of a Cassandra store."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from newsfabric.safe_output import echo
from operations.cli.options import examples, json_option

if TYPE_CHECKING:
    from newsfabric.store._cassandra_schema import Schema

# The exit code of `shovels plan`, too.
EXIT_CHANGES: Final = 2

_Command = TypeVar("_Command", bound=Callable[..., Any])

_STORE: Final = "cassandra://10.0.1.5,10.0.2.5/newsfabric?dc=oregon"


def _options(command: _Command) -> _Command:
    for option in (
        json_option,
        click.option(
            "--replication",
            metavar="DC=N,…",
            help="Replicas in each data centre: 3 in production, 1 on one machine, never 2. "
            "Where there are more already they stay.",
        ),
        click.option(
            "--fewer-replicas",
            is_flag=True,
            help="Take replicas away where --replication has fewer.",
        ),
        click.option(
            "--store",
            required=True,
            metavar="URL",
            envvar="NEWSFABRIC_STORE",
            show_envvar=True,
            help="cassandra://HOST[:PORT],…/KEYSPACE?dc=NAME",
        ),
    ):
        command = option(command)
    return command


@click.group()
def schema() -> None:
    """The tables of a Cassandra store. (SQLite makes its own.)

    User and password come from NEWSFABRIC_CASSANDRA_USERNAME and
    NEWSFABRIC_CASSANDRA_PASSWORD_FILE.
    """


@schema.command(
    epilog=examples(
        f"newsfabric schema plan --store '{_STORE}'",
        f"newsfabric schema plan --store '{_STORE}' --detailed-exitcode",
    )
)
@_options
@click.option("--detailed-exitcode", is_flag=True, help="Exit 2 when there are changes.")
def plan(
    store: str,
    replication: str | None,
    fewer_replicas: bool,
    as_json: bool,
    detailed_exitcode: bool,
) -> None:
    """Show the changes that `apply` would make. Changes nothing."""
    with _schema(store, replication, fewer_replicas) as opened:
        found = opened.plan()
    if as_json:
        document = {
            "keyspace": found.keyspace,
            "replication": found.replication,
            "kept": found.kept,
            "raised": found.raised,
            "applied": found.applied,
            "changes": found.changes,
        }
        echo(json.dumps(document, indent=2))
    else:
        for line in found.notes:
            echo(line, err=True)
        for line in found.changes or [f"nothing to do; applied: {', '.join(found.applied)}"]:
            echo(line)
    if found.changes and detailed_exitcode:
        sys.exit(EXIT_CHANGES)


@schema.command(
    epilog=examples(
        f"newsfabric schema apply --store '{_STORE}' \\",
        "    --replication oregon=3,dublin=3            the first time",
        f"newsfabric schema apply --store '{_STORE}'   after an upgrade",
    )
)
@_options
def apply(store: str, replication: str | None, fewer_replicas: bool, as_json: bool) -> None:
    """Bring the tables up to this release. Applying again changes nothing.

    Where a data centre gets more replicas, `nodetool rebuild` or `repair` copies the older rows
    to them: `plan --json` names such data centres as "raised".

    Safe when two run at once, in any regions: the second waits and finds nothing to do.
    """
    with _schema(store, replication, fewer_replicas) as opened:
        done = opened.apply(lambda line: echo(line, err=True))
    if as_json:
        echo(json.dumps({"done": done}, indent=2))
    else:
        echo(f"{len(done)} changes made" if done else "nothing to do")


def _schema(store: str, replication: str | None, fewer_replicas: bool) -> Schema:
    from newsfabric.store._cassandra_url import login_from, parse_address

    address = parse_address(store)
    from newsfabric.store import _cassandra_schema as impl

    return impl.Schema(
        address,
        login_from(os.environ),
        impl.load_migrations(impl.cql_folder()),
        replication=None if replication is None else impl.parse_replication(replication),
        fewer_replicas=fewer_replicas,
    )
