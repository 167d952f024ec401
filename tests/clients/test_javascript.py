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
from answers import as_text, protocol

ROOT: Final = Path(__file__).parents[2]
CLIENT: Final = ROOT / "clients" / "js"
# Minified and gzipped, without sockjs-client.
MOST_BYTES: Final = 16 * 1024


def _missing(what: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(f"CI must have {what}: `make setup` installs it")
    pytest.skip(f"{what} is not installed")


def _node(*arguments: str | Path, seconds: float = 110.0) -> subprocess.CompletedProcess[str]:
    if shutil.which("node") is None:
        _missing("node")
    return subprocess.run(
        ["node", *arguments],
        cwd=CLIENT,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
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


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "suite", sorted(path.name for path in (CLIENT / "test").glob("*.test.mjs"))
)
def test_the_suite_passes_under_node(suite: str) -> None:
    _need("esbuild")
    # The simulation takes a minute of a processor that does nothing else.
    seconds = 570.0 if suite == "simulation.test.mjs" else 110.0
    how = ("--import", "./test/typescript.mjs", "--test")
    run = _node(*how, f"test/{suite}", seconds=seconds)
    assert run.returncode == 0, run.stdout


async def test_simulated_gateways_answer_as_this_one_does(tmp_path: Path) -> None:
    table = CLIENT / "test" / "simulation" / "protocol.json"
    answers = as_text(await protocol(tmp_path))
    assert table.read_text(encoding="utf-8") == answers, "tests/support/answers.py makes it anew"


def test_a_history_that_breaks_an_invariant_is_named() -> None:
    _need("esbuild")
    play = ("--import", "./test/typescript.mjs", "test/simulation/play.mjs")
    assert _node(*play, "--seeds", "1-3").returncode == 0
    found = _node(*play, "--seeds", "1-20", "--planted", "twice")
    assert (found.returncode, found.stdout.splitlines()[0].split(": ")[1]) == (
        1,
        "a message comes twice",
    )


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
