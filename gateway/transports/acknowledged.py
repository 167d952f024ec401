"""The time since a peer's kernel last acknowledged data: the sign of life of a silent reader.

A reader of an event stream, or of SockJS over HTTP, sends nothing after its request. But its
machine acknowledges received data, also heartbeats, whatever the page does; a machine without a
network doesn't. A successful write here proves nothing: the kernel here buffers megabytes. Linux
reports the time (tcp(7), ``TCP_INFO``). Behind a proxy, the proxy's machine acknowledges.
"""

from __future__ import annotations

import socket
import struct
from typing import Final

# struct tcp_info of linux/tcp.h: 8 bytes, 12 numbers of 32 bits, then tcpi_last_ack_recv in ms.
_LAST_ACK: Final = struct.Struct("=56xI")
# The kernel counts in ticks, and an acknowledgement may arrive before our clock is read.
_COARSE_MS: Final = 20


def since_acknowledged(connection: socket.socket) -> float:
    """Return the seconds since the last acknowledgement, less 20 ms; 0 if that isn't known."""
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LAST_ACK.size)
        (since_ms,) = _LAST_ACK.unpack(info)
    except (OSError, struct.error):
        return 0.0
    return float(max(0, since_ms - _COARSE_MS)) / 1000
