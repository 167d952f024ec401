"""The group of all commands: which there are, how they are loaded, how they fail."""

from __future__ import annotations

import importlib
import logging
from importlib.metadata import entry_points
from typing import IO, Any, Final

import click

from newsfabric.errors import NewsfabricError

# Name → where it is and what --help says of it, so that --help loads none of them.
_COMMANDS: Final = {
    "up": ("newsfabric.cli.world_commands:up", "Start a whole fabric on this machine."),
    "status": ("newsfabric.cli.world_commands:status", "Show what is running."),
    "top": ("newsfabric.cli.top_command:top", "Show the operations board in a terminal."),
    "down": ("newsfabric.cli.world_commands:down", "Stop it and leave nothing behind."),
    "scale": ("newsfabric.cli.growing_commands:scale", "Give a region more boxes, or fewer."),
    "drain": ("newsfabric.cli.growing_commands:drain", "Send a box's readers elsewhere, end it."),
    "publish": ("newsfabric.cli.message_commands:publish", "Publish one message."),
    "tail": ("newsfabric.cli.message_commands:tail", "Print messages as they arrive."),
    "replay": ("newsfabric.cli.message_commands:replay", "Publish a recorded day."),
    "trace": ("newsfabric.cli.message_commands:trace", "Show the way of one message."),
    "rejected": ("newsfabric.cli.message_commands:rejected", "Show messages that were refused."),
    "token": ("newsfabric.cli.token_commands:token", "Print a token to log in with here."),
    "revoke": ("newsfabric.cli.token_commands:revoke", "Lock a user out, everywhere."),
    "publishers": ("newsfabric.cli.publishers:publishers", "Print users and rights of publishers."),
    "users": ("newsfabric.cli.users:users", "Print users and rights of the fabric's services."),
    "topology": (
        "newsfabric.cli.topology_commands:topology",
        "Print all that a broker of the fabric holds.",
    ),
    "targets": ("newsfabric.cli.world_commands:targets", "Print where Prometheus finds a world."),
    "certs": ("newsfabric.cli.certs:certs", "Make, renew and check certificates."),
    "schema": ("newsfabric.cli.schema:schema", "Plan and apply the tables of a Cassandra store."),
    "logs": ("newsfabric.cli.logs:logs", "Show what each router has routed, by number."),
    "mirror": (
        "newsfabric.cli.mirror_command:mirror",
        "Play a share of one fabric's traffic into another, and compare.",
    ),
    "chaos": ("newsfabric.cli.chaos_commands:chaos", "Break parts of a world, heal them."),
}
_GROUP: Final = "newsfabric.commands"


class Failure(click.ClickException):
    """One of our errors, as the command line shows it."""

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"error: {self.format_message()}", err=True, file=file)


class Commands(click.Group):
    """Loads commands late, and turns our errors into one line and exit code 1."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*_COMMANDS, *sorted(point.name for point in entry_points(group=_GROUP))]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _COMMANDS:
            module, _, name = _COMMANDS[cmd_name][0].partition(":")
            command = getattr(importlib.import_module(module), name)
        else:
            points = entry_points(group=_GROUP, name=cmd_name)
            command = next((point.load() for point in points), None)
        assert command is None or isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, help_text) for name, (_, help_text) in _COMMANDS.items()]
        for name in self.list_commands(ctx)[len(_COMMANDS) :]:
            command = self.get_command(ctx, name)
            rows.append((name, command.get_short_help_str() if command else ""))
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except NewsfabricError as exc:
            raise Failure(str(exc)) from exc
        except KeyboardInterrupt:
            ctx.exit(130)


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
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
