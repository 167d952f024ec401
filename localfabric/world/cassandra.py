"""A Cassandra node as a child process: its files, its command line, its start.

The module knows no tables: ``newsfabric schema apply`` makes them.

Two things differ from a node in production. Every node has assigned tokens and none copies data
when it joins, so that all start at once (they are as new as their cluster). And all listen on
127.0.0.1, each with ports of its own, as everything else of a world does. Nodes of other data
centres may have to connect through a proxy, so that the link can be cut.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import json
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from localfabric.world.broker import HOST
from localfabric.world.cassandra_home import CassandraHome
from localfabric.world.processes import MARKER
from newsfabric.process.environment import without_secrets

HEAP_MB: Final = 384
# Alone on two cores a node takes 6 to 10 s; beside a world that starts, several times that.
START_TIMEOUT: Final = 240.0
# linux/prctl.h; a child inherits it, and keeps it over exec.
_PR_SET_TIMERSLACK: Final = 29
_SLACK_NS: Final = 1_000_000
_TOKENS: Final = 4
_RING: Final = 2**64
# CQL binary protocol v4 section 2: version 4, no flags, stream 0, OPTIONS, empty body.
_OPTIONS: Final = bytes.fromhex("04 00 0000 05 00000000")
_SUPPORTED: Final = 0x06

# Packages that Java 17 must open for Cassandra 5.0 (conf/jvm17-server.options of its release).
_EXPORTS: Final = """
java.base/java.lang.ref java.base/jdk.internal.loader java.base/jdk.internal.math
java.base/jdk.internal.misc java.base/jdk.internal.module java.base/jdk.internal.ref
java.base/jdk.internal.util java.base/jdk.internal.util.jar java.base/sun.nio.ch
java.management.rmi/com.sun.jmx.remote.internal.rmi java.rmi/java.rmi.registry
java.rmi/sun.rmi.registry java.rmi/sun.rmi.server java.rmi/sun.rmi.transport.tcp java.sql/java.sql
jdk.attach/sun.tools.attach jdk.compiler/com.sun.tools.javac.file
jdk.management/com.sun.management.internal
"""
_OPENS: Final = """
java.base/java.io java.base/java.lang java.base/java.lang.module java.base/java.lang.reflect
java.base/java.math java.base/java.net java.base/java.nio java.base/java.nio.charset
java.base/java.nio.file.spi java.base/java.util java.base/java.util.concurrent
java.base/java.util.concurrent.atomic java.base/jdk.internal.loader java.base/jdk.internal.math
java.base/jdk.internal.misc java.base/jdk.internal.module java.base/jdk.internal.ref
java.base/jdk.internal.reflect java.base/jdk.internal.util.jar java.base/sun.nio.ch
java.management.rmi/com.sun.jmx.remote.internal.rmi java.rmi/sun.rmi.transport
java.rmi/sun.rmi.transport.tcp jdk.compiler/com.sun.tools.javac
jdk.management/com.sun.management.internal
"""

_LOGBACK: Final = """<configuration>
  <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%date{ISO8601} %-5level %logger{0}: %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="OUT"/></root>
  <logger name="org.apache.cassandra.service.CassandraDaemon" level="INFO"/>
