"""A reader in Python: connects to a gateway by any transport and hands on its pushes.

For the command line, the world's canary, tests and benches; it isn't the readers' library.
Reconnecting, and going on from where it was, is :mod:`newsfabric.reader.following`'s.

::

    reader = await connect(gateway, "websocket")
    async with reader:
        await reader.subscribe("news.breaking")
        async for push in reader:       # until Disconnected
            ...
"""

from __future__ import annotations

from newsfabric.reader.endpoints import Endpoint, Endpoints, fetch_endpoints
from newsfabric.reader.following import follow
from newsfabric.reader.push import Push
from newsfabric.reader.transports import TRANSPORTS, Reader, Transport, connect

__all__ = [
    "TRANSPORTS",
    "Endpoint",
    "Endpoints",
    "Push",
    "Reader",
    "Transport",
    "connect",
    "fetch_endpoints",
    "follow",
]
