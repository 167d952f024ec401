"""The command line: ``python -m fleet`` with ``deploy`` on PYTHONPATH."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

import click

from fleet import access, boxes, platforms, playbooks
from fleet.errors import FleetError
from fleet.fleet import PORT_BASE, Fleet
from fleet.folders import CHECKOUT, Folders
from fleet.image import DEFAULT_SUITE, SUITES
from fleet.plan import SIZES
from fleet.precheck import missing
from newsfabric.errors import NewsfabricError

_EXAMPLES = """\b
Examples:
  python -m fleet up --size 6
  python -m fleet status --json
  python -m fleet ssh oregon-core-1 systemctl --failed
  python -m fleet cut oregon dublin
  python -m fleet pull-plug oregon-retail-2
  python -m fleet boot oregon-retail-2 --new
  python -m fleet boot oregon-core-2 --new --suite bookworm
  python -m fleet down
"""

_TO_TRY = """What to try (with PYTHONPATH=deploy .venv/bin/python for python):
  python -m fleet status                           machines, addresses, cuts
  python -m fleet ssh oregon-core-1                a shell on a machine
  python -m fleet token                            an operator's, to log in with at a board
  python -m fleet api-key --help                   publish a message
  .venv/bin/newsfabric status --state .fleet       every unit of every machine
  python -m fleet pull-plug oregon-retail-1        a power cut; `boot` brings it back
  python -m fleet cut oregon dublin                no packet passes; `heal` takes it back
  make fleet-down                                  end it; leaves nothing"""

# Of `boxes`: the fleet, a region, and the function called with the machines booted there.
_Place: TypeAlias = tuple[Fleet, str, Callable[[list[str]], object] | None]

_SIZE = click.Choice([str(size) for size in SIZES])
_port_base = click.option(
    "--port-base",
    type=click.IntRange(1024, 65_000),
    help=f"The boards are at this port of 127.0.0.1 and the next ones [default: {PORT_BASE}]",
)

_suite = click.option(
    "--suite",
    type=click.Choice(SUITES),
    envvar="NEWSFABRIC_FLEET_SUITE",
    show_envvar=True,
    help=f"Debian's, for disks that are made [default: the fleet's, at first {DEFAULT_SUITE}]",
)

# Options after the first word are another program's, -h among them.
_WORDS_OF_ANOTHER: Final = {"ignore_unknown_options": True, "allow_interspersed_args": False}


@click.group(epilog=_EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    default=CHECKOUT / ".fleet",
    show_default=".fleet",
    envvar=playbooks.FOLDER_VARIABLE,
    show_envvar=True,
    help="Folder of image, disks and keys. Each folder is a fleet of its own.",
)
@click.pass_context
def cli(context: click.Context, folder: Path) -> None:
    """Real Debian machines on this one: two regions and a proxy, booted by systemd-nspawn."""
    # Files of machines' disks are made here, and every user of a machine reads its /etc.
    os.umask(0o022)
    context.obj = Fleet(Folders.at(folder), _print_line)


@cli.command()
@click.pass_obj
def check(fleet: Fleet) -> None:
    """Check this machine for a fleet, and print the missing parts."""
    _check()
    _print_line("this machine can run a fleet")


@cli.command()
@_suite
@click.pass_obj
def image(fleet: Fleet, suite: str | None) -> None:
    """Make the image of machines, if its sources have changed."""
    _check()
    fleet.build_image(suite)


@cli.command(name="platforms")
@click.argument("suites", nargs=-1, type=click.Choice(SUITES))
@click.option(
    "--report",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("platforms-report"),
    show_default=True,
    help="Where to put report.md, report.json, each step's log, and what chaos reported.",
)
@click.option("--tests", default="", help="More options for pytest, as one word.")
@click.pass_obj
def play_platforms(fleet: Fleet, suites: tuple[str, ...], report: Path, tests: str) -> None:
    """Play the steps of a stranger on a fresh Debian of each suite (all, if none is named).

    Set-up as the README says, its commands, the tests marked `broker`, two minutes of chaos. Forty
    minutes for each suite on two cores. Ports are this machine's: no world may be up here.

    \b
    Examples:
      python -m fleet platforms
      python -m fleet platforms trixie --tests '-k shovels'
    """
    _check()
    if not platforms.play(fleet.folders, suites or SUITES, report.resolve(), tests, _print_line):
        raise FleetError(f"not everything worked; see {report}")


@cli.command()
@click.option("--size", type=_SIZE, default="15", show_default=True)
@_suite
@_port_base
@click.pass_obj
def up(fleet: Fleet, size: str, suite: str | None, port_base: int | None) -> None:
    """Boot the machines that aren't up, and wait until each has booted."""
    _check()
    fleet.up(int(size), suite=suite, port_base=port_base)


