"""One RabbitMQ node as a process of ours: its files, its environment, its start.

Used by the world for its clusters and by tests for a single node (:class:`LocalNode`).
It knows no topology: what the node holds is in the definitions file that it is given.

A node keeps nothing worth keeping, so killing it is a proper way to stop it. It logs to
stdout alone, because a boot that fails early says so nowhere else.
"""

from __future__ import annotations

import dataclasses
import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from newsfabric.environment import without_secrets
from newsfabric.errors import WorldError
from newsfabric.world.processes import MARKER, last_lines, spawn
from newsfabric.world.rabbitmq_home import RabbitmqHome

HOST: Final = "127.0.0.1"
# RabbitMQ's own default, said aloud because what entrances have must stay below it.
FRAME_MAX: Final = 131_072
# Of entrances (client and proxy clusters). Each shovel adds to a message, whose properties RabbitMQ
# doesn't cut into frames: with room to grow they stay below what the core's nodes agree on.
_ENTRANCE_FRAME_MAX: Final = 65_536
# A body in bytes: anything that comes through an entrance, which takes twice what a router does. A
# shovel fetches a thousand messages ahead: 128 MiB, where a node's alarm is at 512 MB.
_MESSAGE_MAX: Final = 1_048_576
_ENTRANCE_MESSAGE_MAX: Final = 131_072
PLUGINS: Final = ("rabbitmq_management", "rabbitmq_shovel", "rabbitmq_shovel_management")
# Older ones refuse to start on a setting they don't know (seen with 3.10.8).
_STAMPS_SINCE: Final = (3, 12)
# AMQP 0-9-1 section 4.2.2: what an initiator says first.
_PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"
# Below the kernel's ephemeral range (32768 and up), above what a world takes by default.
_TEST_PORTS: Final = range(26_000, 32_000)
# Alone on a machine a node takes 4 s; eight at once on two slow cores took 40 s.
START_TIMEOUT: Final = 120.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """What a node is: its name, its folder, its ports, its peers.

    ``peers`` are the names of all nodes of its cluster, itself included; empty for a node
    of its own. ``frame_max`` (bytes) bounds what one frame may hold, and so a message's properties,
    ``message_max`` (bytes) its body.
    ``definitions`` is loaded at boot and must then also make the user. ``settings`` are more lines
    for ``rabbitmq.conf``, ``plugins`` more plugins.
    """

    name: str
    folder: Path
    amqp_port: int
    management_port: int
    distribution_port: int
    epmd_port: int
    peers: tuple[str, ...] = ()
    frame_max: int = FRAME_MAX
    message_max: int = _MESSAGE_MAX
    definitions: Path | None = None
    settings: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()

    @property
    def node(self) -> str:
        """The Erlang node name."""
        return f"{self.name}@localhost"

    @property
    def amqp_url(self) -> str:
        """Where publishers, services and shovels connect; without credentials."""
        return f"amqp://{HOST}:{self.amqp_port}/%2F"

    @property
    def management_url(self) -> str:
        """Base of the management API and its pages."""
        return f"http://{HOST}:{self.management_port}"


def entrance(broker: Broker) -> Broker:
    """``broker`` as publishers may connect to it: it takes smaller frames and messages."""
    return dataclasses.replace(
        broker, frame_max=_ENTRANCE_FRAME_MAX, message_max=_ENTRANCE_MESSAGE_MAX
    )


def configuration(broker: Broker, version: str) -> str:
    """The ``rabbitmq.conf`` of ``broker`` for a RabbitMQ of ``version``."""
    lines = [
        f"listeners.tcp.default = {HOST}:{broker.amqp_port}",
        f"management.tcp.ip = {HOST}",
        f"management.tcp.port = {broker.management_port}",
        "vm_memory_high_watermark.absolute = 512MB",
        "disk_free_limit.absolute = 50MB",
        f"max_message_size = {broker.message_max}",
        f"frame_max = {broker.frame_max}",
        # Nobody looks at rates here, and six nodes share this machine.
        "management.rates_mode = none",
        "log.console.level = info",
    ]
    if _release(version) >= _STAMPS_SINCE:
        # The first broker stamps a message; what is stamped stays as it is.
        lines.append("message_interceptors.incoming.set_header_timestamp.overwrite = false")
    if broker.definitions is not None:
        lines.append(f"load_definitions = {broker.definitions}")
    lines += broker.settings
    if len(broker.peers) > 1:
        lines.append("cluster_formation.peer_discovery_backend = classic_config")
        lines += [
            f"cluster_formation.classic_config.nodes.{n} = {peer}@localhost"
            for n, peer in enumerate(broker.peers, 1)
        ]
    return "\n".join(lines) + "\n"


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


