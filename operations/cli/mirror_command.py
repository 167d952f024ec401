"""``newsfabric mirror``: plays a share of a fabric's live traffic into another, and compares."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from operations.cli.options import examples, json_option, token_over_http_option

_PLACE = click.Path(exists=True, path_type=Path)
_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(
    epilog=examples(
        "newsfabric mirror --from .world --to .next-world --share 0.1 --seconds 60",
        "newsfabric mirror --from fabric.json --to next/fabric.json --fail-on-loss --report m.json",
        "newsfabric mirror --from .world --to .next-world --share 1 --max-readers 0",
    )
)
@click.option(
    "--from",
    "from_path",
    type=_PLACE,
    required=True,
    metavar="WORLD|FABRIC.json",
    help="The original: a world's folder or a fabric.json.",
)
@click.option(
    "--to",
    "to_path",
    type=_PLACE,
    required=True,
    metavar="WORLD|FABRIC.json",
    help="The other fabric.",
)
@click.option(
    "--share",
    type=click.FloatRange(0.0, 1.0),
    default=0.1,
    show_default=True,
    help="Of the messages, cut by identity.",
)
@click.option(
    "--reader-share",
    type=click.FloatRange(0.0, 1.0),
    help="Of the readers and their connects.  [default: --share]",
)
@click.option("--readers", type=click.IntRange(min=0), help="So many instead; asks no board.")
@click.option(
    "--max-readers",
    type=click.IntRange(0, 100_000),
    default=1000,
    show_default=True,
    help="Never more; 0: none.",
)
@click.option(
    "--ramp",
    type=click.FloatRange(0.1, 10_000),
    default=50.0,
    show_default=True,
    help="Readers a second until there are enough.",
)
@click.option("--region", metavar="NAME", help="The region to listen in.  [default: the first]")
@click.option("--to-region", metavar="NAME", help="Where to publish.  [default: the first]")
@click.option("--seconds", type=click.FloatRange(min=1.0), help="How long.  [default: Ctrl-C]")
@click.option(
    "--every",
    type=click.FloatRange(min=0.5),
    default=5.0,
    show_default=True,
    help="Seconds between two lines.",
)
@click.option(
    "--patience",
    type=click.FloatRange(1.0, 600.0),
    default=15.0,
    show_default=True,
    help="Seconds after which a message is missing.",
)
@click.option("--with-private", is_flag=True, help="Also topics that not everyone may read.")
@click.option("--topics", type=_FILE, help="The original's topics.toml.  [default: the world's]")
@click.option("--to-topics", type=_FILE, help="The other's.  [default: the world's]")
@click.option(
    "--board-token-file", type=_FILE, help="An operator's token for the original's board."
)
@token_over_http_option
@click.option(
    "--admin-port",
    type=click.IntRange(1, 65535),
    help="Port for /metrics, on loopback. Without it there are none.",
)
@click.option(
    "--log-format",
    # The values of newsfabric.process.logs, which --help must not import.
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    envvar="NEWSFABRIC_LOG_FORMAT",
    show_envvar=True,
    help="Form of stderr: plain lines, or JSON as the fabric's processes log it.",
)
@click.option("--fail-on-loss", is_flag=True, help="Exit with 1 if a message is missing there.")
@click.option(
    "--fail-over-delay",
    type=click.FloatRange(min=0.0),
    metavar="MS",
    help="Exit with 1 if a class's p99 there is over it.",
)
@click.option("--report", type=_FILE, metavar="FILE", help="Write the JSON document there.")
@json_option
def mirror(
    from_path: Path,
    to_path: Path,
    share: float,
    reader_share: float | None,
    readers: int | None,
    max_readers: int,
    ramp: float,
    region: str | None,
    to_region: str | None,
    seconds: float | None,
    every: float,
    patience: float,
    with_private: bool,
    topics: Path | None,
    to_topics: Path | None,
    board_token_file: Path | None,
    token_over_http: bool,
    admin_port: int | None,
    log_format: Literal["text", "json"],
    fail_on_loss: bool,
    fail_over_delay: float | None,
    report: Path | None,
    as_json: bool,
) -> None:
    """Play a share of one fabric's messages and readers into another, and compare the two.

    Nothing that the other fabric does is felt by the original. Brokers' logins come from
    NEWSFABRIC_FROM_USERNAME and NEWSFABRIC_TO_USERNAME with _PASSWORD_FILE or _PASSWORD (`guest`
    otherwise). Exits with 0 whatever it saw, unless a --fail option says otherwise.
    """
    import os

    from newsfabric.tokens.bearer import check_private
    from operations.cli.mirror import run_command
    from operations.mirror.place import FROM_LOGIN, TO_LOGIN, check_apart, find_place
    from operations.mirror.run import MirrorOptions

    original = find_place(
        from_path, region=region, topics=topics, environ=os.environ, login=FROM_LOGIN
    )
    other = find_place(
        to_path, region=to_region, topics=to_topics, environ=os.environ, login=TO_LOGIN
    )
    check_apart(original, other)
    if board_token_file is not None and not token_over_http:
        check_private([original.board_url])
    options = MirrorOptions(
        share=share,
        reader_share=share if reader_share is None else reader_share,
        readers=readers,
        max_readers=max_readers,
        ramp=ramp,
        seconds=seconds,
        every=every,
        patience=patience,
        with_private=with_private,
        board_token_file=board_token_file,
    )
    failed = run_command(
        original,
        other,
        options,
        report=report,
        as_json=as_json,
        fail_on_loss=fail_on_loss,
        fail_over_delay=fail_over_delay,
        admin_port=admin_port,
        log_format=log_format,
    )
    if failed:
        raise SystemExit(1)
