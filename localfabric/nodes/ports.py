"""Ports for servers that listen here for a while."""

from __future__ import annotations

import secrets
import socket
from typing import Final

from localfabric.world.broker import HOST

# Below the kernel's ephemeral range (32768 and up), above a world's default ports.
_TEST_PORTS: Final = range(26_000, 32_000)


def free_ports(count: int) -> list[int]:
    """Return ``count`` loopback ports that are free, and that no other process gets from here.

    None is in the range from which the kernel takes ports of clients: a node listens only after
    seconds, and again after a restart. Until this process ends each port is bound to a socket that
    doesn't listen. A server may listen there (all of ours set SO_REUSEADDR), but this function,
    which binds without that option, skips the port.
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
            # Stays open until the process ends.
            candidate.detach()
        found.append(port)
    return found
