"""Store nodes that don't answer yet are asked again after growing pauses."""

from __future__ import annotations

import pytest

from localfabric.world import store_start


async def test_the_pauses_grow_up_to_two_seconds_and_are_drawn(monkeypatch: pytest.MonkeyPatch):
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    async def answers() -> bool:
        return len(pauses) == 60

    monkeypatch.setattr(store_start.asyncio, "sleep", sleep)
    await store_start._until(answers)
    assert pauses[0] <= 0.2
    assert 1.0 < max(pauses) <= 2.0
    assert len(set(pauses)) > 50
