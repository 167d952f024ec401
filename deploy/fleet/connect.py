"""ssh's ProxyCommand: connects within the fleet's network and hands ssh the connected socket.

Called as ``connect.py NAMESPACE HOST PORT``, with ``ProxyUseFdpass yes``. So ssh, and all that
uses it, needs no network of the fleet's, and no byte goes through this process. It is started for
each connection: it imports nothing of ours.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys

_CLONE_NEWNET = 0x40000000
_SECONDS = 10.0


def enter(namespace: str) -> None:
    """Make sockets of this thread belong to that network namespace. OSError if it can't be."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(namespace, "rb") as opened:
        # os.setns came with Python 3.12.
        if libc.setns(opened.fileno(), _CLONE_NEWNET) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), namespace)


def main() -> int:
    """0 when ssh has the socket."""
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