</configuration>
"""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StoreNode:
    """The description of a node: its name, data centre, folder, ports, and place on the ring.

    ``seeds`` are gossip addresses (``host:port``), the same for all nodes of a cluster.
    ``replicas`` is the number of nodes in its data centre that store each row. ``wire_host`` is the
    address for nodes of other data centres, at the same ports. With :data:`HOST` they connect to
    the node itself; with another one a proxy must listen there.
    """

    name: str
    datacentre: str
    folder: Path
    cql_port: int
    gossip_port: int
    tokens: tuple[int, ...]
    seeds: tuple[str, ...]
    replicas: int = 1
    wire_host: str = HOST

    @property
    def contact(self) -> str:
        """The address for drivers."""
        return f"{HOST}:{self.cql_port}"


def tokens(*, centre: int, node: int, nodes: int) -> tuple[int, ...]:
    """Return the tokens of the ``node``-th of ``nodes`` in the ``centre``-th data centre, from 0.

    Evenly spaced in a data centre, and different in each: no two nodes of a cluster may share one.
    """
    step = _RING // (_TOKENS * nodes)
    return tuple(-(_RING // 2) + (k * nodes + node) * step + 1 + centre for k in range(_TOKENS))


def configuration(node: StoreNode) -> dict[str, object]:
    """Return the ``cassandra.yaml`` of ``node``: small caches, few threads."""
    return {
        "cluster_name": "newsfabric",
        "num_tokens": _TOKENS,
        "initial_token": ",".join(map(str, node.tokens)),
        "auto_bootstrap": False,
        "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
        "endpoint_snitch": "GossipingPropertyFileSnitch",
        "seed_provider": [
            {
                "class_name": "org.apache.cassandra.locator.SimpleSeedProvider",
                "parameters": [{"seeds": ",".join(node.seeds)}],
            }
        ],
        "listen_address": HOST,
        "rpc_address": HOST,
        "storage_port": node.gossip_port,
        "native_transport_port": node.cql_port,
        "start_native_transport": True,
        "authenticator": "AllowAllAuthenticator",
        "authorizer": "AllowAllAuthorizer",
        "data_file_directories": [str(node.folder / "data")],
        "commitlog_directory": str(node.folder / "commitlog"),
        "hints_directory": str(node.folder / "hints"),
        "saved_caches_directory": str(node.folder / "saved_caches"),
        # A write is answered after a sync of the log; writes during a sync share the next. So
        # replicas that lose power at one moment have all writes that they acknowledged.
        "commitlog_sync": "batch",
        # A node whose disk returns wrong bits refuses each read of that file. With three replicas
        # the others have a quorum once the node has stopped, but not while it is still asked.
        "disk_failure_policy": "stop_paranoid" if node.replicas >= 3 else "ignore",
        "commitlog_segment_size": "8MiB",
        "commitlog_total_space": "128MiB",
        "hinted_handoff_enabled": True,
        # A node that was dead gets its missed writes soon after, not ten seconds later.
        "hints_flush_period": "1000ms",
        "max_hint_window": "3h",
        "auto_snapshot": False,
        "cdc_enabled": False,
        "concurrent_reads": 8,
        "concurrent_writes": 16,
        "concurrent_counter_writes": 4,
        "concurrent_compactors": 1,
        "compaction_throughput": "16MiB/s",
        "memtable_allocation_type": "heap_buffers",
        "memtable_heap_space": "48MiB",
        "memtable_offheap_space": "16MiB",
        "key_cache_size": "8MiB",
        "file_cache_enabled": False,
        "file_cache_size": "16MiB",
        "networking_cache_size": "16MiB",
        "disk_optimization_strategy": "ssd",
        "storage_compatibility_mode": "NONE",
        "sstable": {"selected_format": "bti"},
        "read_request_timeout": "5000ms",
        # A node that has just started beside a busy world needs seconds for its first writes.
        "write_request_timeout": "3500ms",
        "request_timeout": "10000ms",
        "cas_contention_timeout": "1000ms",
        **({} if node.wire_host == HOST else {"broadcast_address": node.wire_host}),
    }


def prepare(node: StoreNode, settings: Mapping[str, object] | None = None) -> None:
    """Write the node's files; data of an earlier run are kept.

    ``settings`` are entries of ``cassandra.yaml`` that replace ours.
    """
    conf = node.folder / "conf"
    conf.mkdir(mode=0o700, parents=True, exist_ok=True)
    (node.folder / "tmp").mkdir(mode=0o700, exist_ok=True)
    # JSON is YAML.
    yaml = json.dumps(configuration(node) | dict(settings or {}), indent=1)
    (conf / "cassandra.yaml").write_text(yaml + "\n", encoding="utf-8")
    # Nodes of one data centre connect to each other directly, whatever address others use.
    place = f"dc={node.datacentre}\nrack=rack1\nprefer_local=true\n"
    (conf / "cassandra-rackdc.properties").write_text(place, encoding="utf-8")
    (conf / "logback.xml").write_text(_LOGBACK, encoding="utf-8")


def command(
    node: StoreNode,
    home: CassandraHome,
    *,
    heap_mb: int = HEAP_MB,
    optimised: bool = False,
    options: Sequence[str] = (),
) -> list[str]:
    """Return the command of ``node`` in the foreground, after :func:`prepare`; it logs to stdout.

    ``options`` are Java's, in addition to ours. ``optimised``: with both of Java's compilers, as in
    production, for a node whose speed is measured. Otherwise with the quick one alone: the other
    takes a third of a start's processor time (8.6 s instead of 5.6), and six nodes start on a
    developer's machine at once.
    """
    folder, conf = node.folder, node.folder / "conf"
    properties = {
        "cassandra.config": f"file://{conf}/cassandra.yaml",
        "cassandra-rackdc.properties": f"file://{conf}/cassandra-rackdc.properties",
        "logback.configurationFile": conf / "logback.xml",
        "cassandra.storagedir": folder,
        "cassandra.logdir": folder,
        "java.io.tmpdir": folder / "tmp",
        "jna.tmpdir": folder / "tmp",
        "jdk.attach.allowAttachSelf": "true",
        # Cassandra sets a security manager, for which Java 21 requires this.
        "java.security.manager": "allow",
        "java.net.preferIPv4Stack": "true",
        "io.netty.tryReflectionSetAccessible": "true",
        # A power cut may leave the end of the commit log torn: part of a sync that was never
        # answered. Such a mutation is skipped and logged; otherwise the node would not start.
        "cassandra.commitlog.ignorereplayerrors": "true",
        # All of the cluster starts now: there is no gossip to settle and no ring to wait for.
        "cassandra.skip_wait_for_gossip_to_settle": "0",
        "cassandra.ring_delay_ms": "1000",
        # Cassandra's own value for a ring delay of 30 s. The default is twice the ring delay, and a
        # node that hasn't joined yet is removed from the seeds after a silence of half of it. Two
        # nodes on a busy machine did that to each other, and never connected again.
        "cassandra.gossip_quarantine_delay_ms": "60000",
        "cassandra.superuser_setup_delay_ms": "500",
    }
    return [
        str(home.java),
        "-server",
        f"-Xms{heap_mb}m",
        f"-Xmx{heap_mb}m",
        "-Xss256k",
        "-XX:+UseSerialGC",
        *([] if optimised else ["-XX:TieredStopAtLevel=1"]),
        "-XX:MaxDirectMemorySize=64m",
        "-XX:ReservedCodeCacheSize=64m",
        "-XX:+PerfDisableSharedMem",
        "-XX:+ExitOnOutOfMemoryError",
        *(word for name in _EXPORTS.split() for word in ("--add-exports", f"{name}=ALL-UNNAMED")),
        *(word for name in _OPENS.split() for word in ("--add-opens", f"{name}=ALL-UNNAMED")),
        *(f"-D{name}={value}" for name, value in properties.items()),
        *options,
        "-cp",
        f"{conf}:{home.lib}/*",
        "org.apache.cassandra.service.CassandraDaemon",
    ]


@contextlib.contextmanager
def few_wakeups() -> Iterator[None]:
    """Let processes started inside by this thread sleep up to 1 ms longer than they ask for.

    Cassandra's workers poll for work every 10 µs for a while after each request. With Linux's
    default slack of 50 µs a node with 40 writes a second took 17 % of a core, with this 11 %, and
    answered as fast.
    """
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(_SLACK_NS))
    try:
        yield
    finally:
        # PR_SET_TIMERSLACK(2const): 0 is the thread's default.
        libc.prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(0))


def environment(marker: Path) -> dict[str, str]:
    """Return the environment of a node of the world in ``marker``."""
    # Without a person's JAVA_TOOL_OPTIONS and other logins; few malloc arenas save 100 MB.
    return without_secrets(os.environ) | {MARKER: str(marker), "MALLOC_ARENA_MAX": "2"}


def answers(port: int, *, timeout: float = 1.0) -> bool:
    """Return whether a node on ``port`` answers CQL. It listens last of all."""
    try:
        with socket.create_connection((HOST, port), timeout=timeout) as connection:
            connection.sendall(_OPTIONS)
            head = connection.recv(9)
    except OSError:
        return False
    return len(head) >= 5 and head[4] == _SUPPORTED
