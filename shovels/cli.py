"""``newsfabric shovels plan | apply | status``: for a person or a playbook, once."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from rich.console import Console

from newsfabric.console import console as terminal
from newsfabric.errors import NewsfabricError
from newsfabric.safe_output import echo, terminal_safe
from newsfabric.settings import (
    SHOVEL_LOGIN,
    Credentials,
    Fabric,
    credentials_from,
    load_fabric,
    login_variables,
    shovel_credentials_from,
)
from newsfabric.topics import TopicTable, load_topics
from newsfabric.topology import Broker, KeptShovel, region_links
from newsfabric.topology.roles import user_name
from shovels import show
from shovels.apply import (
    ManagementClients,
    RegionState,
    Status,
    TriedAction,
    carry_out,
    read_state,
    states,
)

# A move takes two rounds (shovels.places); a third isn't expected.
MAX_ROUNDS: Final = 3

# Seconds for one reply. If a busy broker is late, a keeper retries; a command doesn't.
TIMEOUT: Final = 15.0

EXIT_CHANGES: Final = 2

_Command = TypeVar("_Command", bound=Callable[..., Any])

_PLAN_EXAMPLES: Final = """
\b
Examples:
  newsfabric shovels plan
  newsfabric shovels plan --region oregon --json
  newsfabric shovels plan --fabric fabric.json --detailed-exitcode
  newsfabric shovels plan --preferred    no broker stands in for another
"""


@click.group()
def shovels() -> None:
    """Plan, apply and show shovels.

    They carry messages between brokers, each with the queues and bindings that it needs.
    """


def _options(command: _Command) -> _Command:
    """Add the options of all three commands."""
    path = click.Path(dir_okay=False, path_type=Path)
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        click.option("--region", "names", multiple=True, help="Only this region; repeatable."),
        click.option(
            "--topics",
            type=path,
            envvar="NEWSFABRIC_TOPICS",
            help="topics.toml.  [default: STATE/topics.toml, else ./topics.toml]",
        ),
        click.option(
            "--fabric",
            type=path,
            envvar="NEWSFABRIC_FABRIC",
            help="fabric.json.  [default: STATE/fabric.json]",
        ),
        click.option(
            "--state",
            type=click.Path(file_okay=False, path_type=Path),
            default=Path(".world"),
            show_default=True,
            help="Folder of a running world.",
        ),
    ):
        command = option(command)
    return command


@shovels.command(epilog=_PLAN_EXAMPLES)
@_options
@click.option("--detailed-exitcode", is_flag=True, help="Exit 2 when there are changes.")
@click.option(
    "--preferred",
    is_flag=True,
    help="Exit 2 when a shovel stands in somewhere, or isn't where it is while all brokers run.",
)
def plan(
    state: Path,
    fabric: Path | None,
    topics: Path | None,
    names: tuple[str, ...],
    as_json: bool,
    detailed_exitcode: bool,
    preferred: bool,
) -> None:
    """Show the changes that `apply` would make. Changes nothing.

    Exits 1 when a broker is away, since its state is unknown.
    """
    job = _job(state, fabric, topics, names)
    region_states = asyncio.run(_read_all(job))
    actions = [action for each in region_states for action in each.actions]
    if as_json:
        _print_json(show.states_as_json(region_states))
    else:
        console = terminal(markup=True)
        show.show_actions(console, actions)
        show.show_unreachable(console, _unreachable(region_states))
        console.print(show.summary(actions))
    if _unreachable(region_states):
        sys.exit(1)
    elsewhere = _elsewhere(job, region_states) if preferred else []
    for link in elsewhere:
        echo(f"{link.id} isn't at its preferred place", err=True)
    if (actions and detailed_exitcode) or elsewhere:
        sys.exit(EXIT_CHANGES)


@shovels.command(
    epilog="\b\nExamples:\n  newsfabric shovels apply\n  newsfabric shovels apply --region dublin"
)
@_options
def apply(
    state: Path,
    fabric: Path | None,
    topics: Path | None,
    names: tuple[str, ...],
    as_json: bool,
) -> None:
    """Bring the brokers into the state of the plan. Applying again changes nothing.

    Exits 1 when a broker is away or a change failed; everything else is done all the same.
    """
    job = _job(state, fabric, topics, names)
    console = terminal(quiet=as_json, markup=True)
    region_states, done = asyncio.run(_apply_all(job, console))
    failed = [each for each in done if each.error]
    if as_json:
        _print_json(show.done_as_json(region_states, done))
    else:
        show.show_unreachable(console, _unreachable(region_states))
        show.show_failed(console, failed)
        console.print(show.done_summary(done))
    if failed or _unreachable(region_states):
        sys.exit(1)


@shovels.command(
    epilog="\b\nExamples:\n  newsfabric shovels status\n  newsfabric shovels status --json"
)
@_options
def status(
    state: Path,
    fabric: Path | None,
    topics: Path | None,
    names: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show the state that each shovel reports.

    Exits 1 when a broker is away or a shovel doesn't run. A shovel that runs may still move
    nothing: `newsfabric status` and the keeper's /canaries show the age of its last canary.
    """
    found = asyncio.run(_states(_job(state, fabric, topics, names)))
    statuses = [each for each in found.values() if isinstance(each, Status)]
    away = {broker: each for broker, each in found.items() if isinstance(each, str)}
    if as_json:
        _print_json(show.statuses_as_json(found))
    else:
        console = terminal(markup=True)
        console.print(show.status_table(statuses))
        show.show_unreachable(console, away)
    idle = [shovel for each in statuses for shovel in each.shovels if shovel.state != "running"]
    if away or idle:
        sys.exit(1)


