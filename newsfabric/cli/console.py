"""The terminal that commands print on. Colour only where there is one (NO_COLOR)."""

from __future__ import annotations

from typing import IO

from rich.console import Console


def console(
    *, stderr: bool = False, file: IO[str] | None = None, width: int | None = None
) -> Console:
    """The terminal, or ``file``. Nothing is coloured for its looks alone, and no text is taken
    for markup."""
    return Console(
        stderr=stderr, file=file, width=width, highlight=False, markup=False, emoji=False
    )
