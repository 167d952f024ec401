"""The fleet's files and folders: everything is below ``.fleet/`` at the checkout's root."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from fleet.errors import FleetError

CHECKOUT: Final = Path(__file__).resolve().parents[2]
# Two scalers may ask for boxes at the same time, and want a reply within 25 s.
_PATIENCE: Final = 15.0
_POLL: Final = 0.1


@dataclasses.dataclass(frozen=True, slots=True)
class Folders:
    """All paths. ``top`` is absolute, without symlinks: it identifies processes and mounts."""

    top: Path

    @classmethod
    def at(cls, top: Path) -> Folders:
        """Return the paths below ``top``, which may be relative or a symlink."""
        return cls(top.resolve())

    @property
    def namespace(self) -> str:
        """The network namespace's name: one for each checkout, so fleets don't meet."""
        return f"nf-{hashlib.sha256(os.fsencode(self.top)).hexdigest()[:8]}"

    @property
    def notes(self) -> Path:
        """The list of machines in the fleet: ``fleet.json``."""
        return self.top / "fleet.json"

    @property
    def layers(self) -> Path:
        """A folder for each layer of machines' disks (:mod:`fleet.image`)."""
        return self.top / "layers"

    @property
    def build(self) -> Path:
        """The folder of unfinished builds."""
        return self.top / "build"

    @property
    def machines(self) -> Path:
        """A folder for each machine, by name."""
        return self.top / "machines"

    @property
    def key(self) -> Path:
        """The private ssh key that every machine accepts."""
        return self.top / "key"

    @property
    def ssh_config(self) -> Path:
        """The configuration with which ssh and ansible reach each machine by its name."""
        return self.top / "ssh_config"

    @property
    def known_hosts(self) -> Path:
        """The machines' public host keys."""
        return self.top / "known_hosts"

    @property
    def hosts(self) -> Path:
        """The fleet's description for newsfabric's own commands (operations.hosts.described)."""
        return self.top / "hosts.json"

    @property
    def scale_out_log(self) -> Path:
        """The output of scale-out-retail.yml for machines that the scaler had booted."""
        return self.top / "scale-out.log"

    @property
    def secret(self) -> Path:
        """The fabric's secret (`newsfabric_secret`)."""
        return self.top / "secret"

    @property
    def former_secret(self) -> Path:
        """The previous secret, while both are wanted (`newsfabric_former_secret`)."""
        return self.top / "former-secret"

    @property
    def topics(self) -> Path:
        """The checkout's feeds, and the fleet's publisher (`newsfabric_topics_file`)."""
        return self.top / "topics.toml"

    @property
    def certs(self) -> Path:
        """The authority and the machines' certificates; without this folder there is no TLS."""
        return self.top / "certs"

    def of(self, name: str) -> Path:
        """Return the folder of one machine."""
        return self.machines / name

    def console(self, name: str) -> Path:
        """Return the log of a machine's console."""
        return self.of(name) / "console.log"

    @contextlib.contextmanager
    def locked(self, seconds: float = _PATIENCE) -> Iterator[None]:
        """Hold the lock for one change at a time; it ends with the process that holds it.

        FleetError if another process still has it after ``seconds``.
        """
        self.top.mkdir(parents=True, exist_ok=True)
        ends = time.monotonic() + seconds
        with (self.top / "lock").open("w") as lock:
            while not _taken(lock):
                if time.monotonic() >= ends:
                    raise FleetError(f"another fleet command is at work in {self.top}: wait for it")
                time.sleep(_POLL)
            yield


def _taken(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
