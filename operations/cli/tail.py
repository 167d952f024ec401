"""``newsfabric tail``."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Final, cast

from newsfabric.closing import ErrorCode
from newsfabric.errors import Disconnected, NewsfabricError, ReaderError, WorldError
from newsfabric.numbers import whole_number
from newsfabric.reader import Push, Transport, follow
from newsfabric.safe_output import echo
from operations.cli.messages import message_line, trace_hint
from operations.cli.wait_limit import GIVE_UP_AFTER, HINT, WaitLimit, hint_about, wait_limited
from operations.hosts.described import read_hosts
from operations.worlds import running_world, world_to_read

# A gateway has a bound of its own, and its error states it.
_MOST: Final = 1_000_000
# Texts appended to a gateway's error.
_HINTS: Final[Mapping[int, str]] = {
    ErrorCode.UNAUTHORIZED: "; tail isn't logged in: it reads public topics alone",
    ErrorCode.UNKNOWN_TOPIC: "; `newsfabric topics match TOPIC` shows similar topics",
}


def run_tail(
    topics: Sequence[str],
    *,
    state: Path,
    region: str | None,
    count: int | None,
    seconds: float | None,
    transport: str,
    rewind: str | None,
    as_json: bool,
) -> None:
    """Print messages until there were ``count``, or ``seconds`` have passed.

    NewsfabricError if there were fewer by then, or no gateway could be reached.
    """
    back: int | str | None = rewind
    with suppress(ValueError):
        back = rewind and whole_number(rewind, 1, _MOST)
    printer = _Printer(count, as_json=as_json)
    gateways = _Gateways(_endpoints_url(state, region), lambda: _hint(state, region))
    try:
        asyncio.run(_print(printer, gateways, topics, cast(Transport, transport), back, seconds))
    except TimeoutError as exc:
        if gateways.away:
            raise NewsfabricError(
                f"gave up {gateways} after {seconds:g} s: {gateways.hint()}"
            ) from exc
        if count is not None:
            raise NewsfabricError(
                f"only {printer.printed} of {count} messages of {', '.join(topics)} "
                f"came within {seconds:g} s"
            ) from exc
    except ReaderError as exc:
        raise NewsfabricError(f"{exc}{_HINTS.get(exc.code, '')}") from exc
    finally:
        printer.end()


def _endpoints_url(state: Path, region: str | None) -> str:
    fabric = read_hosts(state) or world_to_read(state, lambda text: echo(text, err=True))
    return f"{fabric.frontdesk_urls(region)[0]}/endpoints.json"


def _hint(state: Path, region: str | None) -> str:
    """Return the hint while no gateway accepts us. The world may have changed: read it again."""
    try:
        world = running_world(state)
    except WorldError:
        return HINT
    name = world.region(region).name
    if any(process.kind == "gateway" and process.region == name for process in world.processes):
        return hint_about(world)
    return f"{name} has no box: `newsfabric scale {name} 1` starts one"


def started_at() -> float:
    """Return the start time of this process, in seconds since the epoch."""
    # proc(5): the start is field 22; the command, in parentheses before, may hold anything.
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - age


async def _print(
    printer: _Printer,
    gateways: _Gateways,
    topics: Sequence[str],
    transport: Transport,
    rewind: int | str | None,
    seconds: float | None,
) -> None:
    async with (
        wait_limited(
            lambda: str(gateways),
            GIVE_UP_AFTER if seconds is None else None,
            hint=gateways.hint,
        ) as wait,
        asyncio.timeout(seconds),
        aclosing(
            follow(
                gateways.url,
                topics,
                transport=transport,
                rewind=rewind,
                # Not since the connection: "tail & publish" must print the message.
                since=started_at(),
                on_subscribed=gateways.subscribed,
                on_away=gateways.lost,
            )
        ) as pushes,
    ):
        gateways.begin(wait)
        async for push in pushes:
            if printer.is_last(push):
                return


class _Gateways:
    """The gateways of one region, and whether a connection to one of them is subscribed.

    ``hint`` returns advice while none is.
    """

    def __init__(self, url: str, hint: Callable[[], str]) -> None:
        self.url = url
        self.hint = hint
        self.away = True
        self._why = url
        self._wait: WaitLimit | None = None

    def __str__(self) -> str:
        return f"waiting for a gateway ({self._why})"

    def begin(self, wait: WaitLimit) -> None:
        """Report to ``wait`` from now on."""
        self._wait = wait
        wait.began()

    def subscribed(self, topic: str) -> None:
        """Note that a gateway has subscribed us to ``topic``."""
        # Scripts read this line, too: messages published after it are printed.
        echo(f"subscribed to {topic}", err=True)
        if self.away and self._wait is not None:
            self.away = False
            self._wait.ended()

    def lost(self, why: Disconnected) -> None:
        """Note that a connection was lost, or couldn't be made."""
        self._why = str(why)
        if not self.away and self._wait is not None:
            self.away = True
            self._wait.began()


class _Printer:
    def __init__(self, count: int | None, *, as_json: bool) -> None:
        self._count = count
        self._as_json = as_json
        self.printed = 0
        self._newest: str | None = None

    def is_last(self, push: Push) -> bool:
        """Print one message; return whether it was the last one wanted."""
        if self._as_json:
            echo(push.text_with_identity)
        else:
            echo(message_line(push.fields, push.identity))
        self.printed += 1
        self._newest = push.identity or self._newest
        return self.printed == self._count

    def end(self) -> None:
        """Print the command that shows the way of the last message printed, if there was one."""
        if self._newest is not None and not self._as_json:
            echo(trace_hint(self._newest), err=True)
