"""The checks of ``newsfabric doctor``: a finding for each thing on this machine that a world needs.

Judging is pure: from an observation to a :class:`DoctorLine`, with advice unless all is well. The
observations use the code of a real start (:mod:`~localfabric.world.rabbitmq_homes`,
:mod:`~localfabric.world.start`, the gateway's own program), so the two can't differ.
"""

from __future__ import annotations

import ctypes
import dataclasses
import os
import platform
import resource
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, Literal

from localfabric.world.layout import lay_out
from localfabric.world.memory_left import MemoryLeft, memory_left
from localfabric.world.options import WorldOptions
from localfabric.world.processes import marked
from localfabric.world.rabbitmq_home import RabbitmqHome
from localfabric.world.rabbitmq_homes import find_rabbitmqs, with_environments
from localfabric.world.start import check_ports
from localfabric.world.state import has_notes, read_notes, shown
from newsfabric.errors import ConfigError, NewsfabricError, WorldError

Level = Literal["ok", "warning", "error"]

_PYTHON: Final = (3, 11)
# Of a world of two regions: six RabbitMQ nodes of some 130 MB, services and gateways of 60 each.
_MEMORY: Final = 2 << 30
_LEAST_MEMORY: Final = 1 << 30
# RabbitMQ blocks publishers below 50 MB; a world that is used for a day writes a GB.
_DISK: Final = 2 << 30
_LEAST_DISK: Final = 200 << 20
# A thousand readers on a gateway, and its other descriptors.
_DESCRIPTORS: Final = 4096
_LEAST_DESCRIPTORS: Final = 512
# The year in which this was written: a clock with an earlier year is wrong.
_YEAR: Final = 2026
# adjtimex(2): the kernel's state of a clock that isn't synchronised.
_TIME_ERROR: Final = 5
_PROGRAM_SECONDS: Final = 30.0
_OTP: Final = 'io:format("~s", [erlang:system_info(otp_release)]), halt().'
_DATAPLANE: Final = "from gateway.native.program import find_program; print(find_program())"


@dataclasses.dataclass(frozen=True, slots=True)
class DoctorLine:
    """A line: its subject, its level, its state, and the advice (empty if none is needed)."""

    what: str
    level: Level
    says: str
    do: str = ""


