"""``newsfabric chaos``: break parts of a running world, and heal them."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from newsfabric.errors import WorldError
from newsfabric.safe_output import echo
from operations.cli.options import examples, json_option, state_option

if TYPE_CHECKING:
    from localfabric.host_faults import HostFaults
    from localfabric.world.faults import Faults


# The targets in the examples of each verb's help.
_PARTS: Final = ("oregon-router-1", "oregon")
_TARGETS: Final = {
    "cut": ("oregon-dublin-link", "oregon-dublin-store"),
    "slow": ("oregon-dublin-link",),
    "lose": ("oregon-core-1/router.1", "oregon-retail-1/gateway"),
}


@click.group(short_help="Break parts of a world, heal them.")
def chaos() -> None:
    """Break parts of a running world, heal them, and account for every message meanwhile.

    NAME is a name of `newsfabric status`; `oregon-retail-1-dataplane` is the second process of a
    gateway, `oregon-retail-1-box` a whole box, `oregon` a whole region. A killed part stays dead
    until it is healed.

    Of a fabric on machines (--state with a hosts.json, docs/fleet.md) a NAME is a unit, such as
    oregon-core-1/router@1, or a machine, whose plug is pulled; systemd starts units again.
    """


def _fault(act: Callable[..., Any]) -> click.Command:
    """Make a command that does something to NAMEs; ``act``'s docstring is its help."""
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
    lines = (f"newsfabric chaos {name} {target}" for target in _TARGETS.get(name, _PARTS))
    return chaos.command(name, epilog=examples(*lines))(act)


@_fault
def kill(names: Sequence[str], state: Path, as_json: bool, after: float) -> None:
    """Kill processes with SIGKILL."""
    _signal("kill", names, state, as_json=as_json, after=after)


@_fault
def stop(names: Sequence[str], state: Path, as_json: bool, after: float) -> None:
    """Stop processes with SIGSTOP: they live, and do nothing."""
    _signal("stop", names, state, as_json=as_json, after=after)


@_fault
def cont(names: Sequence[str], state: Path, as_json: bool, after: float) -> None:
    """Let stopped processes go on, with SIGCONT."""
    _signal("cont", names, state, as_json=as_json, after=after)


@_fault
@click.option("--wait", is_flag=True, help="Until all of it is whole: nothing wrong on any board.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=1.0),
    default=180.0,
    show_default=True,
    help="Timeout of --wait, in seconds.",
)
def heal(
    names: Sequence[str], state: Path, as_json: bool, after: float, wait: bool, timeout: float
) -> None:
    """Repair the broken parts: NAMEs, or all.

    Dead parts are started, stopped parts go on, and links let everything through.
    """
    _heal(names, state, as_json=as_json, after=after)
    if wait:
        _await_whole(state, timeout)


def _heal(names: Sequence[str], state: Path, *, as_json: bool, after: float) -> None:
    from localfabric.world.faults import Faults
    from localfabric.world.parts import find_links, find_parts, link_parts, links, parts
    from localfabric.world.state import read_running

    if (machines := _on_hosts(state)) is not None:
        time.sleep(after)
        _show(machines.heal(names), as_json=as_json)
        return
    layout, _ = read_running(state)
    faults = Faults(state)
    regions = {region.name for region in layout.regions}
    wires = {*links(layout), *link_parts(layout)}
    # A region stands for its processes and its links.
    ends = regions if layout.proxies else set()
    mended = find_links(layout, [name for name in names if name in wires | ends])
    wanted = find_parts(layout, [name for name in names if name not in wires])
    time.sleep(after)
    if not names:
        wanted = faults.unwell(list(parts(layout).values()))
        mended = faults.ill_links()
    done = faults.heal(wanted)
    _show([*done, *(faults.heal_links(mended) if mended else ())], as_json=as_json)


def _await_whole(state: Path, seconds: float) -> None:
    import asyncio

    from localfabric.world.whole import await_whole, errors_on_boards
    from operations.worlds import running_world

    machines = _on_hosts(state)
    urls = [] if machines is not None else running_world(state).frontdesk_urls(None)

    async def check() -> Sequence[str]:
        if machines is not None:
            return await asyncio.to_thread(machines.unwell)
        return await errors_on_boards(urls)

    def print_line(text: str) -> None:
        echo(text, err=True)

    asyncio.run(await_whole(check, print_line, seconds=seconds))
    print_line("everything is whole")


