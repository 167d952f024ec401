"""clients/js: its own tests under Node, its types, and the files built from it for pages."""

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


@pytest.mark.parametrize(
    "suite", sorted(path.name for path in (CLIENT / "test").glob("*.test.mjs"))
)
def test_the_suite_passes_under_node(suite: str) -> None:
    _need("esbuild")
    how = ("--import", "./test/typescript.mjs", "--test")
    run = _node(*how, f"test/{suite}")
    assert run.returncode == 0, run.stdout


@pytest.mark.long
@pytest.mark.timeout(600)
def test_ten_thousand_histories_break_no_invariant() -> None:
    _need("esbuild")
    play = ("--import", "./test/typescript.mjs", "test/simulation/play.mjs")
    run = _node(*play, "--seeds", "1-10000", seconds=570.0)
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


@pytest.mark.sockets
def test_what_frontdesks_serve_is_built_from_these_sources() -> None:
    assert _built()["stale"] == [], "run `npm run build` in clients/js"


@pytest.mark.sockets
def test_it_is_small() -> None:
    sizes = _built()["gzipped"]
    built = {"newsfabric.cjs", "newsfabric.js", "newsfabric.mjs", "react.cjs", "react.mjs"}
    assert set(sizes) == built
    assert max(sizes.values()) <= MOST_BYTES


def test_its_types_say_what_pages_may_write() -> None:
    _need("esbuild")
    _need("typescript")
    made = _node("build.mjs", "--types")
    assert made.returncode == 0, made.stderr
    checked = _node("node_modules/typescript/bin/tsc", "--project", "tsconfig.json")
    assert checked.returncode == 0, checked.stdout


def _npm(*arguments: str | Path, cwd: Path) -> str:
    if shutil.which("npm") is None:
        _missing("npm")
    # No registry is needed: the package has no dependencies.
    how = ("--offline", "--ignore-scripts", "--no-audit", "--no-fund")
    run = subprocess.run(
        ["npm", *arguments, *how], cwd=cwd, capture_output=True, text=True, timeout=100, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.parametrize("source", ["folder", "archive"])
def test_npm_installs_it_and_both_kinds_of_modules_have_it(source: str, tmp_path: Path) -> None:
    _need("typescript")
    site = tmp_path / "site"
    site.mkdir()
    (site / "package.json").write_text('{"private": true}')
    package = CLIENT
    if source == "archive":
        package = tmp_path / _npm("pack", "--pack-destination", tmp_path, cwd=CLIENT).split()[-1]
    _npm("install", package, cwd=site)
    use = "console.log(typeof connect, connect({ endpoints: '/endpoints.json' }).state.state)"
    (site / "page.mjs").write_text(f'import {{ connect }} from "newsfabric"; {use}')
    (site / "page.cjs").write_text(f'const {{ connect }} = require("newsfabric"); {use}')
    for page in ("page.mjs", "page.cjs"):
        ran = subprocess.run(
            ["node", page], cwd=site, capture_output=True, text=True, timeout=60, check=False
        )
        assert (ran.stdout, ran.stderr) == ("function idle\n", ""), page
    typed = 'import { connect, type State } from "newsfabric";\n'
    typed += 'import { useTopic, type TopicView } from "newsfabric/react";\n'
    typed += 'const fabric = connect({ endpoints: "/endpoints.json" });\n'
    typed += "export const state: State = fabric.state;\n"
    typed += 'export const view = (): TopicView<string> => useTopic(fabric, "news.world");\n'
    for page in ("typed.cts", "typed.mts"):
        (site / page).write_text(typed)
    tsc = CLIENT / "node_modules" / "typescript" / "bin" / "tsc"
    how = ("--module", "node16", "--strict", "--noEmit", "--lib", "es2022,dom")
    checked = _node(tsc, *how, site / "typed.cts", site / "typed.mts")
    assert checked.returncode == 0, checked.stdout


def test_it_depends_on_sockjs_client_and_react_alone_and_not_even_always() -> None:
    package = json.loads((CLIENT / "package.json").read_text(encoding="utf-8"))
    assert "dependencies" not in package
    assert set(package["peerDependencies"]) == {"react", "sockjs-client"}
    optional = {"react": {"optional": True}, "sockjs-client": {"optional": True}}
    assert package["peerDependenciesMeta"] == optional


def test_the_lock_file_names_no_host_but_the_registry() -> None:
    lock = json.loads((CLIENT / "package-lock.json").read_text(encoding="utf-8"))
    named = [entry["resolved"] for entry in lock["packages"].values() if "resolved" in entry]
    assert [url for url in named if not url.startswith("https://registry.npmjs.org/")] == []


def test_the_wheel_and_the_package_are_of_one_version() -> None:
    package = json.loads((CLIENT / "package.json").read_text(encoding="utf-8"))
    assert f'version = "{package["version"]}"' in (ROOT / "pyproject.toml").read_text()
