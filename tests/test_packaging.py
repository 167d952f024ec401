"""What newsfabric needs, and what ends up in its wheel.

The wheel is built from a copy of the checkout with strays added.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ["newsfabric", "gateway", "wholesale", "retail", "shovels"]
#: Files that a checkout holds, or soon will, and site-packages must not.
STRAYS = [
    "tests/gateway/test_hub.py",
    "bench/__main__.py",
    "gateway/dataplane/Cargo.toml",
    "gateway/dataplane/src/main.rs",
]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    checkout = tmp_path_factory.mktemp("checkout")
    for name in ["pyproject.toml", "README.md", "LICENSE", ".gitignore"]:
        shutil.copy(ROOT / name, checkout)
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package, checkout / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copytree(ROOT / "cassandra", checkout / "cassandra")
    for stray in STRAYS:
        (checkout / stray).parent.mkdir(parents=True, exist_ok=True)
        (checkout / stray).touch()
    return _build(checkout)


def _build(checkout: Path) -> zipfile.ZipFile:
    # Without isolation the build backend comes from .venv, so this works offline.
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    command += ["--no-build-isolation", "--no-index", "--wheel-dir", "dist", "."]
    built = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (path,) = (checkout / "dist").glob("newsfabric-*.whl")
    return zipfile.ZipFile(path)


def test_the_wheel_holds_our_packages_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    (metadata,) = {name.split("/")[0] for name in wheel.namelist() if ".dist-info/" in name}
    assert {name.split("/")[0] for name in wheel.namelist()} == {*PACKAGES, metadata}


def test_the_wheel_holds_the_cql_where_it_hides_no_driver(wheel: zipfile.ZipFile) -> None:
    files = {f"newsfabric/store/cql/{path.name}" for path in (ROOT / "cassandra").glob("*.cql")}
    assert files
    assert files <= set(wheel.namelist())
    assert [name for name in wheel.namelist() if name.startswith("cassandra/")] == []


def test_the_wheel_holds_every_module_of_our_packages(wheel: zipfile.ZipFile) -> None:
    modules = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        # The data plane's crate has scripts of its own, for its tests.
        if "dataplane" not in path.parts
    }
    assert modules <= set(wheel.namelist())


def test_the_wheel_holds_no_rust_source(wheel: zipfile.ZipFile) -> None:
    assert [name for name in wheel.namelist() if name.endswith((".rs", "Cargo.toml"))] == []


def test_the_wheel_carries_the_licence(wheel: zipfile.ZipFile) -> None:
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in wheel.namelist())


def test_every_python_dependency_has_its_reason() -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = pyproject["project"]
    required = {
        requirement
        for group in [
            pyproject["build-system"]["requires"],
            project["dependencies"],
            *project["optional-dependencies"].values(),
        ]
        for requirement in group
    }
    text = (ROOT / "docs/dependencies.md").read_text(encoding="utf-8")
    of_python = text.partition("## Debian packages")[0]
    explained = re.findall(r"^\| `([^`]+)` \|", of_python, flags=re.MULTILINE)
    assert sorted(explained) == sorted({re.split(r"[<>=!~\[ ]", one)[0] for one in required})
