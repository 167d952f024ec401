"""``newsfabric publishers``: definitions for a client cluster of the publishers in topics.toml."""

from __future__ import annotations

import json
from pathlib import Path

import click

from newsfabric.errors import ConfigError
from newsfabric.safe_output import echo
from newsfabric.topics import load_topics
from newsfabric.topology.rights import limits, publisher, user_definitions
from operations.cli.options import examples
from operations.passwords import passwords_in


@click.command(
    epilog=examples(
        "newsfabric publishers --passwords /etc/newsfabric/publishers > publishers.json",
        "rabbitmqctl import_definitions publishers.json",
    )
)
@click.option(
    "--topics",
    "topics_file",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("topics.toml"),
    show_default=True,
    help="Where the [[publisher]] tables are.",
)
@click.option(
    "--passwords",
    "folder",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="One file for each publisher; those that are missing are made.",
)
def publishers(topics_file: Path, folder: Path) -> None:
    """Print users, permissions and topic permissions of all publishers.

    The output is for `rabbitmqctl import_definitions` on each client and proxy broker. It has the
    passwords' hashes, not the passwords, and limits of publishers' queues; import it again after a
    change of rights. A user whose table was removed stays until you delete it.
    """
    listed = load_topics(topics_file).publishers
    if not listed:
        raise ConfigError(f"{topics_file} has no [[publisher]]: everyone may publish everything")
    passwords = passwords_in(folder, (rights.app_id for rights in listed))
    users = user_definitions(map(publisher, listed), passwords)
    echo(json.dumps(users | limits("client"), indent=1))
