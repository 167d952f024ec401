"""``newsfabric token`` and ``revoke``: readers' logins."""

from __future__ import annotations

from pathlib import Path

import click

from newsfabric.cli.options import examples, state_option
from newsfabric.topics import parse_duration


def _seconds(ctx: click.Context, param: click.Parameter, value: str) -> float:
    try:
        return parse_duration(value)
    except ValueError as exc:
        raise click.BadParameter(str(exc)) from exc


@click.command(
    epilog=examples(
        "newsfabric token 42",
        "newsfabric token editor --topics 'desk.#' --topics live.election --ttl 7d",
    )
)
@click.argument("user")
@state_option
@click.option("--topics", multiple=True, metavar="PATTERN", help="Topics to grant; repeatable.")
@click.option("--ttl", callback=_seconds, default="1h", show_default=True, metavar="DURATION")
@click.option("--operator", is_flag=True, help="It opens the operations board, too.")
def token(user: str, state: Path, topics: tuple[str, ...], ttl: float, operator: bool) -> None:
    """Print a token with which readers of the running world log in as USER.

    For trying things out: it is signed by a key that `newsfabric up` has made in the world's
    folder. Elsewhere the site's own accounts issue tokens, and gateways are told their keys.
    """
    from newsfabric.world.issuer import issue
    from newsfabric.world.state import running_world

    layout, _ = running_world(state)
    click.echo("for this world alone, by its own key", err=True)
    click.echo(issue(layout.paths, user, topics, ttl, operator=operator))


@click.command(epilog=examples("newsfabric revoke 42", "newsfabric revoke 42 --fabric fabric.json"))
@click.argument("user")
@state_option
@click.option(
    "--fabric",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="NEWSFABRIC_FABRIC",
    help="fabric.json, where no world runs on this machine.",
)
@click.option("--timeout", type=click.FloatRange(min=0.1), default=10.0, show_default=True)
def revoke(user: str, state: Path, fabric: Path | None, timeout: float) -> None:
    """Lock USER out: connections are closed and tokens issued until now are refused, everywhere.

    It takes effect within two seconds and is kept for as long as such a token could live. To let
    USER in again, issue a new token.
    """
    from newsfabric.cli.revoke import run_revoke

    run_revoke(user, state=state, fabric_file=fabric, seconds=timeout)
