"""No two modules need each other, directly or through others, not even for types."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import pytest
from imports import modules, needs


def in_order(sources: dict[str, str]) -> list[str]:
    """Return the modules, each after those it needs; CycleError names a circle."""
    return list(TopologicalSorter(needs(sources)).static_order())


def test_the_imports_have_no_circle() -> None:
    sources = modules()
    order = in_order(sources)
    assert order.index("newsfabric.errors") < order.index("gateway.memory.hub")
    assert order.index("gateway.memory.hub") < order.index("gateway.answers.dispatcher")
    packages = {
        "newsfabric",
        "operations",
        "gateway",
        "wholesale",
        "retail",
        "shovels",
        "localfabric",
    }
    assert order.index("logmodel.gateway") < order.index("logmodel.world")
    assert sources.keys() >= {*packages, "bench", "loadtest", "fleet", "observability", "release"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("import a.other", "from a.one import One"),
        ("from a import other", "if TYPE_CHECKING:\n    from a import one"),
        ("from a.other import Other", "def late() -> None:\n    import a.one"),
    ],
)
def test_a_circle_is_found(one: str, other: str) -> None:
    with pytest.raises(CycleError):
        in_order({"a.one": one, "a.other": other})
