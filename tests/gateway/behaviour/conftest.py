"""The behaviour suite: everything in this folder is run once for each engine."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from gateways import ENGINES, Box, opened_box


@pytest.fixture(params=list(ENGINES))
def engine(request: pytest.FixtureRequest) -> str:
    """The engine under test."""
    name: str = request.param
    return name


@pytest.fixture
async def box(engine: str) -> AsyncIterator[Box]:
    """A box with default settings."""
    async with opened_box(engine) as box:
        yield box