def environment(
    broker: Broker, home: RabbitmqHome, environ: Mapping[str, str], *, marker: Path, erlang: Path
) -> dict[str, str]:
    """The environment to run ``broker`` (or its ctl) in, on top of a person's ``environ``.

    ``erlang`` is the folder with the cookie that the nodes of one world share.
    """
    folder = broker.folder
    return (
        # Nothing else: neither a person's logins nor a RABBITMQ_NODENAME or ERL_FLAGS.
        without_secrets(environ)
        | home.environment
        | {
            MARKER: str(marker),
            "HOME": str(erlang),
            "ERL_EPMD_PORT": str(broker.epmd_port),
            "ERL_EPMD_ADDRESS": HOST,
            "RABBITMQ_NODENAME": broker.node,
            "RABBITMQ_DIST_PORT": str(broker.distribution_port),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "rabbitmq-env.conf"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "advanced.config"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(folder / "generated"),
            "RABBITMQ_FEATURE_FLAGS_FILE": str(folder / "feature_flags"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                "-start_epmd false -kernel inet_dist_use_interface {127,0,0,1} +S 1:1"
            ),
            # Makes the script become the Erlang VM instead of watching over it: one pid a node.
            "RUNNING_UNDER_SYSTEMD": "1",
        }
    )


def prepare(broker: Broker, version: str) -> None:
    """Write the node's files for a RabbitMQ of ``version``; what an earlier run left is kept."""
    broker.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _write(broker.folder / "rabbitmq.conf", configuration(broker, version))
    _write(broker.folder / "enabled_plugins", f"[{','.join((*PLUGINS, *broker.plugins))}].\n")
    # Present and empty, so that the system's own isn't read.
    _write(broker.folder / "rabbitmq-env.conf", "")


def prepare_cookie(erlang: Path) -> None:
    """Give the world's nodes a secret of their own to know each other by."""
    erlang.mkdir(mode=0o700, parents=True, exist_ok=True)
    cookie = erlang / ".erlang.cookie"
    if not cookie.exists():
        _write(cookie, secrets.token_hex(20))
        # Erlang refuses a cookie that others may read.
        cookie.chmod(0o400)


def epmd_command(home: RabbitmqHome, port: int) -> list[str]:
    """Run Erlang's port mapper in the foreground, on loopback."""
    return [str(home.epmd), "-port", str(port), "-address", HOST]


def broker_command(home: RabbitmqHome) -> list[str]:
    """Run a node in the foreground; the environment says which."""
    return [str(home.sbin / "rabbitmq-server")]


def answers(port: int, *, timeout: float = 1.0) -> bool:
    """Whether a broker on ``port`` answers an AMQP greeting. RabbitMQ listens last of all."""
    try:
        with socket.create_connection((HOST, port), timeout=timeout) as connection:
            connection.sendall(_PROTOCOL_HEADER)
            # A method frame (type 1), Connection.Start, and not another protocol header.
            return connection.recv(1) == b"\x01"
    except OSError:
        return False


def listening(port: int) -> bool:
    """Whether something accepts connections on loopback ``port``."""
    try:
        socket.create_connection((HOST, port), timeout=1.0).close()
    except OSError:
        return False
    return True


def free_ports(count: int) -> list[int]:
    """``count`` loopback ports that nobody uses, and that no other process gets from here.

    None is one that the kernel hands out to those who connect: a node takes seconds until it
    listens, and does so again after a restart. Until this process ends each port is bound to a
    socket that doesn't listen: a server may listen there (all of ours set SO_REUSEADDR), but
    this function, which binds without, passes it over.
    """
    found: list[int] = []
    while len(found) < count:
        port = secrets.choice(_TEST_PORTS)
        with socket.socket() as candidate:
            try:
                candidate.bind((HOST, port))
            except OSError:
                continue
            candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # Never closed.
            candidate.detach()
        found.append(port)
    return found


