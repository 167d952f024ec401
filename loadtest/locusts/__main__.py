"""``python -m loadtest.locusts``: a world of its own, locust against it, a report.

Locust runs in processes of its own, from ``.tools/loadtest``. Ctrl-C and SIGTERM end the test
early: the report is written all the same. Options that aren't ours are locust's.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from bench.programs import build
from bench.world import world_at
from loadtest.locusts.options import ARGUMENTS, LocustOptions, OptionError, checked
from localfabric.world.issuer import issue
from localfabric.world.layout import WorldLayout
from localfabric.world.state import read_running, state_path
from newsfabric.errors import NewsfabricError, SetupError
from newsfabric.safe_output import echo

_ROOT: Final = Path(__file__).resolve().parents[2]
_LOCUST: Final = _ROOT / ".tools" / "loadtest" / "bin" / "locust"
_PORT_BASE: Final = 30_000
# Seconds for the world to start: other programs may use the machine.
_START: Final = 300
# Ports of a world that nothing in it uses.
_WEB, _MASTER = 97, 98
_MOST_USERS: Final = 1000
_TOKENS_LIVE: Final = 7 * 86_400.0
_PATIENCE: Final = 60.0


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit code: 0 if all promises were kept, 1 if not, 2 if the test can't run."""
    parser = _parser()
    arguments, for_locust = parser.parse_known_args(argv)
    elsewhere = {"--frontdesks", "--amqp"} & {word.partition("=")[0] for word in argv or sys.argv}
    given = vars(arguments)
    try:
        # Wrong options are reported before a world is started. Its tokens are made later.
        if not elsewhere:
            checked(given | {"tokens_file": given["tokens_file"] or "made-later"})
        else:
            checked(given)
        if not _LOCUST.exists():
            raise SetupError("locust is missing: scripts/setup loadtest")
        if arguments.dense:
            build(dataplane=False)
        with contextlib.ExitStack() as stack:
            if not elsewhere:
                layout = stack.enter_context(_world(arguments))
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="loadtest-")))
                given |= _targets(layout, folder)
            return _run(arguments, checked(given), given, for_locust)
    except (NewsfabricError, OptionError, OSError) as exc:
        echo(f"error: {exc}", err=True)
        return 2
    except subprocess.CalledProcessError:
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.locusts",
        description=__doc__,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--web", action="store_true", help="Locust's web page, not a test at once.")
    parser.add_argument("--workers", type=int, default=0, help="Processes beside the master.")
    parser.add_argument("--state", type=Path, default=Path(".world-loadtest"), help="The world.")
    parser.add_argument("--port-base", type=int, default=_PORT_BASE, help="The world's ports.")
    parser.add_argument("--regions", default="oregon,dublin", help="The world's regions.")
    parser.add_argument("--retail", type=int, default=1, help="Retail boxes a region.")
    parser.add_argument("--running", action="store_true", help="In a world that runs in --state.")
    for one in ARGUMENTS:
        if one.default is False:
            parser.add_argument(one.flag, action="store_true", help=one.help)
        else:
            parser.add_argument(one.flag, default=one.default, help=one.help.replace("%", "%%"))
    return parser


@contextlib.contextmanager
def _world(arguments: argparse.Namespace) -> Iterator[WorldLayout]:
    """Yield the world in ``--state``, which is started and stopped unless it is ``--running``."""
    state: Path = arguments.state
    size = ("--regions", arguments.regions, "--retail", str(arguments.retail))
    base = ("--port-base", str(arguments.port_base), "--timeout", str(_START))
    if not arguments.running:
        echo(f"starting a world in {state}")
    with contextlib.nullcontext() if arguments.running else world_at(state, *size, *base):
        yield read_running(state_path(state))[0]


def _targets(layout: WorldLayout, folder: Path) -> dict[str, str]:
    """Return the world's addresses as options; write tokens of new readers into ``folder``."""
    tokens = folder / "tokens"
    tokens.touch(mode=0o600)
    users = (f"loadtest-{n}" for n in range(_MOST_USERS))
    tokens.write_text("\n".join(issue(layout.paths, user, (), _TOKENS_LIVE) for user in users))
    return {
        "frontdesks": ",".join(region.frontdesk_url for region in layout.regions),
        "amqp": ",".join(node.amqp_url for region in layout.regions for node in region.client),
        "tokens_file": str(tokens),
    }


def _run(
    arguments: argparse.Namespace,
    options: LocustOptions,
    given: dict[str, object],
    for_locust: Sequence[str],
) -> int:
    """Start locust's processes, pass signals on, and return the exit code."""
    command = [str(_LOCUST), "-f", str(Path(__file__).with_name("locustfile.py")), *for_locust]
    flags: list[str] = []
    for one in ARGUMENTS:
        if one.default is False:
            flags += [one.flag] if given[one.name] else []
        else:
            flags += [f"{one.flag}={given[one.name]}"]
    if arguments.web:
        flags += ["--web-host=127.0.0.1", f"--web-port={arguments.port_base + _WEB}"]
        echo(f"locust's page is http://127.0.0.1:{arguments.port_base + _WEB}/")
    else:
        flags += ["--headless", "--only-summary"]
    port = arguments.port_base + _MASTER
    if arguments.workers:
        flags += ["--master", "--master-bind-host=127.0.0.1", f"--master-bind-port={port}"]
        flags += [f"--expect-workers={arguments.workers}"]
    readers = f"{options.readers + options.dense} readers"
    echo(f"{options.shape}: {readers}, {options.seconds:g} s")
    with _signals() as ended_by, contextlib.ExitStack() as stack:
        locust = stack.enter_context(_process([*command, *flags]))
        for _ in range(arguments.workers):
            worker = ["--worker", "--master-host=127.0.0.1", f"--master-port={port}"]
            stack.enter_context(_process([*command, *worker]))
        signals_passed_on = 0
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = locust.wait(0.3)
                # Ended by a signal, so before the test began: there is nothing to report.
                return code if code >= 0 else 128 - code
            # Locust obeys the first one after the report.
            if len(ended_by) > signals_passed_on:
                (locust.kill if signals_passed_on else locust.terminate)()
                signals_passed_on += 1


@contextlib.contextmanager
def _process(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    # Quiet by default; in a session of its own, so that Ctrl-C reaches this process alone.
    level = [] if any(word.startswith("--loglevel") for word in command) else ["--loglevel=WARNING"]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen([*command, *level], start_new_session=True, env=environment)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextlib.contextmanager
def _signals() -> Iterator[list[int]]:
    """Yield a list of the SIGINTs and SIGTERMs received, which end nothing by themselves."""
    came: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    sys.exit(main())
