"""``newsfabric users``: definitions for a cluster of the fabric's own users."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final, get_args

import click

from newsfabric.errors import ConfigError
from newsfabric.safe_output import echo
from newsfabric.settings import check_name, load_fabric
from newsfabric.topics import load_topics
from newsfabric.topology import Cluster, Role
from newsfabric.topology.rights import User, limits, user_definitions
from newsfabric.topology.roles import box_user, cluster_users
from operations.cli.options import examples
from operations.passwords import passwords_in

_BOX: Final = "box"
_ROLES: Final[tuple[Role, ...]] = get_args(Role)
_FILE: Final = click.Path(dir_okay=False, path_type=Path)


@click.command(
    epilog=examples(
        "newsfabric users oregon/core --box oregon-retail-1 --passwords /etc/newsfabric/users",
        "newsfabric users dublin/client --passwords /etc/newsfabric/users > users.json",
        "newsfabric users oregon-retail-1/box --passwords /etc/newsfabric/users > box.json",
        "rabbitmqctl import_definitions users.json",
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
@click.option(
    "--passwords",
    "folder",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="One file for each user; those that are missing are made.",
)
def users(
    where: str, fabric_file: Path, topics_file: Path, boxes: tuple[str, ...], folder: Path
) -> None:
    """Print users, rights and limits of one cluster, or of a box's own broker.

    PLACE/ROLE is a region's core or client cluster, a proxy cluster (harbor/proxy) or a box's name
    with /box. The output is for `rabbitmqctl import_definitions` on each broker there. It has the
    passwords' hashes, not the passwords. A user that is no longer printed stays until you delete
    it.

    Tell each service its user with NEWSFABRIC_AMQP_USERNAME and NEWSFABRIC_AMQP_PASSWORD_FILE;
    the keeper also the shovels', with NEWSFABRIC_SHOVEL_USERNAME and its PASSWORD_FILE.
    """
    place, role = place_and_role(where, boxes)
    bounds = {}
    if role is None:
        found: tuple[User, ...] = (box_user(place),)
    else:
        cluster = Cluster(place, role)
        known, topics = load_fabric(fabric_file), load_topics(topics_file)
        found = cluster_users(known, topics, cluster, boxes)
        bounds = limits(cluster.role)
    document = user_definitions(found, passwords_in(folder, (user.name for user in found)))
    echo(json.dumps(document | bounds, indent=1))


def place_and_role(where: str, boxes: Iterable[str] = ()) -> tuple[str, Role | None]:
    """Parse PLACE and ROLE in ``where``, None for a box's own broker; ConfigError if there can't be
    such a place or one of ``boxes``."""
    place, _, role = where.partition("/")
    for name in (place, *boxes):
        check_name(name)
    return place, None if role == _BOX else _role(role)


def _role(text: str) -> Role:
    for role in _ROLES:
        if role == text:
            return role
    raise ConfigError(f"write PLACE/ROLE, where ROLE is {', '.join(_ROLES)} or {_BOX}")
