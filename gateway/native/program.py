"""The data plane's program and process: finding it, starting it, waiting for its end.

The process is started in a session of its own. So if the control plane is ended (by a signal to its
process group, by a crash), the readers stay connected.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gateway.native.link import connected
from gateway.process.settings import GatewaySettings
from newsfabric.errors import ConfigError, SetupError
from newsfabric.process.environment import without_secrets

logger = logging.getLogger(__name__)

NAME: Final = "newsfabric-dataplane"
# Environment variable that names the binary, if it is kept elsewhere.
VARIABLE: Final = "NEWSFABRIC_DATAPLANE"

# A data plane that can't take over reports it within ten seconds.
TAKE_OVER_SECONDS: Final = 15.0
# A data plane that should end and doesn't within this time is killed.
END_SECONDS: Final = 2.0
LOOK_AGAIN_SECONDS: Final = 0.02
_LINE_BYTES: Final = 1024


def find_program(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the binary, in a wheel or in a checkout; SetupError if it isn't there."""
    named = environ.get(VARIABLE)
    here = Path(__file__).resolve()
    shipped, built = here.with_name(NAME), here.parents[2] / "target" / "release" / NAME
    places = [Path(named)] if named else [shipped, built]
    for place in places:
        if shutil.which(place) is not None:
            return place
    raise SetupError(
        f"the native engine isn't built: `make dataplane` builds it in a checkout, {VARIABLE} "
        "names one that is elsewhere, --engine tornado does without"
    )


def control_socket(settings: GatewaySettings) -> Path:
    """Return the path where this gateway's data plane listens for a control plane.

    The port names it, so that a control plane that is restarted finds the living data plane. With
    port 0 nobody will look for it again.
    """
    if settings.native.socket is not None:
        return settings.native.socket
    folder = Path(tempfile.gettempdir()) / f"newsfabric-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        # Another user who can write there could replace our data plane's socket.
        raise ConfigError(f"{folder} must belong to this user alone (mode 0700)")
    if settings.port:
        return folder / f"gateway-{settings.port}.sock"
    return Path(tempfile.mkdtemp(dir=folder)) / "gateway.sock"


class Process(subprocess.Popen[bytes]):
    """A data plane that we have started. It logs where we do, and may outlive us."""

    def __init__(self, program: Path, *options: str, stdout: int | None = None) -> None:
        super().__init__(
            (program, *options),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            env=without_secrets(os.environ),
            start_new_session=True,
        )

    def __del__(self) -> None:
        """Do nothing: a Popen would warn here that the process still runs."""


def start(program: Path, control: Path, settings: GatewaySettings, port: int) -> Process:
    """Start a data plane that listens for readers on ``port``."""
    options = ["--control", str(control), "--host", settings.host, "--port", str(port)]
    if settings.native.threads:
        options += ["--threads", str(settings.native.threads)]
    if settings.native.proxy_from:
        options.append("--proxy-protocol")
    return Process(program, *options)


async def wait_for_take_over(newer: Process) -> None:
    """Return when a data plane that takes over has the readers of the former one; ConfigError with
    its reason if it fails."""
    assert newer.stdout is not None
    line = b""
    with newer.stdout as output:
        while not line.endswith(b"\n") and len(line) < _LINE_BYTES:
            await _readable(output.fileno())
            if not (data := os.read(output.fileno(), _LINE_BYTES)):
                break
            line += data
    reply = line.decode(errors="replace").strip()
    if reply != "serving":
        raise ConfigError(reply.removeprefix("failed: ") or "it printed nothing")


async def _readable(descriptor: int) -> None:
    """Wait until ``descriptor`` has bytes, or its end."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)


async def wait_for_end(process: Process) -> None:
    """Wait until a data plane that should end has ended; after a while kill it."""
    deadline = asyncio.get_running_loop().time() + END_SECONDS
    while process.poll() is None:
        if asyncio.get_running_loop().time() > deadline:
            logger.warning("data plane %d doesn't end: killing it", process.pid)
            process.kill()
            deadline = math.inf
        await asyncio.sleep(LOOK_AGAIN_SECONDS)


class Child:
    """The process of ``program``, which listens for us at ``control``.

    The data plane found there may be another control plane's child; then we have none.
    """

    def __init__(self, settings: GatewaySettings, program: Path, control: Path) -> None:
        self.control = control
        self._settings = settings
        self._program = program
        self._process: Process | None = None

    async def connect(self, port: int) -> socket.socket:
        """Return a connection to the living data plane, or else to one started for ``port``.

        ConfigError if that one ends at once.
        """
        try:
            return connected(self.control)
        except FileNotFoundError:
            pass
        except ConnectionRefusedError:
            # A data plane that was killed has left its socket.
            self.control.unlink(missing_ok=True)
        if self._process is None or self._process.poll() is not None:
            self._process = start(self._program, self.control, self._settings, port)
        while True:
            if (code := self._process.poll()) is not None:
                raise ConfigError(f"the data plane has ended with code {code}")
            with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
                return connected(self.control)
            await asyncio.sleep(LOOK_AGAIN_SECONDS)

    async def take_over(self) -> int:
        """Have a data plane of our program take over from the living one; return its pid.

        The new one is our child then, and the former one has ended. ConfigError if it couldn't;
        then the living one serves on.
        """
        try:
            options = ("--take-over", "--control", str(self.control))
            newer = Process(self._program, *options, stdout=subprocess.PIPE)
            try:
                async with asyncio.timeout(TAKE_OVER_SECONDS):
                    await wait_for_take_over(newer)
            except (OSError, ConfigError):
                await wait_for_end(newer)
                raise
        except (OSError, ConfigError) as exc:
            raise ConfigError(f"the new data plane didn't take over: {exc}") from exc
        former, self._process = self._process, newer
        if former is not None:
            await wait_for_end(former)
        return newer.pid

    async def attached_to(self, pid: int) -> None:
        """Wait for the end of our child, unless it is the data plane that serves: ``pid``."""
        if self._process is not None and self._process.pid != pid:
            await wait_for_end(self._process)

    async def end(self) -> None:
        """Wait until our child has ended, and remove the folder made for it."""
        if self._process is None:
            return
        await wait_for_end(self._process)
        self._process = None
        if self._settings.native.socket is None and not self._settings.port:
            shutil.rmtree(self.control.parent, ignore_errors=True)

    def kill(self) -> None:
        """Kill our child at once, if there is one."""
        if self._process is not None:
            self._process.kill()
