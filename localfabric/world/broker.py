"""A RabbitMQ node as a child process: its files, its environment, its start.

The module knows no topology: the node's queues and exchanges are in its definitions file.

A node's data are not needed later, so it may be stopped by a kill. It logs to stdout alone, because
a boot that fails early logs nowhere else.
"""

from __future__ import annotations

import dataclasses
import secrets
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from localfabric.world import bounded_declarations, hidden_logins
from localfabric.world.plugins import link_modules, link_plugins
from localfabric.world.processes import MARKER
from localfabric.world.rabbitmq_home import RabbitmqHome
from newsfabric.errors import WorldError
from newsfabric.process.environment import without_secrets

HOST: Final = "127.0.0.1"
# RabbitMQ's own default, explicit because headers from entrances must stay below it.
FRAME_MAX: Final = 131_072
# Of entrances (client and proxy clusters). RabbitMQ doesn't cut a message's properties into frames,
# so this bounds them. Measured with 100 waiting messages, in frames of 64 KiB and of 20 KiB full of
# short fields: each takes 71 and 24 KB of the memory of RabbitMQ 4.3.6, and 410 and 365 KB of
# 3.10.8's, where publishing one takes 140 and 17 ms. Routers refuse headers of more than 16 KiB.
# Each shovel adds headers to a message, which still fits the core brokers' larger frames. RabbitMQ
# 4.1 and later require 8 KiB at least.
_ENTRANCE_FRAME_MAX: Final = 20_480
# Bodies in bytes. Each broker accepts any body that an entrance accepts, and an entrance twice the
# size that a router does. A shovel prefetches a thousand messages: 128 MiB; the alarm is at 512 MB.
_MESSAGE_MAX: Final = 1_048_576
_ENTRANCE_MESSAGE_MAX: Final = 131_072
# AMQP 1.0, which RabbitMQ 4 speaks on every listener, stores a link's name and address, which may
# fill a frame, and has limits only for sessions and links. With RabbitMQ's defaults, 64 sessions of
# 256 links, one publisher's connection cost an entrance 760 MB in two seconds. Publishers may speak
# it: their connection stores 16 frames at most. Elsewhere it isn't used: RabbitMQ closes a
# connection without a right to sessions right after its login.
ENTRANCE_SESSIONS: Final = 2
_LINKS: Final = 8
PLUGINS: Final = ("rabbitmq_management", "rabbitmq_shovel", "rabbitmq_shovel_management")
# Older versions refuse to start on an unknown setting (seen with 3.10.8).
_STAMPS_SINCE: Final = (3, 12)
# Deprecated features are refused, so that no part begins to need one. Each version obeys the names
# it knows: 3.10 none, and in rabbitmq.conf it would refuse to start on one. Ansible's role rabbitmq
# and the Helm chart have the same list.
REFUSED: Final = (
    "amqp_address_v1",
    "amqp_filter_set_bug",
    "classic_queue_mirroring",
    "global_qos",
    "management_metrics_collection",
    "queue_master_locator",
    "ram_node_type",
    "transient_nonexcl_queues",
)
# AMQP 0-9-1 section 4.2.2: the first bytes from the side that connects.
_PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"
# Alone on a machine a node takes 4 s; eight at once on two slow cores took 40 s.
START_TIMEOUT: Final = 120.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WorldBroker:
    """The description of a node: its name, its folder, its ports.

    ``frame_max`` (bytes) bounds a frame, and so a message's properties, ``message_max`` (bytes) its
    body. ``sessions``: of AMQP 1.0, for each connection; 0 refuses AMQP 1.0. ``stamps``: it adds
    the time of arrival to messages, if its version can. ``definitions`` is loaded at boot and must
    then also make the user. ``settings`` are more lines for ``rabbitmq.conf``, ``plugins`` more
    plugins.
    """

    name: str
    folder: Path
    amqp_port: int
    management_port: int
    distribution_port: int
    epmd_port: int
    frame_max: int = FRAME_MAX
    message_max: int = _MESSAGE_MAX
    definitions: Path | None = None
    sessions: int = 0
    stamps: bool = False
    settings: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()

    @property
    def node(self) -> str:
        """The Erlang node name."""
        return f"{self.name}@localhost"

    @property
    def amqp_url(self) -> str:
        """The URL for publishers, services and shovels; without credentials."""
        return f"amqp://{HOST}:{self.amqp_port}/%2F"

    @property
    def management_url(self) -> str:
        """The base URL of the management API and its pages."""
        return f"http://{HOST}:{self.management_port}"


def entrance(broker: WorldBroker) -> WorldBroker:
    """Return ``broker`` as publishers may use it, with timestamps and smaller frames and messages.

    Other brokers add no timestamps. RabbitMQ 4 closes a connection over a ``timestamp_in_ms`` that
    it can't convert: here it is the publisher's own. Behind an entrance that accepted it, it would
    be the shovel's, again and again.
    """
    return dataclasses.replace(
        broker,
        frame_max=_ENTRANCE_FRAME_MAX,
        message_max=_ENTRANCE_MESSAGE_MAX,
        sessions=ENTRANCE_SESSIONS,
        stamps=True,
    )


