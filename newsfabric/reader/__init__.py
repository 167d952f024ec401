"""A reader in Python: connects to a gateway by any transport and yields its pushes.

For the command line, the world's canary, tests and benches; it isn't the readers' library.
:mod:`newsfabric.reader.following` reconnects, and continues from the last position.

::

    reader = await connect(gateway, "websocket")
    async with reader:
        await reader.subscribe("news.breaking")
        async for push in reader:         # until Disconnected
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
