"""The data plane's process: found, started if there is none, and waited for when it ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import socket
from pathlib import Path
from typing import Final

from gateway.native.link import connected
from gateway.native.program import NewerDataPlane, Process, start, start_newer
from gateway.settings import GatewaySettings
from newsfabric.errors import ConfigError

logger = logging.getLogger(__name__)

# A data plane that can't take over says so within ten seconds.
TAKE_OVER_SECONDS: Final = 15.0
# One that should end and doesn't within this time is killed.
END_SECONDS: Final = 2.0
LOOK_AGAIN_SECONDS: Final = 0.02


class Child:
    """Runs ``program``, which listens for us at ``control``.

    The data plane that we find there may be another control plane's child; then we have none.
    """

    def __init__(self, settings: GatewaySettings, program: Path, control: Path) -> None:
        self.control = control
        self._settings = settings
        self._program = program
        self._process: Process | None = None

    async def connect(self, port: int) -> socket.socket:
        """A connection to the data plane that lives, else to one that is started for ``port``.

        ConfigError if that one ends at once.
        """
        try:
            return connected(self.control)
        except FileNotFoundError:
            pass
        except ConnectionRefusedError:
            # What a data plane that was killed has left.
            self.control.unlink(missing_ok=True)
        if self._process is None or self._process.poll() is not None:
            self._process = start(self._program, self.control, self._settings, port)
        while True:
            if (code := self._process.poll()) is not None:
                raise ConfigError(f"the data plane has ended with code {code}")
            with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
                return connected(self.control)
            await asyncio.sleep(LOOK_AGAIN_SECONDS)

    async def start_newer(self) -> NewerDataPlane:
        """Have a data plane of our program take over from the one that lives; it is our child then.

        ConfigError if it couldn't; then the one that lives serves on.
        """
        try:
            newer = start_newer(self._program, self.control)
        except OSError as exc:
            raise ConfigError(f"the new data plane didn't take over: {exc}") from exc
        try:
            async with asyncio.timeout(TAKE_OVER_SECONDS):
                await newer.succeeded()
        except (OSError, TimeoutError, ConfigError) as exc:
            await ended(newer)
            raise ConfigError(f"the new data plane didn't take over: {exc}") from exc
        return newer

    def replace_with(self, newer: NewerDataPlane) -> Process | None:
        """``newer`` is our child from now on; returns the former one, which should end."""
        former, self._process = self._process, newer
        return former

    async def attached_to(self, pid: int) -> None:
        """The data plane that serves is ``pid``: if that isn't our child, ours ends."""
        if self._process is not None and self._process.pid != pid:
            await ended(self._process)

    async def end(self) -> None:
        """Wait until our child has ended, and remove what was made for it."""
        if self._process is None:
            return
        await ended(self._process)
        self._process = None
        if self._settings.native.socket is None and not self._settings.port:
            shutil.rmtree(self.control.parent, ignore_errors=True)

    def kill(self) -> None:
        """End our child at once."""
        if self._process is not None:
            self._process.kill()


async def ended(process: Process) -> None:
    """Wait until a data plane that should end has ended; after a while kill it."""
    deadline = asyncio.get_running_loop().time() + END_SECONDS
    while process.poll() is None:
        if asyncio.get_running_loop().time() > deadline:
            logger.warning("data plane %d doesn't end: killing it", process.pid)
            process.kill()
        await asyncio.sleep(LOOK_AGAIN_SECONDS)
