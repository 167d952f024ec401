"""``newsfabric revoke``."""

from __future__ import annotations

from pathlib import Path

import click

from operations.cli.options import examples, state_option


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
    from operations.cli.revoke import run_revoke

    run_revoke(user, state=state, fabric_file=fabric, seconds=timeout)
