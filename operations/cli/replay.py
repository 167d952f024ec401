"""``newsfabric replay``."""

from __future__ import annotations

import asyncio
import dataclasses
import secrets
import shlex
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from newsfabric.console import console
from newsfabric.errors import ConfigError, NewsfabricError
from newsfabric.publish import AsyncPublisher
from newsfabric.safe_output import echo
from newsfabric.topics import load_topics
from operations.cli.recording import RecordedLine, ReplayCounts, play, read_recording
from operations.cli.sending import publisher_by, waiting_for_receipts
from operations.cli.wait_limit import hint_about, wait_limited
from operations.worlds import WorldPlaces, world_to_publish_to


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The command's options.

    ``suffix`` makes message ids those of one replay, empty keeps them; after ``seconds`` without
    any receipt the replay gives up.
    """

    file: Path
    regions: Sequence[str]
    speed: float
    suffix: str
    seconds: float

    def again_from(self, number: int) -> str:
        """Return the command that resumes at ``number``; messages sent again are duplicates."""
        ids = f"--id-suffix {self.suffix}" if self.suffix else "--keep-ids"
        words = ["newsfabric", "replay", str(self.file), "--speed", f"{self.speed:g}"]
        words += [word for name in self.regions for word in ("--region", name)]
        return f"{shlex.join(words)} --start-at {number} {ids}"


def run_replay(
    file: Path,
    *,
    state: Path,
    regions: Sequence[str],
    speed: float,
    keep_ids: bool,
    id_suffix: str | None,
    start_at: int,
    seconds: float,
) -> None:
    """Replay ``file`` and print the counts; NewsfabricError if anything was rejected.

    NewsfabricError, too, if it gave up: with the command that resumes.
    """
    lines = read_recording(file)
    if start_at > len(lines):
        raise ConfigError(f"{file} has {len(lines)} messages: there is no number {start_at}")
    world = world_to_publish_to(state, lambda text: echo(text, err=True))
    ways = [*map(world.publishing_ways, regions)] or [world.publishing_ways(None)]
    suffix = "" if keep_ids else id_suffix or secrets.token_hex(4)
    replay = Replay(file=file, regions=regions, speed=speed, suffix=suffix, seconds=seconds)
    counts = ReplayCounts(begun_at=start_at)
    asyncio.run(_replay(replay, lines[start_at - 1 :], ways, world, counts))
    echo(f"{counts.routed} routed, {counts.rejected.total()} rejected")
    if counts.rejected:
        reasons = ", ".join(f"{count} {reason}" for reason, count in counts.rejected.most_common())
        raise NewsfabricError(f"rejected: {reasons}; see `newsfabric rejected`")


async def _replay(
    replay: Replay,
    lines: Sequence[RecordedLine],
    ways: Sequence[Mapping[str, Sequence[str]]],
    world: WorldPlaces,
    counts: ReplayCounts,
) -> None:
    terminal = console(stderr=True)
    publishers: list[AsyncPublisher] = []

    def waiting() -> str:
        every = (url for way in ways for urls in way.values() for url in urls)
        return waiting_for_receipts(dict.fromkeys(every), publishers)

    def hint() -> str:
        if not counts.answered:
            return hint_about(world)
        done = f"{counts.answered} of {len(lines)} are answered, all before {counts.open_at}"
        again = replay.again_from(counts.open_at)
        return f"{hint_about(world)}. {done}: go on with `{again}`"

    def print_line(text: str) -> None:
        terminal.print(text, soft_wrap=True)

    async with (
        wait_limited(waiting, replay.seconds, print_line=print_line, hint=hint) as wait,
        AsyncExitStack() as stack,
    ):
        for way in ways:
            opening = publisher_by(way, seconds=None)
            publishers.append(await stack.enter_async_context(await opening))
        with Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=terminal,
        ) as bars:
            bar = bars.add_task("replaying", total=len(lines))
            await play(
                lines,
                publishers,
                speed=replay.speed,
                suffix=replay.suffix,
                on_receipt=lambda counts: bars.update(bar, completed=counts.answered),
                wait=wait,
                topics=load_topics(world.topics),
                counts=counts,
            )
