"""No module needs another one that needs it, not even for its types."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def modules() -> dict[str, str]:
    """The source of each module of each top-level package, and of the model."""
    packages = [
        (start, package)
        for start in (ROOT, ROOT / "deploy")
        for package in start.glob("*/__init__.py")
    ]
    packages.append((ROOT, ROOT / "tests/logmodel/__init__.py"))
    files = {
        path.relative_to(start).with_suffix(""): path
        for start, package in packages
        for path in package.parent.rglob("*.py")
    }
    names = {".".join(path.parts): file.read_text() for path, file in files.items()}
    return {name.removesuffix(".__init__"): source for name, source in names.items()}


def imports(name: str, source: str, known: set[str]) -> set[str]:
    """Those of ``known`` that module ``name`` imports anywhere."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: write out what you import from"
            parts = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= parts & known or {node.module}
    return (found & known) - {name}


def in_order(sources: dict[str, str]) -> list[str]:
    """Each after what it needs; CycleError names a circle."""
    known = set(sources)
    needs = {name: imports(name, source, known) for name, source in sources.items()}
    return list(TopologicalSorter(needs).static_order())


def test_the_imports_have_no_circle() -> None:
    sources = modules()
    order = in_order(sources)
    assert order.index("newsfabric.errors") < order.index("gateway.hub")
    assert order.index("gateway.hub") < order.index("gateway.desk")
    packages = {
        "newsfabric",
        "operations",
        "gateway",
        "wholesale",
        "retail",
        "shovels",
        "localfabric",
    }
    assert order.index("tests.logmodel.gateway") < order.index("tests.logmodel.world")
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
