"""Finds the RabbitMQ installed on this machine, and the environment to run it.

It starts nothing and installs nothing (``scripts/setup`` installs). Three places are tried, the
same as in ``scripts/setup``: ``$NEWSFABRIC_RABBITMQ_HOME``, the system's package, and the tree that
was unpacked without root into ``.tools/rabbitmq``. A named folder is one of two kinds: a server's
own (it has ``sbin/rabbitmq-server``), which runs on the Erlang of the ``PATH``, or a tree of
unpacked packages, with an Erlang of its own.

Brokers are run through ``sbin/rabbitmq-server`` of the installation itself: the wrappers in
``/usr/sbin`` insist on root or the user ``rabbitmq``.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from newsfabric.errors import SetupError

_SERVERS: Final = "usr/lib/rabbitmq/lib"
_ERLANG: Final = "usr/lib/erlang/bin"
VARIABLE: Final = "NEWSFABRIC_RABBITMQ_HOME"
# The oldest version that newsfabric was ever run on (docs/platforms.md).
_OLDEST: Final = (3, 10)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RabbitmqHome:
    """An installed RabbitMQ that the current user can run.

    Start a process of it with ``{**os.environ, **home.environment}`` and a ``HOME`` of your own,
    since Erlang reads its cookie there.
    """

    version: str
    sbin: Path
    """Holds ``rabbitmq-server``, ``rabbitmqctl``, ``rabbitmq-plugins``, …"""
    epmd: Path
    environment: dict[str, str]
    """Whole values for ``PATH`` and, where needed, ``LD_LIBRARY_PATH``."""

    @property
    def erlang_libraries(self) -> Path:
        """The folder of Erlang's libraries, a folder each; it may not exist for an unusual erl."""
        erl = shutil.which("erl", path=self.environment["PATH"]) or "erl"
        return Path(erl).resolve().parents[1] / "lib"

    @property
    def forgets_folders(self) -> bool:
        """True if its Erlang is older than OTP 26, and looks for each module in every folder."""
        return any(self.erlang_libraries.glob("kernel-[1-8].*"))


def find_rabbitmq(
    root: Path, environ: Mapping[str, str], *, system: Path = Path("/")
) -> RabbitmqHome:
    """Return the RabbitMQ to run; raise :class:`SetupError` when there is none.

    ``root`` is the checkout (with ``.tools/rabbitmq``), ``system`` the folder that stands for
    ``/``. ``NEWSFABRIC_ROOTLESS=1`` in ``environ`` leaves the system's installation out.
    """
    if named := environ.get(VARIABLE):
        return rabbitmq_in(Path(named), environ, named_as=f"{VARIABLE}={named}", system=system)
    if not environ.get("NEWSFABRIC_ROOTLESS") and (home := _system_home(environ, system)):
        return home
    if home := _unpacked_home(root.resolve() / ".tools" / "rabbitmq", environ):
        return home
    raise SetupError(
        "RabbitMQ is missing. As root: apt-get install rabbitmq-server (Debian starts a node of "
        "it, which newsfabric doesn't use: systemctl disable --now rabbitmq-server). Or unpack one "
        "and name its folder in NEWSFABRIC_RABBITMQ_HOME, with Erlang's erl on the PATH. In a "
        "checkout `make setup` does it, also without root"
    )


def rabbitmq_in(
    folder: Path, environ: Mapping[str, str], *, named_as: str, system: Path = Path("/")
) -> RabbitmqHome:
    """Return the RabbitMQ in ``folder``, a server's or an unpacked tree; SetupError without one.

    ``named_as`` is the person's name for it, for errors.
    """
    # Absolute: its processes run in another folder.
    folder = folder.absolute()
    if not _is_server(folder):
        if home := _unpacked_home(folder, environ):
            return home
        if (server := _newest_server(folder / _SERVERS)) is None:
            raise SetupError(
                f"{named_as} has no sbin/rabbitmq-server, and none below "
                f"{_SERVERS}/rabbitmq_server-*"
            )
        folder = server
    erl = _erl_on_path(environ) or _executable(system / _ERLANG / "erl")
    if erl is None:
        raise SetupError(f"RabbitMQ in {folder} needs Erlang: put erl on the PATH")
    return _home(folder, erl, environ)


def _system_home(environ: Mapping[str, str], system: Path) -> RabbitmqHome | None:
    server = _newest_server(system / _SERVERS)
    if server is None:
        return None
    # The distribution's Erlang first: it fits its RabbitMQ, while another one on the PATH may be
    # too new for it.
    erl = _executable(system / _ERLANG / "erl") or _erl_on_path(environ)
    if erl is None:
        raise SetupError(f"RabbitMQ in {server} needs Erlang: install the package erlang-base")
    return _home(server, erl, environ)


def _unpacked_home(tree: Path, environ: Mapping[str, str]) -> RabbitmqHome | None:
    server = _newest_server(tree / _SERVERS)
    erl = _executable(tree / _ERLANG / "erl")
    if server is None or erl is None:
        return None
    # Shared libraries that were unpacked because the system lacks them (libsctp1, libwrap0, …).
    libraries = sorted([*tree.glob("lib/*-linux-*"), *tree.glob("usr/lib/*-linux-*")])
    if any((folder / "libc.so.6").exists() for folder in libraries):
        # Its programs find their libraries themselves; others would fail with that C library.
        libraries = []
    return _home(server, erl, environ, libraries)


def _home(
    server: Path, erl: Path, environ: Mapping[str, str], libraries: list[Path] | None = None
) -> RabbitmqHome:
    version = _version_of(server)
    if _numbers(version)[:2] < _OLDEST:
        raise SetupError(
            f"RabbitMQ {version} in {server} is too old: newsfabric needs 3.10, the oldest that "
            "it is tested with (docs/platforms.md)"
        )
    sbin = server / "sbin"
    environment = {"PATH": _prepend([erl.parent, sbin], environ.get("PATH") or os.defpath)}
    if libraries:
        inherited = environ.get("LD_LIBRARY_PATH", "")
        environment["LD_LIBRARY_PATH"] = _prepend(libraries, inherited)
    return RabbitmqHome(version=version, sbin=sbin, epmd=_epmd_beside(erl), environment=environment)


def _newest_server(folder: Path) -> Path | None:
    servers = filter(_is_server, folder.glob("rabbitmq_server-*"))
    return max(servers, key=lambda server: _numbers(_version_of(server)), default=None)


def _is_server(folder: Path) -> bool:
    return _executable(folder / "sbin" / "rabbitmq-server") is not None


def _version_of(server: Path) -> str:
    # The plugin's name, not the folder's: a folder may have been renamed or be a link.
    for plugin in server.glob("plugins/rabbit-[0-9]*"):
        return plugin.name.removeprefix("rabbit-").removesuffix(".ez")
    raise SetupError(f"RabbitMQ in {server} is incomplete: it has no plugins/rabbit-*")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))


def _epmd_beside(erl: Path) -> Path:
    erlang = erl.resolve().parent
    for candidate in [erlang / "epmd", *erlang.parent.glob("erts-*/bin/epmd")]:
        if epmd := _executable(candidate):
            return epmd
    raise SetupError(f"Erlang in {erlang} has no epmd: install the package erlang-base")


def _erl_on_path(environ: Mapping[str, str]) -> Path | None:
    found = shutil.which("erl", path=environ.get("PATH") or os.defpath)
    return Path(found) if found else None


def _executable(path: Path) -> Path | None:
    return path if os.access(path, os.X_OK) else None


def _prepend(folders: list[Path], inherited: str) -> str:
    return os.pathsep.join([*map(str, folders), *filter(None, [inherited])])
