"""The terminal that commands print on. Colour only on a terminal, and not with NO_COLOR."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook
from rich.segment import Segment

from newsfabric.safe_output import terminal_safe


def console(
    *,
    stderr: bool = False,
    file: IO[str] | None = None,
    width: int | None = None,
    quiet: bool = False,
    markup: bool = False,
) -> Console:
    """Make a console for the terminal, or for ``file``, without highlighting. Texts are parsed as
    ``markup`` only on request. Control sequences in texts are escaped."""
    made = Console(
        stderr=stderr,
        file=file,
        width=width,
        quiet=quiet,
        highlight=False,
        markup=markup,
        emoji=False,
    )
    made.push_render_hook(_Hook())
    return made


class _Hook(RenderHook):
    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Safe(each) for each in renderables]


class _Safe:
    """Renders ``inner`` with control sequences escaped, except those of rich itself."""

    def __init__(self, inner: ConsoleRenderable) -> None:
        self._inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self._inner, options):
            if segment.control:
                yield segment
            else:
                yield Segment(terminal_safe(segment.text), segment.style)
