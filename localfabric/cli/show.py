"""Tables and progress of worlds on a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from localfabric.world.layout import WorldLayout
from localfabric.world.options import PROXY
from localfabric.world.start import StartProgress
from newsfabric.console import console

# Canaries are sent each second; an older one (ms) means that its shovel is broken.
_LATE_MS: Final = 10_000


@contextmanager
def progress() -> Iterator[StartProgress]:
    """Report progress on stderr: spinners on a terminal, elsewhere a line for each
    finished part."""
    terminal = console(stderr=True)
    if not terminal.is_terminal:
        yield _Lines(terminal)
        return
    with Progress(
        SpinnerColumn(finished_text="✓"),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=terminal,
    ) as bars:
        yield _Spinners(bars)


class _Lines:
    def __init__(self, terminal: Console) -> None:
        self._terminal = terminal
        self._began = time.monotonic()

    def begin(self, part: str) -> None:
        self._terminal.print(f"waiting for the {part}", soft_wrap=True)

    def done(self, part: str) -> None:
        seconds = time.monotonic() - self._began
        self._terminal.print(f"{part}: ready after {seconds:.1f} s", soft_wrap=True)

    def still(self, waiting: Collection[str]) -> None:
        seconds = time.monotonic() - self._began
        for what in waiting:
            self._terminal.print(f"after {seconds:.0f} s: {what}", soft_wrap=True)


class _Spinners:
    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}

    def begin(self, part: str) -> None:
        self._tasks[part] = self._bars.add_task(part, total=1)

    def done(self, part: str) -> None:
        self._bars.update(self._tasks[part], completed=1)

    def still(self, waiting: Collection[str]) -> None:
        """Do nothing: the spinners show it."""


def urls(layout: WorldLayout) -> RenderableType:
    """Return a table of the addresses that a person may want to open or connect to."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for region in layout.regions:
        rows = [
            ("page", f"{region.frontdesk_url}/"),
            ("board", region.board_url),
            ("endpoints", region.endpoints_url),
            *(("readers", box.websocket_url) for box in region.boxes),
            *(("publish to", broker.amqp_url) for broker in region.client),
            ("management", f"{region.core[0].management_url} (guest, guest)"),
        ]
        for n, (what, url) in enumerate(rows):
            table.add_row("" if n else region.name, what, url)
    for broker in layout.proxy_nodes:
        table.add_row(PROXY, "publish to", broker.amqp_url)
    return table


def status_tables(status: Mapping[str, Any]) -> RenderableType:
    """Return a status document as tables, dead processes in red."""
    tables = [_region_table(region) for region in status["regions"]]
    if status["proxy"] is not None:
        tables.append(_proxy_table(status["proxy"]))
    return Group(*tables)


def live_table(status: Mapping[str, Any]) -> Table:
    """Return a status document in few lines: a column for each region, only broken parts named."""
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for region in status["regions"]:
        table.add_column(region["name"], overflow="fold")
    for what, cell in _LIVE_ROWS.items():
        table.add_row(what, *(cell(region) for region in status["regions"]))
    return table


def _messages(region: Mapping[str, Any]) -> Text:
    return Text("?" if region["routed"] is None else f"{region['routed']:,} routed here")


def _readers(region: Mapping[str, Any]) -> Text:
    gateways = region["gateways"]
    readers = sum(gateway["connections"] or 0 for gateway in gateways)
    rate = sum(gateway["deliveries_per_second"] or 0.0 for gateway in gateways)
    return Text(f"{readers:,}, getting {rate:,.0f} messages/s")


def _processes(kind: str) -> Callable[[Mapping[str, Any]], Text]:
    def cell(region: Mapping[str, Any]) -> Text:
        dead = [f"{p['name']} dead" for p in region[kind] if not p["running"]]
        return _all_but(dead, len(region[kind]))

    return cell


def _moving(region: Mapping[str, Any]) -> Text:
    bad = [f"{_shovel(s)} {_shovel_state(s)}" for s in region["shovels"] if not _moves(s)]
    return _all_but(bad, len(region["shovels"]))


def _shovel(shovel: Mapping[str, Any]) -> str:
    return f"{shovel['runs_on']}/{shovel['name']}"


def _moves(shovel: Mapping[str, Any]) -> bool:
    age = shovel["canary_age_ms"]
    return shovel["state"] == "running" and (age is None or age <= _LATE_MS)


def _shovel_state(shovel: Mapping[str, Any]) -> str:
    age, restarts = shovel["canary_age_ms"], shovel["restarts"]
    canary = "no canary" if age is None else f"canary {age / 1000:.1f} s ago"
    return f"{shovel['state']}, {canary}" + (f", restarted {restarts} times" if restarts else "")


def _all_but(bad: list[str], total: int) -> Text:
    good = Text(f"{total - len(bad)} running")
    return good if not bad else good.append("\n" + "\n".join(bad), style="bold red")


_LIVE_ROWS: Final[Mapping[str, Callable[[Mapping[str, Any]], Text]]] = {
    "page": lambda region: Text(f"{region['frontdesk_url']}/"),
    "messages": _messages,
    "readers": _readers,
    "gateways": _processes("gateways"),
    "services": _processes("services"),
    "brokers": _processes("brokers"),
    "store": _processes("store"),
    "shovels": _moving,
}


def _region_table(region: Mapping[str, Any]) -> Table:
    title = f"{region['name']}  {region['frontdesk_url']}/"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in ("what", "name", "pid", ""):
        table.add_column(column, overflow="fold")
    _add_brokers(table, region)
    for node in region["store"]:
        table.add_row("store", node["name"], _pid(node), node["contact"])
    for service in region["services"]:
        table.add_row("service", service["name"], _pid(service), "")
    for gateway in region["gateways"]:
        table.add_row("gateway", gateway["name"], _pid(gateway), _load(gateway))
        if (pid := gateway["dataplane_pid"]) is not None:
            table.add_row("", f"{gateway['engine']} engine, data plane", str(pid), "")
        elif gateway["engine"] is not None:
            table.add_row("", f"{gateway['engine']} engine", "", "")
    _add_shovels(table, region)
    return table


def _proxy_table(proxy: Mapping[str, Any]) -> Table:
    table = Table(title=proxy["name"], title_justify="left", box=None, pad_edge=False)
    for column in ("what", "name", "pid", ""):
        table.add_column(column, overflow="fold")
    _add_brokers(table, proxy)
    _add_shovels(table, proxy)
    return table


def _add_brokers(table: Table, place: Mapping[str, Any]) -> None:
    for broker in place["brokers"]:
        version = f"  RabbitMQ {broker['version']}" if broker.get("version") else ""
        table.add_row("broker", broker["name"], _pid(broker), broker["amqp_url"] + version)


def _add_shovels(table: Table, place: Mapping[str, Any]) -> None:
    for shovel in place["shovels"]:
        state = Text(_shovel_state(shovel), style="" if _moves(shovel) else "yellow")
        table.add_row("shovel", _shovel(shovel), "", state)


def _pid(process: Mapping[str, Any]) -> Text:
    return Text(str(process["pid"])) if process["running"] else Text("dead", style="bold red")


def _load(gateway: Mapping[str, Any]) -> Text:
    if gateway["connections"] is None:
        return Text("no answer", style="yellow")
    rate = gateway["deliveries_per_second"] or 0.0
    state = "ready" if gateway["ready"] else "draining" if gateway["draining"] else "not ready"
    style = "" if gateway["ready"] else "yellow"
    return Text(f"{state}, {gateway['connections']} readers, {rate:.0f} messages/s", style=style)
