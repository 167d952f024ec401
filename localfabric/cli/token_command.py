"""``newsfabric token``: a reader's login."""

from __future__ import annotations

from pathlib import Path

import click

from newsfabric.safe_output import echo, terminal_safe
from newsfabric.topics import parse_duration
from operations.cli.options import examples, state_option


def _seconds(ctx: click.Context, param: click.Parameter, value: str) -> float:
    try:
        return parse_duration(value)
    except ValueError as exc:
        raise click.BadParameter(terminal_safe(str(exc))) from exc


@click.command(
    short_help="Print a token to log in with here.",
    epilog=examples(
        "newsfabric token 42",
        "newsfabric token editor --topics 'desk.#' --topics live.election --ttl 7d",
    ),
)
@click.argument("user")
@state_option
@click.option("--topics", multiple=True, metavar="PATTERN", help="Topics to grant; repeatable.")
@click.option("--ttl", callback=_seconds, default="1h", show_default=True, metavar="DURATION")
@click.option("--operator", is_flag=True, help="It opens the operations board, too.")
def token(user: str, state: Path, topics: tuple[str, ...], ttl: float, operator: bool) -> None:
    """Print a token with which readers of the running world log in as USER.

    For trying things out: it is signed by a key that `newsfabric up` has made in the world's
    folder. Elsewhere the site's own accounts issue tokens, and gateways get their keys.
    """
    from localfabric.world.issuer import issue
    from localfabric.world.state import read_running

    layout, _ = read_running(state)
    echo("for this world alone, by its own key", err=True)
    echo(issue(layout.paths, user, topics, ttl, operator=operator))
