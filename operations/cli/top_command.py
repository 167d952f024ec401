"""``newsfabric top``."""

from __future__ import annotations

from pathlib import Path

import click

from operations.cli.options import (
    examples,
    region_option,
    state_option,
    token_over_http_option,
)

# The values of operations.top.lines, which --help must not import.
VIEWS = ("boxes", "services", "shovels", "nodes", "topics", "publishers", "events")
SORTS = ("name", "readers", "rate", "delay", "age")


@click.command(
    epilog=examples(
        "newsfabric top                                  of the world here; ? shows the keys",
        "newsfabric top --topic news.breaking",
        "newsfabric top --once --view shovels --sort age",
        "newsfabric top --json | jq -c '.regions[].totals'",
        "newsfabric top --frontdesk https://oregon.example.com --token-file ~/operator.jwt",
    )
)
@state_option
@region_option("Whose frontdesk to ask first.")
@click.option(
    "--frontdesk",
    "frontdesks",
    multiple=True,
    metavar="URL",
    help="A frontdesk, where no world runs on this machine; repeat, the nearest first.",
)
@click.option(
    "--token-file",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="NEWSFABRIC_TOKEN_FILE",
    show_envvar=True,
    help="An operator's token; read again for each connection.",
)
@token_over_http_option
@click.option("--view", type=click.Choice(VIEWS), default=VIEWS[0], show_default=True)
@click.option("--sort", type=click.Choice(SORTS), default="readers", show_default=True)
@click.option("--reverse", is_flag=True, help="Sort the other way round.")
@click.option("--filter", "text", default="", metavar="TEXT", help="Only lines that have it.")
@click.option("--box", metavar="NAME", help="Follow this box alone.")
@click.option("--topic", metavar="NAME", help="Follow this topic alone.")
@click.option("--publisher", metavar="NAME", help="Follow this publisher alone.")
@click.option("--once", is_flag=True, help="Print it once, and all of it.")
@click.option("--json", "as_json", is_flag=True, help="Print boards as JSON, one a line.")
def top(
    state: Path,
    region: str | None,
    frontdesks: tuple[str, ...],
    token_file: Path | None,
    token_over_http: bool,
    view: str,
    sort: str,
    reverse: bool,
    text: str,
    box: str | None,
    topic: str | None,
    publisher: str | None,
    once: bool,
    as_json: bool,
) -> None:
    """Show the operations board in a terminal: regions, boxes, services, shovels, events.

    It asks one region's frontdesk, and the next one when that is silent. Where stdout is no
    terminal it prints the board once, and exits with 1 if the --box isn't on it.
    """
    from operations.cli.top import frontdesk_urls, run_top

    run_top(
        frontdesk_urls(state, region, frontdesks),
        token_file,
        over_http=token_over_http,
        view=view,
        sort=sort,
        reverse=reverse,
        text=text,
        followed={"boxes": box, "topics": topic, "publishers": publisher},
        once=once,
        as_json=as_json,
    )
