"""Notifications to the supervisor that started a process: systemd's protocol (sd_notify(3)).

One datagram of ``NAME=VALUE`` lines to the socket in ``NOTIFY_SOCKET``. Without that variable
nothing is sent. A failed notification is no reason to fail: the supervisor acts as after any
silence.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Mapping
from typing import Final

logger = logging.getLogger(__name__)

READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"
WATCHDOG: Final = "WATCHDOG=1"


def notify(*lines: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Send ``lines``; return whether they were sent."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address:
        return False
    # unix(7): an abstract name begins with a NUL; variables can't, so it is written "@".
    place = "\0" + address[1:] if address.startswith("@") else address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            # The event loop sends this: it must not wait for a supervisor that doesn't read.
            sender.setblocking(False)
            sender.connect(place)
            sender.send("\n".join(lines).encode())
    except OSError as exc:
        logger.warning("can't notify the supervisor at %s: %s", address, exc)
        return False
    return True


def watchdog_seconds(environ: Mapping[str, str] = os.environ, pid: int | None = None) -> float:
    """Return the longest time between two ``WATCHDOG`` messages; 0 if no supervisor waits for them.

    ``pid`` is ours: the supervisor names the process that it watches (sd_watchdog_enabled(3)).
    """
    if environ.get("WATCHDOG_PID", str(pid or os.getpid())) != str(pid or os.getpid()):
        return 0.0
    text = environ.get("WATCHDOG_USEC", "")
    return int(text) / 1e6 if text.isascii() and text.isdecimal() else 0.0


async def keep_watched(environ: Mapping[str, str] = os.environ) -> None:
    """Report for ever that the loop turns, twice as often as needed; return if not wanted."""
    seconds = watchdog_seconds(environ)
    while seconds > 0:
        notify(WATCHDOG, environ=environ)
        await asyncio.sleep(seconds / 2)