def examine(options: WorldOptions, state: Path, environ: Mapping[str, str]) -> Iterator[DoctorLine]:
    """Yield a finding for each thing that a world of ``options`` in ``state`` needs."""
    yield python(sys.version_info[:3], platform.python_implementation())
    home: RabbitmqHome | None = None
    try:
        chosen = with_environments(options, environ)
        home = find_rabbitmqs(chosen, environ)[options.regions[0]]
    except (NewsfabricError, OSError) as exc:
        yield DoctorLine("RabbitMQ", "error", "none that can be run", str(exc))
    else:
        yield DoctorLine("RabbitMQ", "ok", f"{home.version} in {home.sbin.parent}")
        yield erlang(*_run(["erl", "-noshell", "-eval", _OTP], {**environ, **home.environment}))
    wanted = environ.get("NEWSFABRIC_GATEWAY_ENGINE", "auto")
    yield dataplane(*_run([sys.executable, "-c", _DATAPLANE], environ), wanted)
    yield localhost(_address_of("localhost"))
    earlier, runs = _left(state)
    yield earlier
    yield ports(_taken(options, state), runs=runs)
    yield memory(memory_left())
    yield descriptors(resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    yield clock(time.gmtime().tm_year, _clock_state())
    yield disk(*_room(state))


def worst(findings: list[DoctorLine]) -> Level:
    """Return the worst level among the findings."""
    order: tuple[Level, ...] = ("error", "warning")
    return next((level for level in order if any(f.level == level for f in findings)), "ok")


# --- judging ---


def python(version: tuple[int, int, int], implementation: str) -> DoctorLine:
    """Judge whether newsfabric runs on this Python."""
    state = f"{implementation} {'.'.join(map(str, version))}"
    if version < _PYTHON:
        return DoctorLine(
            "Python", "error", state, "install Python 3.11 or newer, then `make setup`"
        )
    return DoctorLine("Python", "ok", state)


def erlang(state: str, trouble: str) -> DoctorLine:
    """Judge whether the Erlang of the RabbitMQ that was found runs."""
    if trouble:
        todo = "install erlang-base again, or name another RabbitMQ with NEWSFABRIC_RABBITMQ_HOME"
        return DoctorLine("Erlang", "error", f"it doesn't run: {trouble}", todo)
    return DoctorLine("Erlang", "ok", f"OTP {state}")


def dataplane(program: str, trouble: str, wanted: str) -> DoctorLine:
    """Judge whether gateways have the native engine, given the ``wanted`` engine."""
    if not trouble:
        return DoctorLine("data plane", "ok", program)
    if wanted == "tornado":
        return DoctorLine("data plane", "ok", "not built, and NEWSFABRIC_GATEWAY_ENGINE wants none")
    level: Level = "error" if wanted == "native" else "warning"
    todo = "`make dataplane` builds it, and installs Rust if it is missing"
    return DoctorLine("data plane", level, "not built, so gateways run the slower engine", todo)


def localhost(address: str) -> DoctorLine:
    """Judge the address of localhost, which is in the names of RabbitMQ's nodes."""
    if not address:
        todo = 'put "127.0.0.1 localhost" into /etc/hosts'
        return DoctorLine("localhost", "error", "is no name on this machine", todo)
    return DoctorLine("localhost", "ok", address)


def ports(taken: str, *, runs: bool) -> DoctorLine:
    """Judge the ports. ``taken``: a taken port, with advice; ``runs``: a world there has it."""
    if not taken:
        return DoctorLine("ports", "ok", "free")
    if runs:
        return DoctorLine("ports", "ok", "taken by the world that runs")
    what, _, todo = taken.partition(": ")
    return DoctorLine("ports", "error", what, todo)


def memory(found: MemoryLeft) -> DoctorLine:
    """Judge the memory that a world can have."""
    available, group = found.available, found.group
    state = f"{available / (1 << 30):.1f} GiB available"
    if group:
        state += f" by the limit of {group}"
    first = "raise that limit, or end" if group else "end"
    todo = (
        f"{first} other programs; a world of two regions takes about 2 GiB, --regions a takes half"
    )
    if available < _LEAST_MEMORY:
        return DoctorLine("memory", "error", state, todo)
    return _bounded("memory", available, _MEMORY, state, todo)


def descriptors(most: int) -> DoctorLine:
    """Judge the limit of descriptors; ``most``: the hard limit of a process."""
    state = "no limit" if most == resource.RLIM_INFINITY else f"{most} a process"
    todo = "raise the limit (ulimit -Hn, or LimitNOFILE of the service): one is a reader's"
    if most != resource.RLIM_INFINITY and most < _LEAST_DESCRIPTORS:
        return DoctorLine("descriptors", "error", state, todo)
    room = _DESCRIPTORS if most == resource.RLIM_INFINITY else most
    return _bounded("descriptors", room, _DESCRIPTORS, state, todo)


def clock(year: int, state: int) -> DoctorLine:
    """Judge whether the clock can be right, and whether a service sets it, by adjtimex(2)'s
    ``state``."""
    if year < _YEAR:
        return DoctorLine(
            "clock", "error", f"its year is {year}", "set it: timedatectl set-ntp true"
        )
    if state == _TIME_ERROR:
        todo = "one machine may do without; between machines run chrony or systemd-timesyncd"
        return DoctorLine("clock", "warning", "nothing sets it, by the kernel's word", todo)
    return DoctorLine("clock", "ok", "set by a time service")


def disk(free: int, folder: str, may_write: bool) -> DoctorLine:
    """Judge the ``free`` bytes of the disk that has the world's ``folder``."""
    state = f"{free / (1 << 30):.1f} GiB free at {folder}"
    if not may_write:
        return DoctorLine(
            "disk", "error", f"{folder} can't be written", "choose another with --state"
        )
    todo = "make room, or choose another place with --state"
    if free < _LEAST_DISK:
        return DoctorLine("disk", "error", state, todo)
    return _bounded("disk", free, _DISK, state, todo)


def _bounded(what: str, found: int, wanted: int, state: str, todo: str) -> DoctorLine:
    return (
        DoctorLine(what, "ok", state)
        if found >= wanted
        else DoctorLine(what, "warning", state, todo)
    )


def left(folder: str, *, processes: int, ready: bool, alive: bool, noted: bool) -> DoctorLine:
    """Judge the world's ``folder``: the number of its ``processes``; ``alive``: some are in its
    notes; ``noted``: it has notes."""
    what, todo = "earlier world", "`newsfabric down` ends what is left of it"
    if not processes and not noted:
        return DoctorLine(what, "ok", f"nothing is left in {folder}")
    if not processes:
        return DoctorLine(what, "warning", f"a dead world's files are in {folder}", todo)
    if alive and ready:
        return DoctorLine(what, "ok", f"a world runs in {folder}")
    if alive:
        return DoctorLine(what, "warning", f"a world runs in {folder}, and isn't ready", todo)
    return DoctorLine(what, "error", f"{processes} processes of a dead world in {folder}", todo)


# --- looking ---


def _run(command: list[str], environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the output and the error, one line each; one of them is empty."""
    program = shutil.which(command[0], path=environ.get("PATH"))
    try:
        done = subprocess.run(
            [program or command[0], *command[1:]],
            capture_output=True,
            text=True,
            errors="replace",
            env=dict(environ),
            timeout=_PROGRAM_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        return "", str(exc)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        return "", lines[-1] if lines else f"exit code {done.returncode}"
    return done.stdout.strip(), ""


def _address_of(name: str) -> str:
    try:
        return socket.gethostbyname(name)
    except OSError:
        return ""


def _taken(options: WorldOptions, state: Path) -> str:
    try:
        check_ports(lay_out(options, state))
    except (WorldError, ConfigError) as exc:
        return str(exc)
    return ""


def _left(state: Path) -> tuple[DoctorLine, bool]:
    """Return the finding about an earlier world, and whether that world runs."""
    folder = shown(state)
    count = len(marked(state))
    try:
        notes = read_notes(state)
    except WorldError as exc:
        todo = "remove the file, or choose --state"
        return DoctorLine("earlier world", "error", str(exc), todo), False
    alive = notes is not None and bool(notes.running())
    ready = notes is not None and notes.ready
    found = left(folder, processes=count, ready=ready, alive=alive, noted=has_notes(state))
    return found, count > 0 and alive


def _clock_state() -> int:
    # adjtimex(2) with nothing to change; struct timex has 208 bytes.
    adjust: Callable[..., int] = ctypes.CDLL(None).adjtimex
    return adjust(ctypes.create_string_buffer(208))


def _room(state: Path) -> tuple[int, str, bool]:
    place = next(path for path in (state, *state.parents) if path.exists())
    free = shutil.disk_usage(place).free
    return free, shown(place), place.is_dir() and os.access(place, os.W_OK | os.X_OK)
