"""The group of all commands: their names, their late loading, and their errors."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import sys
from importlib.metadata import entry_points
from typing import IO, Any, Final

import click

from newsfabric.errors import NewsfabricError
from newsfabric.process.logs import LineFormatter
from newsfabric.safe_output import echo, escape_what_has_no_place, let_go_of_output, terminal_safe
from newsfabric.spelling import meant
from operations.cli.options import with_state

# Name → place and line of --help, so that --help imports none of these.
_COMMANDS: Final = {
    "top": ("operations.cli.top_command:top", "Show the operations board in a terminal."),
    "publish": ("operations.cli.message_commands:publish", "Publish one message."),
    "tail": ("operations.cli.message_commands:tail", "Print messages as they arrive."),
    "replay": ("operations.cli.message_commands:replay", "Publish a recorded day."),
    "trace": ("operations.cli.message_commands:trace", "Show the way of one message."),
    "rejected": ("operations.cli.message_commands:rejected", "Show messages that were refused."),
    "revoke": ("operations.cli.revoke_command:revoke", "Lock a user out, everywhere."),
    "operator-token": (
        "operations.cli.operator_token_command:operator_token_command",
        "Print a token that opens the operations board.",
    ),
    "publishers": ("operations.cli.publishers:publishers", "Print users and rights of publishers."),
    "users": ("operations.cli.users:users", "Print users and rights of the fabric's services."),
    "topics": ("operations.cli.topics_command:topics", "Check a topics.toml, or what is in it."),
    "topology": (
        "operations.cli.topology_commands:topology",
        "Print all that a broker of the fabric holds.",
    ),
    "certs": ("operations.cli.certs:certs", "Make, renew and check certificates."),
    "schema": ("operations.cli.schema:schema", "Plan and apply the tables of a Cassandra store."),
    "logs": ("operations.cli.logs:logs", "Show what each router has routed, by number."),
    "mirror": (
        "operations.cli.mirror_command:mirror",
        "Play a share of one fabric's traffic into another, and compare.",
    ),
}
_GROUP: Final = "newsfabric.commands"
# The order in --help, also of entry points' commands: a world from start to end, then the rest.
_ORDER: Final = (
    *("up", "status", "top", "down", "doctor", "scale", "drain"),
    *("publish", "tail", "replay", "trace", "rejected", "token", "operator-token", "revoke"),
    *("topics", "publishers", "users", "topology", "targets", "certs", "schema", "logs"),
    *("mirror", "chaos"),
)


def _place(name: str) -> tuple[int, str]:
    return (_ORDER.index(name) if name in _ORDER else len(_ORDER), name)


class Failure(click.ClickException):
    """An error of ours, as the command line shows it."""

    def show(self, file: IO[Any] | None = None) -> None:
        """Write ``error: …`` to ``file``, or to stderr; click calls this, and exits with 1."""
        echo(f"error: {self.format_message()}", err=True, file=file)


class Commands(click.Group):
    """A group that loads commands late, and turns our errors into one line and exit code 1."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run as click does; an OSError is one line, too: a folder instead of a file, a full disk.

        A closed pipe ends the command silently: click does that.
        """
        escape_what_has_no_place()
        is_program = extra.get("standalone_mode", True)
        try:
            return super().main(*args, **extra)
        except OSError as exc:
            if not is_program:
                raise
            logging.getLogger(__name__).info("%s", exc, exc_info=True)
            with contextlib.suppress(OSError):
                Failure(_text_of(exc)).show()
            sys.exit(1)
        finally:
            if is_program:
                let_go_of_output()

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve as click does; an unknown name is a usage error that suggests similar names."""
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            meaning = meant(name, self.list_commands(ctx))
            ctx.fail(terminal_safe(f"No such command {name!r}{meaning}"))
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return our commands' names and those of entry points, in the order of --help."""
        names = {*_COMMANDS, *(point.name for point in entry_points(group=_GROUP))}
        return sorted(names, key=_place)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command; None if none has that name."""
        if cmd_name in _COMMANDS:
            module, _, name = _COMMANDS[cmd_name][0].partition(":")
            command = getattr(importlib.import_module(module), name)
        else:
            points = entry_points(group=_GROUP, name=cmd_name)
            command = next((point.load() for point in points), None)
        assert command is None or isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the section Commands of --help: one line for each."""
        names = self.list_commands(ctx)
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._help_of(name, ctx)) for name in names])

    def _help_of(self, name: str, ctx: click.Context) -> str:
        if name in _COMMANDS:
            return _COMMANDS[name][1]
        command = self.get_command(ctx, name)
        return "" if command is None else command.get_short_help_str()

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command: :class:`Failure` for an error of ours, exit code 130 after Ctrl-C."""
        try:
            return super().invoke(ctx)
        except NewsfabricError as exc:
            raise Failure(with_state(str(exc), ctx)) from exc
        except KeyboardInterrupt:
            ctx.exit(130)


def _text_of(error: OSError) -> str:
    what = error.strerror or str(error)
    return what if error.filename is None else f"{os.fsdecode(error.filename)}: {what}"


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="`newsfabric COMMAND --help` has examples.",
)
@click.version_option(package_name="newsfabric")
@click.option("-v", "--verbose", is_flag=True, help="Log what happens underneath.")
def cli(verbose: bool) -> None:
    """News from publishers to readers' browsers: a fabric of brokers, routers and gateways."""
    handler = logging.StreamHandler() if verbose else logging.NullHandler()
    handler.setFormatter(LineFormatter(logging.BASIC_FORMAT))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
