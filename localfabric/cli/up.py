"""``newsfabric up``: starts a world, shows the progress, then stays with it or detaches."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import time
from pathlib import Path
from typing import Final

from localfabric.cli.live import watch_world
from localfabric.cli.show import progress, urls
from localfabric.world.cassandra_home import find_cassandra
from localfabric.world.layout import WorldLayout, lay_out
from localfabric.world.options import WorldOptions
from localfabric.world.processes import process_id
from localfabric.world.rabbitmq_homes import find_rabbitmqs, with_environments
from localfabric.world.running import Running, planned
from localfabric.world.start import bring_up, check_ports, write_files
from localfabric.world.state import (
    Notes,
    check_free,
    engine_variables,
    locked,
    make_folder,
    shown,
)
from localfabric.world.stop import stop_world
from localfabric.world.toxiproxy import find_toxiproxy
from localfabric.world.watchdog import Watchdog
from newsfabric.console import console
from newsfabric.errors import ConfigError, WorldError
from newsfabric.safe_output import echo

_CHECKOUT: Final = Path(__file__).resolve().parents[2]
# The place of the project's topics.toml in a wheel.
_INSTALLED: Final = Path(__file__).resolve().parents[1] / "topics.toml"
# A closed terminal ends a foreground world as Ctrl-C does.
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def topics_file(chosen: Path | None) -> Path:
    """Return the topics.toml: ``chosen``, the one here, or the project's; ConfigError for none."""
    ours = [Path("topics.toml"), _INSTALLED, _CHECKOUT / "topics.toml"]
    candidates = [chosen] if chosen else ours
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise ConfigError(f"there is no {candidates[0]}: name it with --topics")


def start_limit(layout: WorldLayout) -> float:
    """Return the seconds after which a start of that world has failed.

    Two cores without other load need a third of it.
    """
    brokers, stores = (len(list(nodes)) for nodes in (layout.brokers(), layout.store_nodes()))
    return 60.0 + 10.0 * brokers + 30.0 * stores


def run_up(
    options: WorldOptions, state: Path, topics: Path, *, seconds: float | None, detach: bool
) -> None:
    """Start a world. With ``detach`` return when it is ready, else stay until a signal.

    WorldError after ``seconds``, by default :func:`start_limit`.
    """
    options = with_environments(options, os.environ)
    homes = find_rabbitmqs(options, os.environ)
    uses_cassandra = options.store == "cassandra"
    store_home = find_cassandra(_CHECKOUT, os.environ) if uses_cassandra else None
    if len(options.regions) > 1:
        options = dataclasses.replace(options, toxiproxy=find_toxiproxy(_CHECKOUT, os.environ))
    layout = lay_out(options, state)
    with locked(state):
        check_free(state)
        check_ports(layout)
        keeper = process_id(os.getpid())
        engine = engine_variables(os.environ)
        notes = Notes(
            options=options, processes=dict(planned(layout)), keeper=keeper, engine=engine
        )
        running = Running(layout, notes, homes, store_home)
        with Watchdog(state):
            try:
                make_folder(state, notes)
                write_files(layout, topics)
                limit = start_limit(layout) if seconds is None else seconds
                asyncio.run(_run(running, seconds=limit, detach=detach))
            except asyncio.CancelledError:
                _ignore_signals()
                stop_world(state, print_line=_print_line)
                if not running.notes.ready:
                    raise WorldError(
                        "stopped before it was ready; nothing is left running"
                    ) from None
                _print_line("stopped; nothing is left running")
            except BaseException:
                _ignore_signals()
                stop_world(state, keep_logs=True, print_line=_print_line)
                _print_line(f"the logs are kept in {shown(layout.paths.logs)}")
                raise


async def _run(running: Running, *, seconds: float, detach: bool) -> None:
    """Start the world; return if detached, else end by CancelledError (a signal)."""
    task = asyncio.current_task()
    assert task is not None
    for number in _SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    began = time.monotonic()
    with progress() as shown_progress:
        await bring_up(running, shown_progress, seconds=seconds)
    keeper = None if detach else running.notes.keeper
    running.update(dataclasses.replace(running.notes, ready=True, keeper=keeper))
    _print_line(f"ready after {time.monotonic() - began:.1f} s")
    console().print(urls(running.layout))
    if not detach:
        await watch_world(running)


def _ignore_signals() -> None:
    """Ignore the signals: an impatient second Ctrl-C mustn't leave half a world behind."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _print_line(text: str) -> None:
    echo(text, err=True)