class LocalNode:
    """A single node with an epmd of its own, for tests: start, kill, start again.

    Blocking; in a running loop use ``asyncio.to_thread``. The ports stay the same over
    restarts, so that a link can come back. ``definitions``, ``settings`` and ``plugins`` are given
    over to the node. ``also_on`` are the ports of more listeners that ``settings`` make.
    """

    def __init__(
        self,
        folder: Path,
        home: RabbitmqHome,
        *,
        definitions: Path | None = None,
        settings: Sequence[str] = (),
        plugins: Sequence[str] = (),
        also_on: Sequence[int] = (),
        name: str = "node",
    ) -> None:
        amqp, management, distribution, epmd = free_ports(4)
        self.folder = folder
        self.broker = Broker(
            name=name,
            folder=folder / "node",
            amqp_port=amqp,
            management_port=management,
            distribution_port=distribution,
            epmd_port=epmd,
            definitions=definitions,
            settings=tuple(settings),
            plugins=tuple(plugins),
        )
        self._also_on = tuple(also_on)
        self._home = home
        self._environment = environment(
            self.broker, home, os.environ, marker=folder, erlang=folder / "erlang"
        )
        self._epmd: subprocess.Popen[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def amqp_url(self) -> str:
        """Where to connect; the user is ``guest``."""
        return self.broker.amqp_url

    @property
    def management_url(self) -> str:
        """Base of its management API."""
        return self.broker.management_url

    def start(self, *, timeout: float = START_TIMEOUT) -> None:
        """Start it and return when it answers; WorldError with its last words otherwise."""
        prepare_cookie(self.folder / "erlang")
        prepare(self.broker, self._home.version)
        if self._epmd is None or self._epmd.poll() is not None:
            self._epmd = self._spawn(epmd_command(self._home, self.broker.epmd_port), "epmd")
            _wait(self._epmd, lambda: listening(self.broker.epmd_port), 10.0, self._log("epmd"))
        self._process = self._spawn(broker_command(self._home), "node")
        _wait(self._process, self._serves, timeout, self._log("node"))

    def kill(self) -> None:
        """End it as a power cut would (SIGKILL)."""
        _end(self._process, signal.SIGKILL)

    def close(self) -> None:
        """End node and epmd. Idempotent."""
        _end(self._process, signal.SIGKILL)
        _end(self._epmd, signal.SIGKILL)

    def let_go(self) -> None:
        """Leave node and epmd running when this process ends: somebody else ends them."""
        for process in (self._epmd, self._process):
            if process is not None:
                # Popen complains at the end of the interpreter about who seems to run still.
                process.returncode = 0

    def ctl(self, *arguments: str) -> str:
        """Run ``rabbitmqctl`` on the node and return what it prints."""
        command = [str(self._home.sbin / "rabbitmqctl"), "--quiet", *arguments]
        done = subprocess.run(
            command,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=START_TIMEOUT,
            check=False,
        )
        if done.returncode != 0:
            raise WorldError(f"rabbitmqctl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def __enter__(self) -> LocalNode:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _serves(self) -> bool:
        # The listener for TLS comes after the one that answers here.
        return answers(self.broker.amqp_port) and all(map(listening, self._also_on))

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _spawn(self, command: Sequence[str], name: str) -> subprocess.Popen[bytes]:
        return spawn(
            command, environment=self._environment, folder=self.folder, log=self._log(name)
        )


def _wait(
    process: subprocess.Popen[bytes], check: Callable[[], bool], timeout: float, log: Path
) -> None:
    deadline = time.monotonic() + timeout
    while not check():
        if process.poll() is not None:
            raise WorldError(f"{log.stem} died ({process.returncode}):\n{last_lines(log)}")
        if time.monotonic() > deadline:
            raise WorldError(f"{log.stem} doesn't answer after {timeout:.0f} s, see {log}")
        time.sleep(0.05)


def _end(process: subprocess.Popen[bytes] | None, number: signal.Signals) -> None:
    if process is not None and process.poll() is None:
        process.send_signal(number)
        process.wait(timeout=30)


def _write(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8")
