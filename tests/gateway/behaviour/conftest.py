"""The behaviour suite: each test in this folder runs once for each engine."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from gateways import ENGINES, Box, opened_box


@pytest.fixture(params=list(ENGINES))
def engine(request: pytest.FixtureRequest) -> str:
    """Return the name of the engine under test."""
    name: str = request.param
    return name


@pytest.fixture
async def box(engine: str) -> AsyncIterator[Box]:
    """Open a box with default settings."""
    async with opened_box(engine) as box:
        yield box
