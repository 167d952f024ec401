"""``newsfabric rejected``."""

from __future__ import annotations

import json

import click

from newsfabric.cli.messages import rejection, rejection_line
from newsfabric.cli.wait_limit import GIVE_UP_AFTER, wait_limited
from newsfabric.management import Management
from newsfabric.settings import Credentials, Region
from newsfabric.topology import REJECTED


async def show_rejected(region: Region, *, limit: int, as_json: bool) -> None:
    """Print what lies in ``region``'s queue of rejected messages, and leave it there."""
    url = region.core[0].management_url
    async with (
        wait_limited(lambda: f"waiting for {url}", GIVE_UP_AFTER) as wait,
        Management(url, Credentials()) as management,
    ):
        wait.began()
        entries = await management.peek(REJECTED, limit)
    for entry in entries:
        found = rejection(entry)
        click.echo(json.dumps(found, ensure_ascii=False) if as_json else rejection_line(found))
    if not entries and not as_json:
        click.echo(f"nothing was rejected in {region.name}")
