"""clients/js: its own tests under Node, its types, and what is built of it for pages to load."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parents[2]
CLIENT: Final = ROOT / "clients" / "js"
# Minified and gzipped, without sockjs-client.
MOST_BYTES: Final = 12 * 1024


def _missing(what: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(f"CI must have {what}: `make setup` installs it")
    pytest.skip(f"{what} is not installed")


def _node(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    if shutil.which("node") is None:
        _missing("node")
    return subprocess.run(
        ["node", *arguments], cwd=CLIENT, capture_output=True, text=True, timeout=110, check=False
    )


def _need(package: str) -> None:
    if not (CLIENT / "node_modules" / package).is_dir():
        _missing(f"clients/js/node_modules/{package}")


@functools.cache
def _built() -> dict[str, Any]:
    _need("esbuild")
    build = _node("build.mjs", "--check")
    assert build.returncode == 0, build.stderr
    report: dict[str, Any] = json.loads(build.stdout)
    return report


@pytest.mark.parametrize(
    "suite", sorted(path.name for path in (CLIENT / "test").glob("*.test.mjs"))
)
def test_the_suite_passes_under_node(suite: str) -> None:
    _need("esbuild")
    run = _node("--import", "./test/typescript.mjs", "--test", f"test/{suite}")
    assert run.returncode == 0, run.stdout


def test_what_frontdesks_serve_is_built_from_these_sources() -> None:
    assert _built()["stale"] == [], "run `npm run build` in clients/js"


def test_it_is_small() -> None:
    sizes = _built()["gzipped"]
    assert set(sizes) == {"newsfabric.js", "newsfabric.mjs"}
    assert max(sizes.values()) <= MOST_BYTES


def test_its_types_say_what_pages_may_write() -> None:
    _need("esbuild")
    _need("typescript")
    made = _node("build.mjs", "--types")
    assert made.returncode == 0, made.stderr
    checked = _node("node_modules/typescript/bin/tsc", "--project", "tsconfig.json")
    assert checked.returncode == 0, checked.stdout


def test_it_depends_on_sockjs_client_alone_and_not_even_always() -> None:
    package = json.loads((CLIENT / "package.json").read_text(encoding="utf-8"))
    assert "dependencies" not in package
    assert set(package["peerDependencies"]) == {"sockjs-client"}
    assert package["peerDependenciesMeta"] == {"sockjs-client": {"optional": True}}


def test_the_lock_file_names_no_host_but_the_registry() -> None:
    lock = json.loads((CLIENT / "package-lock.json").read_text(encoding="utf-8"))
    named = [entry["resolved"] for entry in lock["packages"].values() if "resolved" in entry]
    assert [url for url in named if not url.startswith("https://registry.npmjs.org/")] == []


def test_the_wheel_and_the_package_are_of_one_version() -> None:
    package = json.loads((CLIENT / "package.json").read_text(encoding="utf-8"))
    assert f'version = "{package["version"]}"' in (ROOT / "pyproject.toml").read_text()