@_fault
def cut(names: Sequence[str], state: Path, as_json: bool, after: float) -> None:
    """Cut links between regions, silently.

    Nothing passes, and no end is notified. NAME is a link, such as oregon-dublin-link, or a
    region: all of its links. Where two regions have Cassandra, oregon-dublin-store is the
    traffic of the stores, oregon-dublin-feed the rest.
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


@_fault
def lose(names: Sequence[str], state: Path, as_json: bool, after: float) -> None:
    """Delete queues with their messages. The fabric makes them again by itself.

    NAME is a broker or a box, and a queue of it. A wrong name is answered with a list of all.
    """
    from localfabric.world.faults import Faults
    from localfabric.world.queues import find_queues
    from localfabric.world.state import read_running
    from newsfabric.topics import load_topics

    if not names:
        raise click.UsageError("name at least one queue, such as oregon-core-1/router.1")
    if _on_hosts(state) is not None:
        raise WorldError("queues can be lost in a world of processes alone")
    layout, _ = read_running(state)
    wanted = find_queues(layout, load_topics(layout.paths.topics), names)
    time.sleep(after)
    _show(Faults(state).lose(wanted), as_json=as_json)


def _wires(names: Sequence[str], state: Path) -> tuple[Faults, list[str]]:
    from localfabric.world.faults import Faults
    from localfabric.world.parts import find_links
    from localfabric.world.state import read_running

    if not names:
        raise click.UsageError("name at least one link or region")
    layout, _ = read_running(state)
    faults = Faults(state)
    if not layout.proxies:
        # Raises the error that names the missing program.
        faults.heal_links(())
    return faults, find_links(layout, names)


def _signal(verb: Any, names: Sequence[str], state: Path, *, as_json: bool, after: float) -> None:
    from localfabric.world.faults import Faults
    from localfabric.world.parts import find_parts
    from localfabric.world.state import read_running

    if not names:
        raise click.UsageError("name at least one part; `newsfabric status` lists them")
    if (machines := _on_hosts(state)) is not None:
        time.sleep(after)
        _show(machines.signal(verb, names), as_json=as_json)
        return
    wanted = find_parts(read_running(state)[0], names)
    time.sleep(after)
    _show(Faults(state).apply(verb, wanted), as_json=as_json)


def _on_hosts(state: Path) -> HostFaults | None:
    from localfabric.host_faults import HostFaults
    from operations.hosts.described import read_hosts

    hosts = read_hosts(state)
    return None if hosts is None else HostFaults(hosts)


def _show(done: Sequence[Any], *, as_json: bool) -> None:
    if as_json:
        echo(json.dumps([dataclasses.asdict(each) for each in done], indent=2))
        return
    for each in done:
        pid = "" if each.pid is None else f" (pid {each.pid})"
        echo(f"{each.name}: {each.done}{pid}")
    if not done:
        echo("everything is well")


@chaos.command(
    epilog=examples(
        "newsfabric up --detach --retail 2 && newsfabric chaos run",
        "newsfabric chaos run --minutes 2 --seed 7 --report /tmp/chaos",
        "newsfabric chaos run --outages",
        "newsfabric up --detach --regions a,b,c && newsfabric chaos run    three regions",
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
    help="Outages alone, no short faults: routers that sleep beyond their lease or stay dead, what"
    " begins while regions are cut from each other, and cuts of stores or of feeds alone.",
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
    """Break a world by a seed, and account for every message.

    There is load meanwhile. Ten minutes have every kind of fault, short ones and outages, in a
    world of any number of regions. Exits with 1 when a message whose publisher holds a receipt was
    lost to a reader or came twice, or a reader was told wrongly that it missed nothing. Bronze
    messages may be missing.
    """
    import asyncio

    from localfabric.chaos.report import broken, verdict, write_report
    from localfabric.chaos.run import ChaosOptions, run_chaos
    from localfabric.world.finding import ready_layout

    def print_line(text: str) -> None:
        echo(text, err=True)

    layout = ready_layout(state, print_line)
    options = ChaosOptions(minutes=minutes, seed=seed, rate=rate, readers=readers, outages=outages)
    report.mkdir(parents=True, exist_ok=True)
    with (report / "readers.tsv").open("w", encoding="utf-8") as log:
        outcome = asyncio.run(run_chaos(layout, options, print_line, log=log))
    account = write_report(outcome, report)
    for text in (*outcome.faulty, *broken(outcome, account)):
        echo(text)
    echo(f"{verdict(account)}; the report is {report / 'report.md'}")
    unanswered = account.unreceipted or account.rejected or account.unheard
    if outcome.faulty or not account.kept or unanswered:
        raise SystemExit(1)
