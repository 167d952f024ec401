"""Runs commands on hosts, several at once, each with bounds on time and output."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import shlex
import subprocess
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, Final, TypeVar

import orjson

from newsfabric.errors import WorldError
from operations.hosts import services_program
from operations.hosts.described import Host, Hosts

SECONDS: Final = 15.0
_AT_ONCE: Final = 8
_MOST_BYTES: Final = 1 << 20
_MOST_UNITS: Final = 100
_LONGEST_TEXT: Final = 300
# systemd.unit(5), without escaped characters.
_UNIT: Final = re.compile(r"[A-Za-z0-9@:._-]{1,255}", re.ASCII)
_PROGRAM: Final = Path(services_program.__file__)

Found = TypeVar("Found")


@dataclasses.dataclass(frozen=True, slots=True)
class Unit:
    """A service of a host. ``pid`` is its main process, if it has one."""

    host: Host
    unit: str
    active: bool
    pid: int | None
    stopped: bool

    @property
    def name(self) -> str:
        """The name for a person: ``oregon-core-1/router@1``."""
        return f"{self.host.name}/{self.unit.removeprefix('newsfabric-')}"


@dataclasses.dataclass(frozen=True, slots=True)
class HostReport:
    """The report of a host: its units, and of a retail box its gateway's load and engine."""

    units: tuple[Unit, ...]
    load: dict[str, Any]
    engine: dict[str, Any]


def on_all(hosts: Iterable[Host], act: Callable[[Host], Found]) -> list[Found]:
    """Call ``act`` with each of ``hosts``, some at once."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(act, hosts))


def host_reports(hosts: Hosts) -> dict[str, HostReport | None]:
    """Return the report of each host, by its name; None for one that isn't reached."""
    script = _PROGRAM.read_bytes()

    def one(host: Host) -> HostReport | None:
        try:
            return seen(host, orjson.loads(run(hosts, host, ["python3", "-"], script)))
        except (WorldError, ValueError, KeyError, TypeError):
            return None

    found = on_all(hosts.hosts, one)
    return {host.name: each for host, each in zip(hosts.hosts, found, strict=True)}


def seen(host: Host, document: Any) -> HostReport:
    """Parse the output of the services program; ValueError, KeyError or TypeError.

    An attacker on a host controls this text, and operators read it on a terminal.
    """
    units = document["units"]
    if len(units) > _MOST_UNITS:
        raise ValueError("more units than a host has")
    return HostReport(
        units=tuple(
            Unit(
                host=host,
                unit=_unit_name(each["unit"]),
                active=each["active"] in ("active", "reloading"),
                pid=None if each["pid"] is None else int(each["pid"]),
                stopped=each["stopped"] is True,
            )
            for each in units
        ),
        load=_plain(document.get("load")),
        engine=_plain(document.get("engine")),
    )


def _unit_name(text: Any) -> str:
    if not isinstance(text, str) or not _UNIT.fullmatch(text):
        raise ValueError("no name of a unit")
    return text


def _plain(answer: Any) -> dict[str, Any]:
    """Return the numbers and the short printable texts of a JSON answer."""
    if not isinstance(answer, dict):
        return {}
    return {
        name: value
        for name, value in answer.items()
        if isinstance(value, bool | int | float)
        or (isinstance(value, str) and len(value) <= _LONGEST_TEXT and value.isprintable())
    }


def run(hosts: Hosts, host: Host, words: Sequence[str], given: bytes = b"") -> bytes:
    """Return the output of ``words`` on ``host``. WorldError if they fail, or take too long."""
    # ssh passes the text to a shell there.
    return run_here([*hosts.ssh, host.name, shlex.join(words)], given)


def run_here(words: Sequence[str], given: bytes = b"", seconds: float = SECONDS) -> bytes:
    """Return the output of a program on this machine, at most 1 MiB.

    WorldError if it fails, takes too long, or prints more.
    """
    try:
        process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    except OSError as exc:
        raise WorldError(f"{words[0]}: {exc.strerror or exc}") from exc
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    late = threading.Event()

    def end() -> None:
        late.set()
        process.kill()

    timer = threading.Timer(seconds, end)
    timer.start()
    try:
        with process, ThreadPoolExecutor(3) as pool:
            pool.submit(_give, process.stdin, given)
            taken = [
                pool.submit(_read_output, process, pipe)
                for pipe in (process.stdout, process.stderr)
            ]
            output, errors = (each.result() for each in taken)
    finally:
        timer.cancel()
    if max(len(output), len(errors)) > _MOST_BYTES:
        raise WorldError(f"{' '.join(words)}: output exceeds {_MOST_BYTES} bytes")
    if late.is_set():
        raise WorldError(f"{' '.join(words)}: not done within {seconds:g} s")
    if process.returncode != 0:
        last = errors.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no word"]
        shown = "".join(c if c.isprintable() else "?" for c in last[0][:300])
        raise WorldError(f"{' '.join(words)}: exit code {process.returncode}: {shown}")
    return output


def _give(pipe: IO[bytes], given: bytes) -> None:
    # A program that ends without reading reports its error elsewhere.
    with contextlib.suppress(BrokenPipeError), pipe:
        pipe.write(given)


def _read_output(process: subprocess.Popen[bytes], pipe: IO[bytes]) -> bytes:
    taken = pipe.read(_MOST_BYTES + 1)
    if len(taken) > _MOST_BYTES:
        process.kill()
    return taken
