"""Output of plans and states for a person (rich) and for a program (JSON). It contains no login.

Colours follow the terminal and NO_COLOR by themselves; the signs ``+ ~ -`` mean the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from newsfabric.topology import Broker
from shovels.apply import RegionState, Status, TriedAction
from shovels.plan import Action, Verb

_SIGN: Final[Mapping[Verb, str]] = {
    "create": "[green]+[/]",
    "update": "[yellow]~[/]",
    "delete": "[red]-[/]",
}
_STATE_COLOUR: Final = {"running": "green", "starting": "yellow", "terminated": "red"}


def show_actions(console: Console, actions: Sequence[Action]) -> None:
    """Print the diff: one line for each action, with the fields below for an update."""
    broker = None
    for action in sorted(actions, key=lambda action: action.broker):
        if action.broker != broker:
            broker = action.broker
            console.print(f"[bold]{broker}[/]")
        console.print(f"  {_SIGN[action.verb]} {action.kind} {escape(action.name)}", soft_wrap=True)
        if action.verb == "update":
            for change in action.changes:
                before, after = (escape(str(side)) for side in (change.before, change.after))
                line = f"      {change.field}: [red]{before}[/] → [green]{after}[/]"
                console.print(line, soft_wrap=True)


def show_unreachable(console: Console, unreachable: Mapping[Broker, str]) -> None:
    """Print the brokers that don't reply, and why."""
    for broker, error in sorted(unreachable.items()):
        console.print(f"[red]{broker} is away:[/] {escape(error)}", soft_wrap=True)


def summary(actions: Iterable[Action]) -> str:
    """Return ``No changes.`` or the number of each kind."""
    verbs = [action.verb for action in actions]
    if not verbs:
        return "No changes."
    counts = ((verb, verbs.count(verb)) for verb in ("create", "update", "delete"))
    return ", ".join(f"{count} to {verb}" for verb, count in counts if count) + "."


def show_failed(console: Console, failed: Iterable[TriedAction]) -> None:
    """Print the actions that failed, and why."""
    for each in failed:
        name = f"{each.action.broker}: {each.action.verb} {each.action.kind} {each.action.name}"
        console.print(f"[red]failed:[/] {escape(name)}: {escape(each.error)}", soft_wrap=True)


def done_summary(done: Sequence[TriedAction]) -> str:
    """Return ``No changes.`` or the number of changes made, and of failures."""
    if not done:
        return "No changes."
    failed = sum(1 for each in done if each.error)
    made = f"{len(done) - failed} changed"
    return f"{made}, {failed} failed." if failed else f"{made}."


def status_table(statuses: Iterable[Status]) -> Table:
    """Return the shovels with their states."""
    table = Table("cluster", "broker", "shovel", "state", "reason", box=None)
    for status in statuses:
        for shovel in status.shovels:
            colour = _STATE_COLOUR.get(shovel.state, "yellow")
            state = f"[{colour}]{escape(shovel.state)}[/]"
            where = str(status.broker.cluster), str(status.broker)
            table.add_row(*where, shovel.name, state, escape(shovel.reason))
    return table


def states_as_json(region_states: Iterable[RegionState]) -> dict[str, Any]:
    """Return the document of ``newsfabric shovels plan --json``."""
    found = list(region_states)
    return {
        "actions": [_action(action) for each in found for action in each.actions],
        "unreachable": _unreachable(found),
    }


def done_as_json(
    region_states: Iterable[RegionState], done: Iterable[TriedAction]
) -> dict[str, Any]:
    """Return the document of ``apply --json``: the actions tried, with ``error`` if one failed."""
    return {
        "actions": [_action(each.action) | {"error": each.error or None} for each in done],
        "unreachable": _unreachable(region_states),
    }


def statuses_as_json(found: Mapping[Broker, Status | str]) -> dict[str, Any]:
    """Return the document of ``newsfabric shovels status --json``."""
    return {
        "shovels": [
            {
                "region": broker.cluster.region,
                "role": broker.cluster.role,
                "broker": broker.name,
                "name": shovel.name,
                "state": shovel.state,
                "reason": shovel.reason or None,
            }
            for broker, status in found.items()
            if isinstance(status, Status)
            for shovel in status.shovels
        ],
        "unreachable": {
            str(broker): status for broker, status in found.items() if isinstance(status, str)
        },
    }


def _unreachable(region_states: Iterable[RegionState]) -> dict[str, str]:
    return {str(broker): why for each in region_states for broker, why in each.unreachable.items()}


def _action(action: Action) -> dict[str, Any]:
    return {
        "broker": str(action.broker),
        "verb": action.verb,
        "kind": action.kind,
        "name": action.name,
        "changes": [
            {"field": change.field, "before": change.before, "after": change.after}
            for change in action.changes
        ],
    }
