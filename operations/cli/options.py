"""Options that several commands have."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

DEFAULT_STATE: Final = ".world"
# A key of the form that click asks for in a context's ``meta``.
_STATE: Final = "newsfabric.state"
# A command that an error's text suggests; one with --state already needs no other.
_HINT: Final = re.compile(r"`(newsfabric (?:(?!--state)[^`])+)`")

# Printed below a command's options, unwrapped.
EXAMPLES: Final = "\b\nExamples:\n  "


def examples(*lines: str) -> str:
    """Return an epilog of examples, one a line."""
    return EXAMPLES + "\n  ".join(lines)


class _State(click.Path):
    """The type of a folder that is made absolute, with its links resolved."""

    def __init__(self) -> None:
        super().__init__(file_okay=False, path_type=Path)

    def convert(self, value: Any, param: Any, ctx: click.Context | None) -> Path:
        return Path(str(super().convert(value, param, ctx))).expanduser().resolve()


def _remember(context: click.Context, option: click.Parameter, value: Path) -> Path:
    if context.get_parameter_source(str(option.name)) is ParameterSource.COMMANDLINE:
        context.find_root().meta[_STATE] = value
    return value


def with_state(text: str, context: click.Context) -> str:
    """Return ``text``, with the ``--state`` of this command added to each command that takes it.

    Example: `newsfabric down` is `newsfabric down --state /tmp/w2` after `--state /tmp/w2`.
    """
    root = context.find_root()
    state = root.meta.get(_STATE)
    if state is None:
        return text
    given = f" --state {shlex.quote(_from_here(state))}"

    def written(hint: re.Match[str]) -> str:
        return f"`{hint[1]}{given}`" if _has_state(root, hint[1].split()[1:]) else hint[0]

    return _HINT.sub(written, text)


def line_to_copy(command: str) -> str:
    """Return ``command`` for a person to copy, with the ``--state`` of the running command."""
    context = click.get_current_context(silent=True)
    return command if context is None else with_state(f"`{command}`", context).strip("`")


def _has_state(context: click.Context, words: Sequence[str]) -> bool:
    command: click.Command | None = context.command
    for word in words:
        if isinstance(command, click.Group):
            command = command.get_command(context, word)
    return command is not None and any(each.name == "state" for each in command.params)


def _from_here(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def state_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--state``, the folder of the world that a command is about."""
    return click.option(
        "--state",
        type=_State(),
        envvar="NEWSFABRIC_STATE",
        default=DEFAULT_STATE,
        callback=_remember,
        show_default=True,
        show_envvar=True,
        help="The world's folder.",
    )(command)


def region_option(text: str) -> Callable[..., Any]:
    """Add ``--region`` with the help ``text``."""
    return click.option("--region", metavar="NAME", help=f"{text}  [default: the first]")


token_over_http_option = click.option(
    "--token-over-http",
    is_flag=True,
    help="Send the token over plain http to other machines, too: in a private network.",
)

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
