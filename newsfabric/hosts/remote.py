"""Running commands on hosts, several at once, each with a bound on time and on what it says."""

from __future__ import annotations

import dataclasses
import shlex
import subprocess
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

import orjson

from newsfabric.errors import WorldError
from newsfabric.hosts import look
from newsfabric.hosts.described import Host, Hosts

SECONDS: Final = 15.0
_AT_ONCE: Final = 8
_LOOK: Final = Path(look.__file__)

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
        """What a person calls it: ``oregon-core-1/router@1``."""
        return f"{self.host.name}/{self.unit.removeprefix('newsfabric-')}"


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """What a host has said: its units, and of a retail box its gateway's load and engine."""

    units: tuple[Unit, ...]
    load: dict[str, Any]
    engine: dict[str, Any]


def on_all(hosts: Iterable[Host], act: Callable[[Host], Found]) -> list[Found]:
    """``act`` on each of ``hosts``, some at once."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(act, hosts))


def look_at(hosts: Hosts) -> dict[str, Seen | None]:
    """What runs on each host, by its name; None for one that isn't reached."""
    script = _LOOK.read_bytes()

    def one(host: Host) -> Seen | None:
        try:
            return seen(host, orjson.loads(run(hosts, host, ["python3", "-"], script)))
        except (WorldError, ValueError, KeyError, TypeError):
            return None

    found = on_all(hosts.hosts, one)
    return {host.name: each for host, each in zip(hosts.hosts, found, strict=True)}


def seen(host: Host, document: Any) -> Seen:
    """What :mod:`newsfabric.hosts.look` printed; ValueError, KeyError or TypeError otherwise."""
    return Seen(
        units=tuple(
            Unit(
                host=host,
                unit=str(each["unit"]),
                active=each["active"] in ("active", "reloading"),
                pid=None if each["pid"] is None else int(each["pid"]),
                stopped=each["stopped"] is True,
            )
            for each in document["units"]
        ),
        load=document.get("load") or {},
        engine=document.get("engine") or {},
    )


def run(hosts: Hosts, host: Host, words: Sequence[str], given: bytes = b"") -> bytes:
    """What ``words`` say on ``host``. WorldError if they fail, or take too long."""
    # ssh hands them to a shell there.
    return run_here([*hosts.ssh, host.name, shlex.join(words)], given)


def run_here(words: Sequence[str], given: bytes = b"", seconds: float = SECONDS) -> bytes:
    """What a program of this machine says. WorldError if it fails, or takes too long."""
    try:
        done = subprocess.run(words, input=given, capture_output=True, timeout=seconds, check=False)
    except OSError as exc:
        raise WorldError(f"{words[0]}: {exc.strerror or exc}") from exc
    except subprocess.TimeoutExpired as exc:
        raise WorldError(f"{' '.join(words)}: not done within {seconds:g} s") from exc
    if done.returncode != 0:
        last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no word"]
        raise WorldError(f"{' '.join(words)}: exit code {done.returncode}: {last[0][:300]}")
    return done.stdout