def configuration(broker: WorldBroker, version: str) -> str:
    """Return the ``rabbitmq.conf`` of ``broker`` for a RabbitMQ of ``version``."""
    lines = [
        f"listeners.tcp.default = {HOST}:{broker.amqp_port}",
        f"management.tcp.ip = {HOST}",
        f"management.tcp.port = {broker.management_port}",
        "vm_memory_high_watermark.absolute = 512MB",
        "disk_free_limit.absolute = 50MB",
        f"max_message_size = {broker.message_max}",
        f"frame_max = {broker.frame_max}",
        # Rates aren't used here, and six nodes share this machine.
        "management.rates_mode = none",
        "log.console.level = info",
    ]
    if broker.stamps and _release(version) >= _STAMPS_SINCE:
        # The first broker adds the timestamp; an existing one is kept.
        lines.append("message_interceptors.incoming.set_header_timestamp.overwrite = false")
    if broker.definitions is not None:
        lines.append(f"load_definitions = {broker.definitions}")
    lines += broker.settings
    return "\n".join(lines) + "\n"


def advanced(sessions: int) -> str:
    """Return the ``advanced.config`` of a broker: its refused features (:data:`REFUSED`), and the
    number of ``sessions`` of AMQP 1.0 for a connection. ``rabbitmq.conf`` doesn't accept 0."""
    features = ",\n".join(f"        {feature} => false" for feature in REFUSED)
    return (
        "[{rabbit, [\n"
        f"    {{session_max_per_connection, {sessions}}},\n"
        f"    {{link_max_per_session, {_LINKS}}},\n"
        f"    {{permit_deprecated_features, #{{\n{features}\n    }}}}\n"
        "]}].\n"
    )


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


def environment(
    broker: WorldBroker,
    home: RabbitmqHome,
    environ: Mapping[str, str],
    *,
    marker: Path,
    erlang: Path,
) -> dict[str, str]:
    """Return the environment of ``broker`` (or its ctl), on top of a person's ``environ``.

    ``erlang`` is the folder with the cookie that the nodes of one world share.
    """
    folder = broker.folder
    return (
        # Without a person's logins, RABBITMQ_NODENAME or ERL_FLAGS.
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
            "RABBITMQ_PLUGINS_DIR": str(folder / "plugins"),
            "RABBITMQ_SERVER_CODE_PATH": str(_modules(broker, home)),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "rabbitmq-env.conf"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "advanced.config"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(folder / "generated"),
            "RABBITMQ_FEATURE_FLAGS_FILE": str(folder / "feature_flags"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                "-start_epmd false -kernel inet_dist_use_interface {127,0,0,1} +S 1:1"
            ),
            "ERL_AFLAGS": hidden_logins.erl_flags(
                folder / hidden_logins.FILE, folder / bounded_declarations.FILE
            ),
            # A crash dump contains every password, and would lie among the logs.
            "ERL_CRASH_DUMP_BYTES": "0",
            # Makes the script become the Erlang VM instead of its parent: one pid a node.
            "RUNNING_UNDER_SYSTEMD": "1",
        }
    )


def prepare(broker: WorldBroker, home: RabbitmqHome) -> None:
    """Write the node's files for the RabbitMQ of ``home``; data of an earlier run are kept.

    WorldError if the host of its name, ``NAME@localhost``, can't be resolved.
    """
    try:
        socket.gethostbyname("localhost")
    except OSError as exc:
        # A node's own error is hidden in a hundred lines.
        raise WorldError(
            "localhost is no name on this machine, and RabbitMQ's nodes are called by it: "
            'put "127.0.0.1 localhost" into /etc/hosts'
        ) from exc
    broker.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _write(broker.folder / "rabbitmq.conf", configuration(broker, home.version))
    _write(broker.folder / "advanced.config", advanced(broker.sessions))
    _write(broker.folder / hidden_logins.FILE, hidden_logins.EXPRESSIONS)
    _write(broker.folder / bounded_declarations.FILE, bounded_declarations.EXPRESSIONS)
    plugins = (*PLUGINS, *broker.plugins)
    _write(broker.folder / "enabled_plugins", f"[{','.join(plugins)}].\n")
    link_plugins(home.sbin.parent / "plugins", plugins, broker.folder / "plugins")
    if home.forgets_folders:
        link_modules(broker.folder / "plugins", home.erlang_libraries, _modules(broker, home))
    # Present and empty, so that the system's own isn't read.
    _write(broker.folder / "rabbitmq-env.conf", "")


def _modules(broker: WorldBroker, home: RabbitmqHome) -> Path:
    return broker.folder.parent / f"modules-{home.version}"


def prepare_cookie(erlang: Path) -> None:
    """Give the world's nodes the secret that ``rabbitmqctl`` logs in with."""
    erlang.mkdir(mode=0o700, parents=True, exist_ok=True)
    cookie = erlang / ".erlang.cookie"
    if not cookie.exists():
        _write(cookie, secrets.token_hex(20))
        # Erlang refuses a cookie that others may read.
        cookie.chmod(0o400)


def epmd_command(home: RabbitmqHome, port: int) -> list[str]:
    """Return the command of Erlang's port mapper in the foreground, on loopback."""
    return [str(home.epmd), "-port", str(port), "-address", HOST]


def broker_command(home: RabbitmqHome) -> list[str]:
    """Return the command of a node in the foreground; the environment selects the node."""
    return [str(home.sbin / "rabbitmq-server")]


def answers(port: int, *, timeout: float = 1.0) -> bool:
    """Return whether a broker on ``port`` answers AMQP. RabbitMQ listens last of all."""
    try:
        with socket.create_connection((HOST, port), timeout=timeout) as connection:
            connection.sendall(_PROTOCOL_HEADER)
            # A method frame (type 1), Connection.Start, and not another protocol header.
            return connection.recv(1) == b"\x01"
    except OSError:
        return False


def listening(port: int) -> bool:
    """Return whether a server accepts connections on loopback ``port``."""
    try:
        socket.create_connection((HOST, port), timeout=1.0).close()
    except OSError:
        return False
    return True


def _write(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8")
