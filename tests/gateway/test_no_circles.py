"""No module of the gateway needs another one that needs it, not even for its types."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]


def modules() -> dict[str, Path]:
    files = (path for path in (ROOT / "gateway").rglob("*.py") if "dataplane" not in path.parts)
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in files}
    return {name.removesuffix(".__init__"): path for name, path in names.items()}


def imports(path: Path, known: dict[str, Path]) -> set[str]:
    """Those of ``known`` that are imported anywhere in the file."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            parts = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= parts & known.keys() or {node.module}
    return found & known.keys()


def test_the_gateways_imports_have_no_circle() -> None:
    known = modules()
    needs = {name: imports(path, known) - {name} for name, path in known.items()}
    assert "gateway.hub" in needs["gateway.desk"]
    # CycleError names the circle.
    order = list(TopologicalSorter(needs).static_order())
    assert len(order) == len(known)