@cli.command()
@click.option("--size", type=_SIZE, default="15", show_default=True)
@_suite
@_port_base
@click.pass_obj
def deploy(fleet: Fleet, size: str, suite: str | None, port_base: int | None) -> None:
    """Boot the machines, make a fabric of them (site.yml) and ask every part of it.

    \b
    Example:
      python -m fleet deploy --size 6
    """
    _check()
    fleet.up(int(size), suite=suite, port_base=port_base)
    playbooks.play(fleet.folders, playbooks.DEPLOYMENT)
    for region, board in fleet.boards().items():
        click.echo(f"board of {region}: {board}")
    click.echo(_TO_TRY)


@cli.command(name="play", context_settings=_WORDS_OF_ANOTHER)
@click.argument("playbook")
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def play_one(fleet: Fleet, playbook: str, options: tuple[str, ...]) -> None:
    """Run one of deploy/ansible/playbooks on the fleet; OPTIONS are Ansible's.

    \b
    Example:
      python -m fleet play verify.yml --limit oregon
    """
    _check()
    playbooks.play(fleet.folders, playbook, options)


@cli.command()
@click.option("--image", "image_too", is_flag=True, help="Delete the image too.")
@click.pass_obj
def down(fleet: Fleet, image_too: bool) -> None:
    """End every machine and delete its disk. Leaves no process, mount, network or key."""
    _check()
    fleet.down(image_too=image_too)


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_obj
def status(fleet: Fleet, as_json: bool) -> None:
    """Print the machines, their addresses, and the cuts."""
    found = fleet.status()
    if as_json:
        click.echo(json.dumps(found, indent=1))
        return
    for one in found["machines"]:
        suite = one["suite"] or ""
        click.echo(
            f"{one['name']:20} {one['address']:12} {one['zone']:10} {suite:10} {one['state']}"
        )
    for region, board in found["boards"].items():
        click.echo(f"board of {region}: {board}")
    for one, other in found["cuts"]:
        click.echo(f"cut: {one} | {other}")
    if not found["machines"]:
        click.echo("no fleet is up: `make fleet` starts one")


@cli.command(context_settings=_WORDS_OF_ANOTHER)
@click.argument("name")
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def ssh(fleet: Fleet, name: str, words: tuple[str, ...]) -> None:
    """Run WORDS on the machine NAME, or open a shell there."""
    if not fleet.folders.ssh_config.exists():
        raise click.ClickException("no fleet is up: `make fleet` starts one")
    command = access.ssh(fleet.folders, name, *words)
    os.execvp(command[0], command)


@cli.command(context_settings=_WORDS_OF_ANOTHER)
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_obj
def run(fleet: Fleet, words: tuple[str, ...]) -> None:
    """Run WORDS of this machine within the fleet's network, where every machine is reached.

    \b
    Example:
      python -m fleet run curl http://10.77.1.21:8080/board
      python -m fleet run .venv/bin/newsfabric tail news.breaking
    """
    if not fleet.network.exists:
        raise click.ClickException("no fleet is up: `make fleet` starts one")
    command = fleet.network.within(*words)
    os.execvpe(command[0], command, os.environ | {"NEWSFABRIC_STATE": str(fleet.folders.top)})


@cli.command()
@click.option("--user", default="operator", show_default=True, help="User in the token.")
@click.option("--hours", default=12, show_default=True, help="Lifetime of the token in hours.")
@click.pass_obj
def token(fleet: Fleet, user: str, hours: int) -> None:
    """Print an operator's token, which opens the boards.

    \b
    Example:
      curl --header @- http://127.0.0.1:18080/board.json \\
        <<<"Authorization: Bearer $(python -m fleet token)"
    """
    click.echo(access.operator_token(fleet.folders, user, hours * 3600.0))


@cli.command(name="api-key")
@click.pass_obj
def api_key(fleet: Fleet) -> None:
    """Print the key with which a message is published over HTTP.

    \b
    Example:
      curl http://127.0.0.1:18080/publish --header @- -H 'Content-Type: application/json' \\
        -d '{"topic": "news.breaking", "body": {"headline": "It works"}}' \\
        <<<"X-API-Key: $(python -m fleet api-key)"
    """
    click.echo(access.api_key(fleet.folders))


@cli.command(name="amqp-urls")
@click.pass_obj
def amqp_urls(fleet: Fleet) -> None:
    """Print where publisher `wire` publishes over AMQP, with its login: a line for each region.

    \b
    Example, with the library for Python:
      URLS=$(python -m fleet amqp-urls) python -m fleet run python -c '
      import os
      from newsfabric.publish import Publisher
      with Publisher(os.environ["URLS"].split(), app_id="wire") as publisher:
          print(publisher.publish("news.breaking", {"headline": "It works"}))'
    """
    for urls in access.amqp_urls(fleet.folders, fleet.members()).values():
        click.echo(",".join(urls))


@cli.command(name="new-secret")
@click.pass_obj
def new_secret(fleet: Fleet) -> None:
    """Make another secret; `play rotate-secrets.yml` puts it in the place of the present one.

    \b
    Example:
      python -m fleet new-secret && python -m fleet play rotate-secrets.yml
    """
    access.renew_secret(fleet.folders)


