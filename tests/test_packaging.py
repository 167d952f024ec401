"""The dependencies of newsfabric, and the files in its wheel.

The wheel is built from a copy of the checkout with strays added, once without the data plane's
program and once with it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ["newsfabric", "operations", "gateway", "wholesale", "retail", "shovels", "localfabric"]
NODES = ROOT / "localfabric" / "nodes"
PROJECT_FILES = ["pyproject.toml", "README.md", "LICENSE", ".gitignore", "topics.toml"]
#: Files that a checkout holds, or soon will, and that site-packages must not have.
STRAYS = [
    "tests/gateway/memory/test_hub.py",
    "bench/__main__.py",
    "dataplane/Cargo.toml",
    "dataplane/src/main.rs",
]


PROGRAM = "gateway/native/newsfabric-dataplane"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    checkout = tmp_path_factory.mktemp("checkout")
    (checkout / "scripts").mkdir()
    (checkout / "dataplane").mkdir()
    (checkout / "docs").mkdir()
    others = ["scripts/wheel_hook.py", "dataplane/NOTICES.txt", "docs/metrics.md"]
    for name in [*PROJECT_FILES, *others]:
        shutil.copy(ROOT / name, checkout / name)
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package, checkout / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copytree(ROOT / "cassandra", checkout / "cassandra")
    for stray in STRAYS:
        (checkout / stray).parent.mkdir(parents=True, exist_ok=True)
        (checkout / stray).touch()
    return checkout


@pytest.fixture(scope="module")
def wheel(checkout: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(_build(checkout))


@pytest.fixture(scope="module")
def native_wheel(checkout: Path, wheel: zipfile.ZipFile) -> Path:
    assert wheel.testzip() is None, "the one without comes first"
    program = checkout / "target" / "release" / "newsfabric-dataplane"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho a data plane\n")
    program.chmod(0o755)
    return _build(checkout)


def _build(checkout: Path) -> Path:
    # Without isolation the build backend comes from .venv, so this works offline.
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    shutil.rmtree(checkout / "dist", ignore_errors=True)
    command += ["--no-build-isolation", "--no-index", "--wheel-dir", "dist", "."]
    built = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (path,) = (checkout / "dist").glob("newsfabric-*.whl")
    return path


def test_the_wheel_holds_our_packages_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    (metadata,) = {name.split("/")[0] for name in wheel.namelist() if ".dist-info/" in name}
    assert {name.split("/")[0] for name in wheel.namelist()} == {*PACKAGES, metadata}


def test_the_wheel_holds_the_cql_where_it_hides_no_driver(wheel: zipfile.ZipFile) -> None:
    files = {f"newsfabric/store/cql/{path.name}" for path in (ROOT / "cassandra").glob("*.cql")}
    assert files
    assert files <= set(wheel.namelist())
    assert [name for name in wheel.namelist() if name.startswith("cassandra/")] == []


def test_the_wheel_holds_the_feeds_that_a_world_starts_with(wheel: zipfile.ZipFile) -> None:
    assert wheel.read("localfabric/topics.toml") == (ROOT / "topics.toml").read_bytes()


def test_the_wheel_holds_the_metrics_of_which_a_frontdesk_makes_its_page(
    wheel: zipfile.ZipFile,
) -> None:
    found = wheel.read("wholesale/frontdesk/pages/metrics.md")
    assert found == (ROOT / "docs" / "metrics.md").read_bytes()


def test_the_wheel_holds_every_module_of_our_packages_but_what_tests_and_benches_start(
    wheel: zipfile.ZipFile,
) -> None:
    modules = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if NODES not in path.parents
    }
    names = wheel.namelist()
    assert modules <= set(names)
    assert [name for name in names if name.startswith("localfabric/nodes/")] == []


def test_the_wheel_holds_no_rust_source(wheel: zipfile.ZipFile) -> None:
    assert [name for name in wheel.namelist() if name.endswith((".rs", "Cargo.toml"))] == []


def test_the_wheel_carries_its_licence_and_those_of_what_is_inside(wheel: zipfile.ZipFile) -> None:
    folder = "newsfabric-0.1.0.dist-info/licenses/"
    carried = {name for name in wheel.namelist() if name.startswith(folder)}
    assert carried == {
        folder + name
        for name in (
            "LICENSE",
            "dataplane/NOTICES.txt",
            "newsfabric/static/sockjs.LICENSE.txt",
            "wholesale/frontdesk/pages/files/uplot.LICENSE.txt",
        )
    }
    notices = wheel.read(f"{folder}dataplane/NOTICES.txt")
    assert notices == (ROOT / "dataplane" / "NOTICES.txt").read_bytes()


def test_without_a_data_plane_the_wheel_is_for_every_machine(wheel: zipfile.ZipFile) -> None:
    assert wheel.filename is not None
    assert wheel.filename.endswith("-py3-none-any.whl")
    assert PROGRAM not in wheel.namelist()


def test_with_one_the_wheel_is_for_machines_like_this(native_wheel: Path) -> None:
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    assert native_wheel.name.endswith(f"-py3-none-{platform}.whl")
    with zipfile.ZipFile(native_wheel) as wheel:
        assert PROGRAM in wheel.namelist()
        assert b"Root-Is-Purelib: false" in wheel.read("newsfabric-0.1.0.dist-info/WHEEL")


def test_an_installed_gateway_finds_the_data_plane_of_its_wheel(
    native_wheel: Path, tmp_path: Path
) -> None:
    python = _environment_with(native_wheel, tmp_path / "fresh")
    assert "--engine" in _output([python, "-m", "gateway", "--help"], tmp_path)
    find = "from gateway.native.program import find_program; print(find_program({}))"
    program = _output([python, "-c", find], tmp_path)
    assert program.startswith(str(tmp_path / "fresh"))
    assert _output([program], tmp_path) == "a data plane"


def _environment_with(wheel: Path, folder: Path) -> str:
    """Make a venv with ``wheel`` and, to work offline, with the dependencies of this one."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = str(folder / "bin" / "python")
    command = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
    subprocess.run([*command, "--no-deps", "--no-index", wheel], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    # After the wheel's own path; the path of an editable newsfabric isn't included.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return python


def _output(command: list[str], folder: Path) -> str:
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


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
