"""When a peer's kernel last acknowledged anything: the sign of life of those who can't answer.

A reader of an event stream, or of SockJS over HTTP, says nothing after its request. But its
machine acknowledges what it is sent, a heartbeat too, whatever the page does, and one whose network
is gone doesn't; that the kernel here takes more proves nothing, for it takes megabytes. Linux says
it (tcp(7), ``TCP_INFO``). Behind a proxy it is the proxy's machine that acknowledges.
"""

from __future__ import annotations

import socket
import struct
from typing import Final

# struct tcp_info of linux/tcp.h: eight bytes, twelve numbers, and tcpi_last_ack_recv in ms.
_LAST_ACK: Final = struct.Struct("=56xI")
# The kernel counts in its ticks, and a peer may be quicker than our clock is read.
_COARSE_MS: Final = 20


def since_acknowledged(connection: socket.socket) -> float:
    """Seconds, or 20 ms less; 0 where nobody can say."""
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LAST_ACK.size)
        (since_ms,) = _LAST_ACK.unpack(info)
    except (OSError, struct.error):
        return 0.0
    return float(max(0, since_ms - _COARSE_MS)) / 1000
