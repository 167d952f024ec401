"""``newsfabric operator-token``: a login to the operations board."""

from __future__ import annotations

from pathlib import Path

import click

from newsfabric.safe_output import echo, terminal_safe
from newsfabric.tokens.operator_tokens import LONGEST_S, make_key, operator_token, public_of
from newsfabric.topics import parse_duration
from operations.cli.options import examples


def _seconds(ctx: click.Context, param: click.Parameter, value: str) -> float:
    try:
        seconds = parse_duration(value)
    except ValueError as exc:
        raise click.BadParameter(terminal_safe(str(exc))) from exc
    if seconds > LONGEST_S:
        raise click.BadParameter("frontdesks take no token that is good for more than a day (24h)")
    return seconds


@click.command(
    epilog=examples(
        "newsfabric operator-token ada --key operators.pem --make-key",
        "newsfabric operator-token ada --key operators.pem >operator.jwt",
        "newsfabric top --frontdesk https://oregon.example.com --token-file operator.jwt",
    ),
)
@click.argument("name")
@click.option(
    "--key",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="NEWSFABRIC_OPERATOR_KEY",
    show_envvar=True,
    help="The private key, on this machine alone.",
)
@click.option("--make-key", "make", is_flag=True, help="Make the key first; it must not be there.")
@click.option("--ttl", callback=_seconds, default="8h", show_default=True, metavar="DURATION")
@click.option("--audience", metavar="TEXT", help="As frontdesks' --token-audience.")
@click.option("--issuer", metavar="TEXT", help="As frontdesks' --token-issuer.")
def operator_token_command(
    name: str, key: Path, make: bool, ttl: float, audience: str | None, issuer: str | None
) -> None:
    """Print a token by which operator NAME sees the board. For sites without an identity provider.

    Frontdesks and gateways check it by the public key, which lies beside the private one:
    --token-keys or newsfabric_token_keys_from names KEY.pub. A person with the private key can
    log in as anybody, so keep it as you keep the fabric's other secrets.
    """
    if make:
        make_key(key)
        echo(f"the public key, for --token-keys, is {public_of(key)}", err=True)
    echo(operator_token(key, name, ttl, audience=audience, issuer=issuer))
