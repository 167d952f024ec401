"""Nodes as child processes: started, awaited, ended."""

from __future__ import annotations

import abc
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from localfabric.world.processes import last_lines, spawn
from newsfabric.errors import WorldError


class LocalProcesses(abc.ABC):
    """Processes by name, each with a log in ``folder``.

    Blocking; in a running loop use ``asyncio.to_thread``.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @abc.abstractmethod
    def start(self) -> None:
        """Start all and return when they answer; WorldError, with the end of its log, for one that
        dies or doesn't answer."""

    def kill(self, *names: str) -> None:
        """End these (all, if none is named) as a power cut would (SIGKILL)."""
        for name in names or [*self._processes]:
            process = self._processes.pop(name)
            process.kill()
            process.wait(timeout=30)

    def pid(self, name: str) -> int:
        """Return the pid of the process ``name``; KeyError if there is none."""
        return self._processes[name].pid

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _spawn(
        self, name: str, command: Sequence[str], environment: Mapping[str, str], folder: Path
    ) -> None:
        self._processes[name] = spawn(
            command, environment=environment, folder=folder, log=self._log(name)
        )

    def _wait(self, name: str, check: Callable[[], bool], deadline: float) -> None:
        process = self._processes[name]
        while not check():
            if process.poll() is not None:
                words = last_lines(self._log(name))
                raise WorldError(f"{name} died ({process.returncode}):\n{words}")
            if time.monotonic() > deadline:
                raise WorldError(f"{name} doesn't answer, see {self._log(name)}")
            time.sleep(0.05)

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"
