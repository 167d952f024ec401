"""ssh's ProxyCommand: connects within the fleet's network and hands ssh the connected socket.

Called as ``connect.py NAMESPACE HOST PORT``, with ``ProxyUseFdpass yes``. So ssh, and all programs
that use it, can stay outside the fleet's network, and no byte passes through this process. It is
started for each connection: it imports nothing of ours.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys

_CLONE_NEWNET = 0x40000000
_SECONDS = 10.0


def enter(namespace: str) -> None:
    """Make new sockets of this thread belong to that network namespace. OSError on failure."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(namespace, "rb") as opened:
        # os.setns exists since Python 3.12.
        if libc.setns(opened.fileno(), _CLONE_NEWNET) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), namespace)


def main() -> int:
    """Connect and pass the socket to ssh; return 0, or 1 after an error."""
    namespace, host, port = sys.argv[1:4]
    try:
        enter(namespace)
        connection = socket.create_connection((host, int(port)), timeout=_SECONDS)
    except OSError as exc:
        print(f"{host}:{port}: {exc}", file=sys.stderr)
        return 1
    connection.setblocking(True)
    with socket.socket(fileno=os.dup(sys.stdout.fileno())) as ssh:
        socket.send_fds(ssh, [b"\0"], [connection.fileno()])
    return 0


if __name__ == "__main__":
    sys.exit(main())
