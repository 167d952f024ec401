"""``newsfabric topology``: definitions of brokers, for deployment tools.

``export`` prints all definitions of a cluster's brokers: those of ``newsfabric users``, and
exchanges and queues. It reads the passwords from a pipe, not from a folder: deployment tools have
them in a vault. ``publishers`` prints the users that need one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO, Any, Final

import click

from newsfabric.errors import ConfigError
from newsfabric.safe_output import echo
from newsfabric.settings import Fabric, load_fabric
from newsfabric.topics import TopicTable, load_topics
from newsfabric.topology import (
    Cluster,
    Role,
    client_definitions,
    core_definitions,
    retail_definitions,
    taken_from,
)
from newsfabric.topology.rights import User, publisher
from newsfabric.topology.roles import box_user, cluster_users, operator
from operations.cli.options import examples
from operations.cli.users import place_and_role

_FILE: Final = click.Path(dir_okay=False, path_type=Path)


@click.group()
def topology() -> None:
    """Exchanges, queues, users, rights and limits of the fabric's brokers."""


@topology.command(
    epilog=examples(
        "newsfabric topology export oregon/core --box oregon-retail-1 --passwords passwords.json",
        "vault-reader | newsfabric topology export oregon/client --passwords - > definitions.json",
        "rabbitmqctl import_definitions definitions.json",
    )
)
@click.argument("where", metavar="PLACE/ROLE")
@click.option(
    "--fabric", "fabric_file", type=_FILE, default="fabric.json", show_default=True, help="Regions."
)
@click.option(
    "--topics", "topics_file", type=_FILE, default="topics.toml", show_default=True, help="Feeds."
)
@click.option("--box", "boxes", multiple=True, help="A box of that core. Give it once for each.")
@click.option("--operator", "person", metavar="NAME", help="A user who may do everything.")
@click.option(
    "--passwords",
    "passwords_file",
    required=True,
    type=click.File("rb"),
    help='{"USER": "PASSWORD", …}; - is standard input. Others than those needed are left out.',
)
def export(
    where: str,
    fabric_file: Path,
    topics_file: Path,
    boxes: tuple[str, ...],
    person: str | None,
    passwords_file: IO[bytes],
) -> None:
    """Print the definitions.json of brokers.

    Of those of a cluster, or of a box's own. PLACE/ROLE is as for `newsfabric users`. Of passwords
    only hashes are printed. The same input gives the same output, so that a playbook sees whether
    anything has changed.
    """
    place, role = place_and_role(where, boxes)
    passwords = _passwords(passwords_file)
    fabric, topics = load_fabric(fabric_file), load_topics(topics_file)
    users = [] if person is None else [operator(person)]
    users += _users(fabric, topics, place, role, boxes)
    missing = [user.name for user in users if user.name not in passwords]
    if missing:
        raise ConfigError(f"no password for {', '.join(missing)}")
    document = _definitions(fabric, topics, place, role, users, passwords)
    echo(json.dumps(document, indent=1))


@topology.command(epilog=examples("newsfabric topology publishers --topics topics.toml"))
@click.option(
    "--topics", "topics_file", type=_FILE, default="topics.toml", show_default=True, help="Feeds."
)
def publishers(topics_file: Path) -> None:
    """Print the names of all publishers, as a JSON list.

    It fails where the feeds can't be used, so it also checks them.
    """
    echo(json.dumps([rights.app_id for rights in load_topics(topics_file).publishers]))


def _users(
    fabric: Fabric, topics: TopicTable, place: str, role: Role | None, boxes: tuple[str, ...]
) -> list[User]:
    if role is None:
        return [box_user(place)]
    users = [*cluster_users(fabric, topics, Cluster(place, role), boxes)]
    if role != "core":
        users += map(publisher, topics.publishers)
    return users


def _definitions(
    fabric: Fabric,
    topics: TopicTable,
    place: str,
    role: Role | None,
    users: list[User],
    passwords: dict[str, str],
) -> dict[str, Any]:
    match role:
        case None:
            return retail_definitions(users, passwords)
        case "core":
            return core_definitions(topics, users, passwords)
        case "client" | "proxy":
            taken = taken_from(fabric, Cluster(place, role), topics)
            return client_definitions(taken, users, passwords)


def _passwords(file: IO[bytes]) -> dict[str, str]:
    """Return the passwords in ``file``. An error states nothing of its content."""
    try:
        found = json.load(file)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(_is_password(value) for value in found.values()):
        raise ConfigError(
            '--passwords: expected one JSON object {"USER": "PASSWORD", …}, none empty'
        )
    return found


def _is_password(value: object) -> bool:
    return isinstance(value, str) and value != ""
