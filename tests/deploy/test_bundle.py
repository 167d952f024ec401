"""The archive of wheels for hosts: a file that wasn't packed is neither taken nor installed."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final

import pytest
import yaml

ROOT: Final = Path(__file__).resolve().parents[2]
RELEASE: Final = ROOT / "deploy" / "ansible" / "roles" / "release" / "tasks"
# Stands for pip, which would ask a registry: the needed wheels are in `given`.
PIP: Final = """#!/bin/sh
case $1 in
    wheel) while [ "$1" != --wheel-dir ]; do shift; done; cp given/*.whl "$2" ;;
    download)
        while [ "$1" != --python-version ]; do shift; done; python=$2
        while [ "$1" != --dest ]; do shift; done
        cp given-to-"$python"/*.whl "$2"; shift 2; echo "$python $*" >>downloads ;;
esac
"""

# Modules that change nothing with any arguments.
LOOKS: Final = {f"ansible.builtin.{name}" for name in ("assert", "debug", "fail", "stat")}


def wheel(folder: Path, name: str, version: str, *, needs: str = "", text: str = "") -> Path:
    """Make a wheel of one module."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nProvides-Extra: aws\n"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr(f"{name}.py", text)
        made.writestr(f"{info}/METADATA", metadata + (f"Requires-Dist: {needs}\n" if needs else ""))
        tags = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        made.writestr(f"{info}/WHEEL", tags)
        made.writestr(f"{info}/RECORD", "")
    return path


def bundled(checkout: Path) -> Path:
    """Return the bundle that `scripts/bundle` makes in a checkout."""
    done = subprocess.run(
        [checkout / "scripts" / "bundle"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return checkout / done.stdout.strip()


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """Return a bundle in a checkout of its own, which is ``tmp_path``."""
    for name in ("scripts", "dist", "given", ".venv/bin"):
        (tmp_path / name).mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "bundle", tmp_path / "scripts")
    (tmp_path / ".venv" / "bin" / "python").symlink_to(sys.executable)
    pip = tmp_path / ".venv" / "bin" / "pip"
    pip.write_text(PIP)
    pip.chmod(0o755)
    own = wheel(tmp_path / "dist", "newsfabric", "0.1.0", needs="other")
    shutil.copy(own, tmp_path / "given")
    wheel(tmp_path / "given", "other", "2.0")
    return bundled(tmp_path)


@pytest.fixture
def wheels(bundle: Path, tmp_path: Path) -> Path:
    """Unpack the bundle as a host does; return the folder."""
    folder = tmp_path / "opt" / "wheels"
    folder.mkdir(parents=True)
    subprocess.run(["tar", "--extract", "--file", bundle, "-C", folder], check=True)
    return folder


def installed(wheels: Path) -> subprocess.CompletedProcess[str]:
    """Run the command of the role, into a folder."""
    blocks = [task.get("block", []) for task in yaml.safe_load((RELEASE / "main.yml").read_text())]
    [command] = [
        task["ansible.builtin.command"]["cmd"]
        for block in blocks
        for task in block
        if task["name"] == "Install the packages"
    ]
    pip = "{{ newsfabric_home }}/releases/{{ newsfabric_release }}/bin/pip"
    assert command.startswith(f"{pip} install ")
    words = command.removeprefix(pip).replace("{{ newsfabric_home }}", str(wheels.parent)).split()
    target = wheels.parent / "site"
    return subprocess.run(
        [sys.executable, "-m", "pip", *words, f"--target={target}"], capture_output=True, text=True
    )


def test_all_that_was_packed_is_installed(wheels: Path) -> None:
    done = installed(wheels)
    assert done.returncode == 0, done.stderr
    found = {file.name for file in (wheels.parent / "site").glob("*.py")}
    assert found == {"newsfabric.py", "other.py"}


@pytest.mark.parametrize("name", ["newsfabric", "other"])
def test_a_wheel_that_was_changed_is_not_installed(wheels: Path, name: str) -> None:
    [version] = [file.name.split("-")[1] for file in wheels.glob(f"{name}-*.whl")]
    needs = "other" if name == "newsfabric" else ""
    wheel(wheels, name, version, needs=needs, text="print('another')")
    done = installed(wheels)
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr
    assert not (wheels.parent / "site").exists()


def test_a_newer_wheel_that_was_added_is_not_installed(wheels: Path) -> None:
    wheel(wheels, "other", "2.1")
    done = installed(wheels)
    assert done.returncode == 0, done.stderr
    versions = {folder.name for folder in (wheels.parent / "site").glob("other-*.dist-info")}
    assert versions == {"other-2.0.dist-info"}


def test_what_a_wheel_needs_and_nobody_packed_is_not_installed(wheels: Path) -> None:
    wheel(wheels, "third", "1.0")
    pinned = (wheels / "requirements.txt").read_text()
    changed = wheel(wheels, "other", "2.0", needs="third")
    old = next(line for line in pinned.splitlines() if line.startswith("other=="))
    new = f"other==2.0 --hash=sha256:{hashlib.sha256(changed.read_bytes()).hexdigest()}"
    (wheels / "requirements.txt").write_text(pinned.replace(old, new))
    done = installed(wheels)
    assert done.returncode != 0
    assert "third" in done.stderr


def test_what_is_compiled_is_there_for_the_python_of_each_debian(
    bundle: Path, tmp_path: Path
) -> None:
    assert not (tmp_path / "downloads").exists(), "nothing of it was compiled"
    bundle.unlink()
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    others = [each for each in ("3.11", "3.13", "3.14") if each != here]
    hashes = []
    for python, folder in [(here, "given"), *((each, f"given-to-{each}") for each in others)]:
        (tmp_path / folder).mkdir(exist_ok=True)
        made = wheel(tmp_path / folder, "fast", "3.0", text=f"for_python = '{python}'")
        tag = f"cp{python.replace('.', '')}"
        made.rename(made.with_name(f"fast-3.0-{tag}-{tag}-manylinux_2_17_x86_64.whl"))
        [fast] = (tmp_path / folder).glob("fast-*.whl")
        hashes.append(f"--hash=sha256:{hashlib.sha256(fast.read_bytes()).hexdigest()}")
    made_again = bundled(tmp_path)
    asked = (tmp_path / "downloads").read_text().splitlines()
    assert asked == [f"{python} fast==3.0" for python in others]
    output = subprocess.run(
        ["tar", "--extract", "--to-stdout", "--file", made_again, "./requirements.txt"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert [line.split()[0] for line in output] == [
        "fast==3.0",
        "newsfabric[aws]==0.1.0",
        "other==2.0",
    ]
    assert sorted(output[0].split()[1:]) == sorted(hashes)


def test_while_it_is_there_no_registry_is_asked(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / ".venv" / "bin" / "pip").write_text("#!/bin/sh\nexit 1\n")
    made = bundle.stat().st_mtime_ns
    assert bundled(tmp_path) == bundle
    assert bundle.stat().st_mtime_ns == made


def test_the_same_wheels_are_the_same_release(bundle: Path, tmp_path: Path) -> None:
    bundle.unlink()
    assert bundled(tmp_path) == bundle


def test_another_wheel_of_what_is_needed_is_another_release(bundle: Path, tmp_path: Path) -> None:
    bundle.unlink()
    (tmp_path / "given" / "other-2.0-py3-none-any.whl").unlink()
    wheel(tmp_path / "given", "other", "2.1")
    assert bundled(tmp_path) != bundle


def test_another_wheel_of_ours_is_another_release(bundle: Path, tmp_path: Path) -> None:
    own = wheel(tmp_path / "dist", "newsfabric", "0.1.0", needs="other", text="print('another')")
    shutil.copy(own, tmp_path / "given")
    again = bundled(tmp_path)
    assert again != bundle
    assert sorted((tmp_path / "dist").glob("*.tar*")) == [again, Path(f"{again}.sha256")]


def test_beside_it_is_its_checksum(bundle: Path) -> None:
    checked = ["sha256sum", "--check", "--strict", f"{bundle.name}.sha256"]
    assert subprocess.run(checked, cwd=bundle.parent, capture_output=True).returncode == 0
    with bundle.open("ab") as stream:
        stream.write(b"x")
    assert subprocess.run(checked, cwd=bundle.parent, capture_output=True).returncode == 1


@pytest.mark.parametrize(
    ("damage", "taken"),
    [
        ("true", True),
        ("echo x >>{bundle}", False),
        ("rm {bundle}.sha256", False),
        (": >{bundle}.sha256", False),
    ],
    ids=["as-made", "changed", "no-checksum", "empty-checksum"],
)
def test_a_bundle_that_is_not_what_was_made_is_not_taken(
    playbook: str, bundle: Path, tmp_path: Path, damage: str, taken: bool
) -> None:
    subprocess.run(damage.format(bundle=bundle), shell=True, check=True)
    tasks = yaml.safe_load((RELEASE / "bundle.yml").read_text())
    play = [{"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": tasks}]
    file = tmp_path / "play.yml"
    file.write_text(yaml.safe_dump(play))
    done = subprocess.run(
        [playbook, "-i", "localhost,", str(file), "-e", f"newsfabric_bundle={bundle}"],
        cwd=ROOT / "deploy" / "ansible",
        capture_output=True,
        text=True,
    )
    has_reason = "doesn't match the .sha256 beside it" in " ".join(done.stdout.split())
    assert (done.returncode, has_reason) == ((0, False) if taken else (2, True)), done.stdout


def test_prechecks_ask_whether_the_bundle_is_whole() -> None:
    table = ROOT / "deploy" / "ansible" / "roles" / "precheck" / "vars" / "main.yml"
    others = yaml.safe_load(table.read_text())["precheck_others"]
    assert ("release", "bundle") in {(each["role"], each["tasks"]) for each in others}


def test_that_is_looked_at_before_anything_is_changed() -> None:
    where = "playbooks/build-image.yml"
    listed = yaml.safe_load((ROOT / "deploy" / "ansible" / where).read_text())
    tasks = [task for entry in listed for task in entry.get("pre_tasks", [entry])]
    bundle = {"name": "release", "tasks_from": "bundle.yml"}
    [place] = [
        n for n, task in enumerate(tasks) if task.get("ansible.builtin.include_role") == bundle
    ]
    only_looks = [LOOKS & task.keys() or task.get("changed_when") is False for task in tasks]
    assert [
        task["name"]
        for task, looks in zip(tasks[:place], only_looks[:place], strict=True)
        if not looks
    ] == []
