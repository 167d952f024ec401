"""The data plane as the rest of a gateway sees it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from fake_dataplane import fake_dataplane
from gateways import TABLE
from metric_values import value

from gateway.core.core import Core
from gateway.native.plane import Plane
from gateway.process import measures
from gateway.process.settings import GatewaySettings
from newsfabric.store.memory import MemoryStore


async def test_what_waits_there_is_counted_once_however_many_look(tmp_path: Path) -> None:
    settings = GatewaySettings(name="b", region="oregon")
    async with fake_dataplane(tmp_path / "control") as fake:
        engine = Plane(settings, Path("/nowhere"), fake.path)
        core = Core(settings, TABLE, MemoryStore(TABLE), engine)
        engine.totals.update({"outbox_bytes": 1_000, "identities": 7})
        await asyncio.gather(*(core.refresh_metrics() for _ in range(3)))
        assert value(measures.OUTBOXES) == 1_000
        assert value(measures.IDENTITIES) == 7
        await core.close()
