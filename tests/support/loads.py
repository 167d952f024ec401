"""A box's load report, for tests."""

from __future__ import annotations

import dataclasses
from typing import Any

from newsfabric.messages.control import LoadReport

LOAD = LoadReport(
    region="oregon",
    box="oregon-retail-1",
    state="ready",
    connections=1,
    capacity=100,
    deliveries_per_second=0.0,
    connects_per_second=0.0,
    sockjs_url="http://r1.example/sockjs",
    websocket_url="ws://r1.example/websocket",
    sse_url="http://r1.example/events",
    sent_ms=1,
)


def load(**fields: Any) -> LoadReport:
    """Return :data:`LOAD` with other ``fields``."""
    return dataclasses.replace(LOAD, **fields)
