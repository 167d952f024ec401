"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

DEFAULT_STATE: Final = ".world"

# Shown below a command's options, as it is written.
EXAMPLES: Final = "\b\nExamples:\n  "


def examples(*lines: str) -> str:
    """An epilog of examples, one a line."""
    return EXAMPLES + "\n  ".join(lines)


class _State(click.Path):
    """A folder, as it is known everywhere: absolute, no links in it."""

    def __init__(self) -> None:
        super().__init__(file_okay=False, path_type=Path)

    def convert(self, value: Any, param: Any, ctx: click.Context | None) -> Path:
        return Path(str(super().convert(value, param, ctx))).expanduser().resolve()


def state_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--state``, the world that a command is about."""
    return click.option(
        "--state",
        type=_State(),
        envvar="NEWSFABRIC_STATE",
        default=DEFAULT_STATE,
        show_default=True,
        show_envvar=True,
        help="The world's folder.",
    )(command)


def region_option(text: str) -> Callable[..., Any]:
    """``--region``; ``text`` says what for."""
    return click.option("--region", metavar="NAME", help=f"{text}  [default: the first]")


token_over_http_option = click.option(
    "--token-over-http",
    is_flag=True,
    help="Send the token over plain http to other machines, too: in a private network.",
)

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
