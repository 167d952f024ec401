"""``newsfabric chaos``: break parts of a running world, and heal them."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from newsfabric.cli.options import examples, json_option, state_option

if TYPE_CHECKING:
    from newsfabric.hosts.faults import HostFaults
    from newsfabric.world.faults import Faults


@click.group()
def chaos() -> None:
    """Break parts of a running world, heal them, and account for every message meanwhile.

    NAME is what `newsfabric status` shows; `oregon-retail-1-dataplane` is the second process of a
    gateway, `oregon-retail-1-box` a whole box. What is killed stays dead until it is healed.

    Of a fabric on machines (--state with a hosts.json, docs/fleet.md) a NAME is a unit, such as
    oregon-core-1/router@1, or a machine, whose plug is pulled; systemd starts units again.
    """


def _fault(act: Callable[..., Any]) -> click.Command:
    """A command that does something to NAMEs; its docstring is its help."""
    name = act.__name__
    for option in (
        click.option(
            "--after",
            type=click.FloatRange(min=0.0),
            default=0.0,
            metavar="SECONDS",
            help="Wait so long before.",
        ),
        json_option,
        state_option,
        click.argument("names", nargs=-1, metavar="NAME…"),
    ):
        act = option(act)
    target = "oregon-dublin-link" if name in ("cut", "slow") else "oregon-router-1"
    return chaos.command(name, epilog=examples(f"newsfabric chaos {name} {target}"))(act)


@_fault
def kill(names: Sequence[str], state: Path, as_json: bool, after: float) -> None:
    """Kill processes with SIGKILL."""
    _signal("kill", names, state, as_json=as_json, after=after)


@_fault
def stop(names: Sequence[str], state: Path, as_json: bool, after: float) -> None:
    """Stop processes where they are, with SIGSTOP: they live, and do nothing."""
    _signal("stop", names, state, as_json=as_json, after=after)


@_fault
def cont(names: Sequence[str], state: Path, as_json: bool, after: float) -> None:
    """Let stopped processes go on, with SIGCONT."""
    _signal("cont", names, state, as_json=as_json, after=after)


@_fault
def heal(names: Sequence[str], state: Path, as_json: bool, after: float) -> None:
    """Start what is dead, let go on what is stopped, mend links; without a NAME: everything."""
    from newsfabric.world.faults import Faults
    from newsfabric.world.parts import find_links, find_parts, links, parts
    from newsfabric.world.state import running_world

    if (machines := _on_hosts(state)) is not None:
        time.sleep(after)
        _show(machines.heal(names), as_json=as_json)
        return
    layout, _ = running_world(state)
    faults = Faults(state)
    wires = {*links(layout), *(region.name for region in layout.regions)} if layout.proxies else ()
    mended = find_links(layout, [name for name in names if name in wires])
    wanted = find_parts(layout, [name for name in names if name not in wires])
    time.sleep(after)
    if not names:
        wanted = faults.unwell(list(parts(layout).values()))
        mended = faults.ill_links()
    done = faults.heal(wanted)
    _show([*done, *(faults.heal_links(mended) if mended else ())], as_json=as_json)


@_fault
def cut(names: Sequence[str], state: Path, as_json: bool, after: float) -> None:
    """Cut links between regions, silently: nothing goes through and nobody is told.

    NAME is a link, such as oregon-dublin-link, or a region: all of its links.
    """
    if names and (machines := _on_hosts(state)) is not None:
        time.sleep(after)
        _show(machines.cut(names), as_json=as_json)
        return
    faults, wires = _wires(names, state)
    time.sleep(after)
    _show(faults.cut(wires), as_json=as_json)


@_fault
@click.option(
    "--latency", type=click.IntRange(0, 60_000), default=80, show_default=True, help="In ms."
)
@click.option(
    "--jitter", type=click.IntRange(0, 60_000), default=20, show_default=True, help="In ms."
)
def slow(
    names: Sequence[str], state: Path, as_json: bool, after: float, latency: int, jitter: int
) -> None:
    """Make links between regions slow, each way.

    NAME is a link, such as oregon-dublin-link, or a region: all of its links.
    """
    faults, wires = _wires(names, state)
    time.sleep(after)
    _show(faults.slow(wires, latency_ms=latency, jitter_ms=jitter), as_json=as_json)


def _wires(names: Sequence[str], state: Path) -> tuple[Faults, list[str]]:
    from newsfabric.world.faults import Faults
    from newsfabric.world.parts import find_links
    from newsfabric.world.state import running_world

    if not names:
        raise click.UsageError("name at least one link or region")
    layout, _ = running_world(state)
    faults = Faults(state)
    if not layout.proxies:
        # It says what is missing.
        faults.heal_links(())
    return faults, find_links(layout, names)


def _signal(verb: Any, names: Sequence[str], state: Path, *, as_json: bool, after: float) -> None:
    from newsfabric.world.faults import Faults
    from newsfabric.world.parts import find_parts
    from newsfabric.world.state import running_world

    if not names:
        raise click.UsageError("name at least one part; `newsfabric status` lists them")
    if (machines := _on_hosts(state)) is not None:
        time.sleep(after)
        _show(machines.signal(verb, names), as_json=as_json)
        return
    wanted = find_parts(running_world(state)[0], names)
    time.sleep(after)
    _show(Faults(state).apply(verb, wanted), as_json=as_json)


def _on_hosts(state: Path) -> HostFaults | None:
    from newsfabric.hosts.described import read_hosts
    from newsfabric.hosts.faults import HostFaults

    hosts = read_hosts(state)
    return None if hosts is None else HostFaults(hosts)


def _show(done: Sequence[Any], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(each) for each in done], indent=2))
        return
    for each in done:
        pid = "" if each.pid is None else f" (pid {each.pid})"
        click.echo(f"{each.name}: {each.done}{pid}")
    if not done:
        click.echo("everything is well")


@chaos.command(
    epilog=examples(
        "newsfabric up --detach --retail 2 && newsfabric chaos run",
        "newsfabric chaos run --minutes 2 --seed 7 --report /tmp/chaos",
        "newsfabric chaos run --outages",
    )
)
@state_option
@click.option(
    "--minutes", type=click.FloatRange(min=0.5), default=10.0, show_default=True, help="How long."
)
@click.option("--seed", default=1, show_default=True, help="The same seed, the same faults.")
@click.option(
    "--rate",
    type=click.FloatRange(min=1.0),
    default=40.0,
    show_default=True,
    help="Messages a second, over all regions.",
)
@click.option(
    "--readers", type=click.IntRange(min=1), default=240, show_default=True, help="How many."
)
@click.option(
    "--outages",
    is_flag=True,
    help="Instead of short faults some that last for minutes: routers that sleep beyond their lease"
    " or stay dead, and what begins while regions are cut from each other.",
)
@click.option(
    "--report",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("chaos-report"),
    show_default=True,
    help="Where to put report.md, report.json, plot.svg and readers.tsv.",
)
def run(
    state: Path,
    minutes: float,
    seed: int,
    rate: float,
    readers: int,
    outages: bool,
    report: Path,
) -> None:
    """Break a world on a seeded schedule, under load, and account for every message.

    Exits with 1 when a message whose publisher holds a receipt was lost to a reader or came twice.
    Bronze messages may be missing.
    """
    import asyncio

    from newsfabric.chaos.report import broken, verdict, write_report
    from newsfabric.chaos.run import ChaosOptions, run_chaos
    from newsfabric.cli.find_world import world_to_read

    def say(text: str) -> None:
        click.echo(text, err=True)

    layout = world_to_read(state, say)
    options = ChaosOptions(minutes=minutes, seed=seed, rate=rate, readers=readers, outages=outages)
    report.mkdir(parents=True, exist_ok=True)
    with (report / "readers.tsv").open("w", encoding="utf-8") as log:
        outcome = asyncio.run(run_chaos(layout, options, say, log=log))
    account = write_report(outcome, report)
    for text in (*outcome.faulty, *broken(outcome, account)):
        click.echo(text)
    click.echo(f"{verdict(account)}; the report is {report / 'report.md'}")
    unanswered = account.unreceipted or account.rejected or account.unheard
    if outcome.faulty or not account.kept or unanswered:
        raise SystemExit(1)
