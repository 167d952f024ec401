"""``newsfabric replay``."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from newsfabric.cli.console import console
from newsfabric.cli.recording import Line, Tally, play, read_recording
from newsfabric.cli.sending import APP_ID, waiting_for_receipts
from newsfabric.cli.wait_limit import wait_limited
from newsfabric.errors import NewsfabricError
from newsfabric.publish import AsyncPublisher
from newsfabric.safe_output import echo
from newsfabric.settings import Region
from newsfabric.topics import TopicTable, load_topics
from newsfabric.worlds import world_to_publish_to


def run_replay(
    file: Path,
    *,
    state: Path,
    regions: Sequence[str],
    speed: float,
    keep_ids: bool,
    seconds: float,
) -> None:
    """Replay ``file`` and say what became of it; NewsfabricError if anything was rejected."""
    lines = read_recording(file)
    world = world_to_publish_to(state, lambda text: echo(text, err=True))
    chosen = [world.region(name) for name in regions] or [world.region(None)]
    suffix = "" if keep_ids else secrets.token_hex(4)
    topics = load_topics(world.topics)
    tally = asyncio.run(_replay(lines, chosen, speed, suffix, seconds, topics))
    echo(f"{tally.routed} routed, {tally.rejected.total()} rejected")
    if tally.rejected:
        reasons = ", ".join(f"{count} {reason}" for reason, count in tally.rejected.most_common())
        raise NewsfabricError(f"rejected: {reasons}; see `newsfabric rejected`")


async def _replay(
    lines: Sequence[Line],
    regions: Sequence[Region],
    speed: float,
    suffix: str,
    seconds: float,
    topics: TopicTable,
) -> Tally:
    terminal = console(stderr=True)
    publishers: list[AsyncPublisher] = []
    brokers = [[node.amqp_url for node in region.client] for region in regions]

    def waiting() -> str:
        return waiting_for_receipts((url for urls in brokers for url in urls), publishers)

    def say(text: str) -> None:
        terminal.print(text, soft_wrap=True)

    async with wait_limited(waiting, seconds, say=say) as wait, AsyncExitStack() as stack:
        for urls in brokers:
            opening = AsyncPublisher.open([",".join(urls)], app_id=APP_ID, timeout=None)
            publishers.append(await stack.enter_async_context(await opening))
        with Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=terminal,
        ) as bars:
            bar = bars.add_task("replaying", total=len(lines))
            return await play(
                lines,
                publishers,
                speed=speed,
                suffix=suffix,
                on_receipt=lambda tally: bars.update(bar, completed=tally.answered),
                wait=wait,
                topics=topics,
            )
