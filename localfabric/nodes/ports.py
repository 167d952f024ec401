"""Ports for whatever listens here for a while."""

from __future__ import annotations

import secrets
import socket
from typing import Final

from localfabric.world.broker import HOST

# Below the kernel's ephemeral range (32768 and up), above what a world takes by default.
_TEST_PORTS: Final = range(26_000, 32_000)


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
