"""Imports between our modules, read from their source."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]


def modules() -> dict[str, str]:
    """Return the source of each module of each top-level package."""
    packages = [
        (start, package)
        for start in (ROOT, ROOT / "deploy")
        for package in start.glob("*/__init__.py")
    ]
    files = {
        path.relative_to(start).with_suffix(""): path
        for start, package in packages
        for path in package.parent.rglob("*.py")
    }
    names = {".".join(path.parts): file.read_text() for path, file in files.items()}
    return {name.removesuffix(".__init__"): source for name, source in names.items()}


def imports(name: str, source: str, known: set[str]) -> set[str]:
    """Return the modules of ``known`` that module ``name`` imports anywhere."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: write out what you import from"
            parts = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= parts & known or {node.module or ""}
    return (found & known) - {name}


def needs(sources: dict[str, str]) -> dict[str, set[str]]:
    """Return, for each of ``sources``, its imports of the others."""
    return {name: imports(name, source, set(sources)) for name, source in sources.items()}