@cli.command(name="forget-secret")
@click.pass_obj
def forget_secret(fleet: Fleet) -> None:
    """Forget the secret before the present one; `play site.yml` then takes away its logins."""
    access.forget_secret(fleet.folders)


@cli.command()
@click.pass_obj
def certs(fleet: Fleet) -> None:
    """Make an authority and each machine's certificate; the first site.yml then has TLS.

    A box that is booted later needs its own: give it again.

    \b
    Example:
      python -m fleet up --size 6 && python -m fleet certs && python -m fleet play site.yml
    """
    if not fleet.members():
        raise click.ClickException("no fleet is up: `make fleet` starts one")
    access.issue_certificates(fleet.folders, fleet.members())


@cli.command()
@click.argument("one")
@click.argument("other")
@click.pass_obj
def cut(fleet: Fleet, one: str, other: str) -> None:
    """Let nothing pass between two regions; connections hang, as on a broken line."""
    fleet.network.cut(one, other)


@cli.command()
@click.argument("one")
@click.argument("other")
@click.pass_obj
def heal(fleet: Fleet, one: str, other: str) -> None:
    """Let packets pass again between two regions that were cut."""
    fleet.network.heal(one, other)


@cli.command(name="pull-plug")
@click.argument("names", nargs=-1, required=True)
@click.pass_obj
def pull_plug(fleet: Fleet, names: tuple[str, ...]) -> None:
    """End machines at once, as a power cut does. Their disks stay."""
    fleet.pull_plug(names)


@cli.command()
@click.argument("names", nargs=-1, required=True)
@click.option("--new", is_flag=True, help="On a new, empty disk.")
@_suite
@click.pass_obj
def boot(fleet: Fleet, names: tuple[str, ...], new: bool, suite: str | None) -> None:
    """Boot machines that are off, or further ones (oregon-retail-3)."""
    _check()
    fleet.boot(names, new=new, suite=suite)


@cli.command()
@click.argument("names", nargs=-1, required=True)
@click.option("--forget", is_flag=True, help="Remove them from the fleet, and delete their disks.")
@click.pass_obj
def off(fleet: Fleet, names: tuple[str, ...], forget: bool) -> None:
    """Power machines off in good order."""
    fleet.power_off(names, forget=forget)


@cli.group(name="boxes")
@click.argument("region")
@click.option(
    "--scale-out",
    is_flag=True,
    help="Have scale-out-retail.yml make boxes of the machines that `want` boots.",
)
@click.option("--extra-vars", multiple=True, metavar="VARS", help="For that playbook.")
@click.pass_context
def boxes_group(
    context: click.Context, region: str, scale_out: bool, extra_vars: tuple[str, ...]
) -> None:
    """Boot and end a region's retail boxes, as the scaler's driver `command` asks for it.

    \b
    Example, for the option --command of a scaler on this machine:
      python -m fleet boxes --scale-out oregon
    """
    options = [word for variables in extra_vars for word in ("--extra-vars", variables)]
    fleet: Fleet = context.obj
    then = partial(playbooks.scale_out, fleet.folders, options=options) if scale_out else None
    context.obj = (fleet, region, then)


@boxes_group.command(name="boxes")
@click.pass_obj
def boxes_listed(place: _Place) -> None:
    """Print a line of JSON for each box that runs."""
    fleet, region, _ = place
    for line in boxes.listed(fleet, region):
        click.echo(line)


@boxes_group.command()
@click.argument("count", type=click.IntRange(min=0))
@click.pass_obj
def want(place: _Place, count: int) -> None:
    """Make there be COUNT boxes; exit code 3 if there may be no more."""
    fleet, region, then = place
    try:
        boxes.want(fleet, region, count, then)
    except boxes.TooManyError as exc:
        click.echo(f"error: {exc}", err=True)
        sys.exit(boxes.EXIT_LIMIT)


@boxes_group.command()
@click.argument("names", nargs=-1, required=True)
@click.pass_obj
def end(place: _Place, names: tuple[str, ...]) -> None:
    """Power these boxes off; their disks are deleted."""
    fleet, region, _ = place
    boxes.end(fleet, region, names)


@cli.command()
@click.option("--list", "listed", is_flag=True, hidden=True)
@click.option("--host", hidden=True)
@click.pass_obj
def inventory(fleet: Fleet, listed: bool, host: str | None) -> None:
    """Print the machines as Ansible's inventory scripts do (deploy/ansible/inventories/fleet)."""
    click.echo(json.dumps(access.inventory(fleet.folders, fleet.members()), indent=1))


def _print_line(text: str) -> None:
    click.echo(f"fleet: {text}", err=True)


def _check() -> None:
    if found := missing():
        raise FleetError("\n".join(found))


@contextlib.contextmanager
def _errors_printed() -> Iterator[None]:
    try:
        yield
    except (FleetError, NewsfabricError) as exc:
        click.echo(f"error: {exc}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    with _errors_printed():
        cli(prog_name="python -m fleet")