class _Job:
    """The work of a command: topics, and the chosen regions, each with its fabric.

    ``logins`` are those of a world's shovels, by region.
    """

    def __init__(
        self, fabrics: Mapping[str, Fabric], topics: TopicTable, logins: Mapping[str, Credentials]
    ) -> None:
        self._logins = logins
        self.fabrics = fabrics
        self.topics = topics

    @property
    def regions(self) -> Sequence[str]:
        return list(self.fabrics)

    def brokers(self, region: str) -> ManagementClients:
        shovels = self._logins.get(region) or shovel_credentials_from(os.environ)
        return ManagementClients(
            self.fabrics[region], credentials_from(os.environ), shovels=shovels, timeout=TIMEOUT
        )


def _job(
    state: Path, fabric_file: Path | None, topics_file: Path | None, names: tuple[str, ...]
) -> _Job:
    try:
        fabric = load_fabric(fabric_file or state / "fabric.json")
        chosen = list(dict.fromkeys(names)) or [region.name for region in fabric.regions]
        fabrics = {
            fabric.region(name).name: fabric if fabric_file else _seen_from(name, state, fabric)
            for name in chosen
        }
        own = state / "topics.toml"
        topics = load_topics(topics_file or (own if own.exists() else Path("topics.toml")))
        # A missing password file must be reported now, not in the middle of the work.
        credentials_from(os.environ)
        shovel_credentials_from(os.environ)
        logins = {} if fabric_file else _logins(state, chosen)
    except NewsfabricError as exc:
        raise click.ClickException(terminal_safe(str(exc))) from exc
    return _Job(fabrics, topics, logins)


def _seen_from(region: str, state: Path, fabric: Fabric) -> Fabric:
    """Return the fabric as ``region`` reaches it: in a world perhaps through its own proxies."""
    own = state / "fabric" / f"{region}.json"
    return load_fabric(own) if own.exists() else fabric


def _logins(state: Path, regions: Sequence[str]) -> dict[str, Credentials]:
    users = state / "users"
    names = {region: user_name("shovel", region) for region in regions}
    return {
        region: shovel_credentials_from(login_variables(name, users / name, SHOVEL_LOGIN))
        for region, name in names.items()
        if (users / name).exists()
    }


async def _read_all(job: _Job) -> list[RegionState]:
    region_states = []
    for region in job.regions:
        async with job.brokers(region) as brokers:
            region_states.append(await read_state(brokers, region, job.topics))
    return region_states


async def _apply_all(job: _Job, console: Console) -> tuple[list[RegionState], list[TriedAction]]:
    region_states: list[RegionState] = []
    done: list[TriedAction] = []
    for region in job.regions:
        async with job.brokers(region) as brokers:
            for _ in range(MAX_ROUNDS):
                found = await read_state(brokers, region, job.topics)
                region_states.append(found)
                show.show_actions(console, found.actions)
                done += await carry_out(brokers, found)
                if not found.plan.moving:
                    break
    return region_states, done


async def _states(job: _Job) -> dict[Broker, Status | str]:
    found: dict[Broker, Status | str] = {}
    for region in job.regions:
        async with job.brokers(region) as brokers:
            own = [broker for broker in brokers.apis if broker.cluster.region == region]
            found |= await states(brokers, own)
    return found


def _elsewhere(job: _Job, region_states: Sequence[RegionState]) -> list[KeptShovel]:
    """Return the links that aren't only at their preferred place."""
    return [
        link
        for region, found in zip(job.regions, region_states, strict=True)
        for link in region_links(job.fabrics[region], region, job.topics)
        if list(found.plan.present[link.id]) != [link.preferred]
    ]


def _unreachable(region_states: Sequence[RegionState]) -> dict[Broker, str]:
    return {broker: why for each in region_states for broker, why in each.unreachable.items()}


def _print_json(value: Any) -> None:
    echo(json.dumps(value, indent=2))
