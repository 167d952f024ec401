"""The data plane's program: where it is, where its control socket is, and starting it.

It is started in a session of its own, so that what ends the control plane (a signal to its
process group, a crash) leaves the readers connected.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gateway.settings import GatewaySettings
from newsfabric.environment import without_secrets
from newsfabric.errors import ConfigError, SetupError

NAME: Final = "newsfabric-dataplane"
# Names the binary, for those who keep it elsewhere.
VARIABLE: Final = "NEWSFABRIC_DATAPLANE"

# Standard input of a data plane.
_NOTHING: Final = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
_LINE_BYTES: Final = 1024


def find_program(environ: Mapping[str, str] = os.environ) -> Path:
    """The binary, in a wheel or in a checkout; SetupError if it isn't there."""
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
    """Where this gateway's data plane listens for a control plane.

    The port names it, so that a control plane that comes back finds the living data plane. With
    port 0 nobody will look for it again.
    """
    if settings.native.socket is not None:
        return settings.native.socket
    folder = Path(tempfile.gettempdir()) / f"newsfabric-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        # Whoever can write there could put a socket of theirs in our data plane's place.
        raise ConfigError(f"{folder} must belong to this user alone (mode 0700)")
    if settings.port:
        return folder / f"gateway-{settings.port}.sock"
    return Path(tempfile.mkdtemp(dir=folder)) / "gateway.sock"


class Process:
    """A data plane that we have started. It may outlive us, so it isn't a :class:`Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        """Its exit code, negative if a signal ended it; None while it runs."""
        if self._code is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def kill(self) -> None:
        """End it at once; nothing if it has ended."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


class NewerDataPlane(Process):
    """A data plane that takes over from the one that lives."""

    def __init__(self, pid: int, said: int) -> None:
        super().__init__(pid)
        self._said = said

    async def succeeded(self) -> None:
        """Return when readers are its own; ConfigError with its reason if they won't be."""
        line = b""
        try:
            while not line.endswith(b"\n") and len(line) < _LINE_BYTES:
                await _readable(self._said)
                if not (data := os.read(self._said, _LINE_BYTES)):
                    break
                line += data
        finally:
            os.close(self._said)
        said = line.decode(errors="replace").strip()
        if said != "serving":
            raise ConfigError(said.removeprefix("failed: ") or "it said nothing")


def start(program: Path, control: Path, settings: GatewaySettings, port: int) -> Process:
    """Start a data plane that listens for readers on ``port``. It logs where we do."""
    command = [
        str(program),
        "--control",
        str(control),
        "--host",
        settings.host,
        "--port",
        str(port),
    ]
    if settings.native.threads:
        command += ["--threads", str(settings.native.threads)]
    if settings.native.proxy_from:
        command.append("--proxy-protocol")
    variables = without_secrets(os.environ)
    return Process(
        os.posix_spawn(program, command, variables, file_actions=[_NOTHING], setsid=True)
    )


def start_newer(program: Path, control: Path) -> NewerDataPlane:
    """Start a data plane that takes over from the one at ``control``. It logs where we do."""
    command = [str(program), "--take-over", "--control", str(control)]
    said, says = os.pipe()
    output = (os.POSIX_SPAWN_DUP2, says, 1)
    try:
        pid = os.posix_spawn(
            program,
            command,
            without_secrets(os.environ),
            file_actions=[_NOTHING, output],
            setsid=True,
        )
    except OSError:
        os.close(said)
        raise
    finally:
        os.close(says)
    return NewerDataPlane(pid, said)


async def _readable(descriptor: int) -> None:
    """Wait until ``descriptor`` has bytes, or its end."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)
