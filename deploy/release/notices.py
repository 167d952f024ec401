"""The licence texts of the code in the data plane: ``dataplane/NOTICES.txt``.

MIT and similar licences require their notice in every copy, and a wheel with the data plane is a
copy. The file is committed, so that each way of building a wheel includes it and changes are
reviewed; the step fails if it doesn't match Cargo.lock. It holds the crates of every platform that
we release for, and those of Rust's standard library (``licences.toml``).

If a crate offers a choice, we take MIT: its text is short, and names the authors.
"""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import click

from release.artefacts import PROGRAM, temporary_folder
from release.inside import RULES, Component, cargo_metadata, rust_components
from release.steps import Failed, Release, Skipped, need, run

NOTICES: Final = Path("dataplane/NOTICES.txt")
PLATFORMS: Final = ("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu")
_STANDARD_LIBRARY: Final = "Rust's standard library"
_LICENCE_FILE: Final = re.compile(r"(un)?licen[cs]e|copying|notice|copyright", re.IGNORECASE)
_MIT_FILE: Final = re.compile(r"license-mit(\.md|\.txt)?", re.IGNORECASE)
_NOTICE_FILE: Final = re.compile(r"(notice|copyright)", re.IGNORECASE)
# The paths in a program at which the standard library's crates were compiled.
_BUILT_FROM: Final = re.compile(rb"/rust/deps/([A-Za-z0-9_-]+?)-\d+\.\d+\.\d+")
_HEAD: Final = """\
newsfabric's data plane, the program newsfabric-dataplane, holds code of others. These are its parts
and their licences. `python -m release.notices` writes this file (docs/releasing.md).
"""


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Notice:
    """A licence text: of which part (name and version, if any), and in which file."""

    part: str
    licence: str
    file: str
    text: str


def chosen_files(names: Iterable[str], licence: str) -> list[str]:
    """Return the files for a crate's notice; ``licence`` is its SPDX expression."""
    found = sorted(name for name in names if _LICENCE_FILE.match(name))
    mit = [name for name in found if _MIT_FILE.fullmatch(name)]
    if mit and "MIT" in licence.split(" OR "):
        return mit + [name for name in found if _NOTICE_FILE.match(name)]
    return found


def notices_of(crate: Component, folder: Path) -> list[Notice]:
    """Return the notices of a crate whose source is in ``folder``; Failed if it has none."""
    names = chosen_files((path.name for path in folder.iterdir() if path.is_file()), crate.licence)
    part = f"{crate.name} {crate.version}"
    if not names:
        raise Failed(f"{part} comes without the text of its licence ({crate.licence})")
    return [
        Notice(part, crate.licence, name, (folder / name).read_text(encoding="utf-8"))
        for name in names
    ]


def compose(notices: Iterable[Notice]) -> str:
    """Return the file: a list of the parts, then each text once, below all parts that it is for."""
    listed = sorted(notices)
    shared: dict[str, list[Notice]] = {}
    for notice in listed:
        lines = [line.rstrip() for line in notice.text.splitlines()]
        shared.setdefault("\n".join(lines).strip("\n"), []).append(notice)
    parts = sorted({f"  {one.part}: {one.licence}" for one in listed})
    sections = [
        "\n".join(["=" * 80, *(f"{one.part}: {one.file}" for one in of), "-" * 80, text])
        for text, of in shared.items()
    ]
    return "\n\n".join([_HEAD + "\n" + "\n".join(parts), *sections]) + "\n"


def parts_of(text: str) -> set[str]:
    """Return the parts that a file of :func:`compose` lists, as name and version."""
    listed = text.partition("=" * 80)[0]
    return {found[1] for found in re.finditer(r"^  (.+?): ", listed, re.MULTILINE)}


def linked(metadata: Mapping[str, Any]) -> list[tuple[Component, Path]]:
    """Return the crates in the program, each with the folder of its source."""
    folders = {
        (package["name"], package["version"]): Path(package["manifest_path"]).parent
        for package in metadata["packages"]
    }
    return [(one, folders[one.name, one.version]) for one in rust_components(metadata)]


def standard_library() -> dict[str, Any]:
    """Return Rust's standard library in ``licences.toml``: ``crates`` by name, ``text``, …."""
    rules: dict[str, Any] = tomllib.loads(RULES.read_text(encoding="utf-8"))["standard-library"]
    return rules


def unlisted(program: bytes, listed: Iterable[str]) -> list[str]:
    """Return crates that the standard library brought into a program and that aren't ``listed``."""
    found = {name.decode() for name in _BUILT_FROM.findall(program)}
    return sorted(found - set(listed))


def gather(root: Path, work: Path) -> str:
    """Return the right :data:`NOTICES`. Cargo fetches missing crates; ``work`` is for scratch."""
    crates = linked(cargo_metadata(root, PLATFORMS))
    rules = standard_library()
    crates += _fetched(rules["crates"], work / "standard-library")
    notices = {notice for crate, folder in crates for notice in notices_of(crate, folder)}
    text = RULES.with_name(rules["text"]).read_text(encoding="utf-8")
    notices.add(Notice(_STANDARD_LIBRARY, rules["licence"], rules["text"], text))
    return compose(notices)


def _fetched(versions: Mapping[str, str], folder: Path) -> list[tuple[Component, Path]]:
    """Return only these crates, in these versions, from the registry or cargo's cache of it."""
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "lib.rs").touch()
    (folder / "Cargo.toml").write_text(
        '[package]\nname = "newsfabric-dataplane"\nversion = "0.0.0"\nedition = "2024"\n'
        "[workspace]\n[dependencies]\n"
        + "".join(
            f'{name} = {{ version = "={version}", default-features = false }}\n'
            for name, version in versions.items()
        )
    )
    command = [need("cargo", "`make dataplane` installs Rust"), "metadata", "--format-version", "1"]
    return linked(json.loads(run(command, folder)))


def check_notices(release: Release) -> str:
    """Raise Failed if the file differs from the crates, or lacks a crate of the program."""
    rules = standard_library()
    if not (release.root / PROGRAM).is_file():
        raise Skipped("the data plane isn't built: `make dataplane`")
    strangers = unlisted((release.root / PROGRAM).read_bytes(), rules["crates"])
    if strangers:
        raise Failed(
            f"Rust's standard library brings {', '.join(strangers)} into the program: "
            "add it to [standard-library] in deploy/release/licences.toml"
        )
    text = (release.root / NOTICES).read_text(encoding="utf-8")
    if text != gather(release.root, release.work):
        raise Failed(
            f"{NOTICES} isn't what the crates give: `PYTHONPATH=deploy python -m release.notices`"
        )
    return f"{NOTICES}: {len(parts_of(text))} parts of the data plane, each with its text"


def main() -> None:
    """Write the file anew."""
    root = Path(__file__).resolve().parents[2]
    with temporary_folder() as work:
        text = gather(root, Path(work))
    (root / NOTICES).write_text(text, encoding="utf-8")
    click.echo(f"{NOTICES}: {len(parts_of(text))} parts, {len(text.encode())} bytes")


if __name__ == "__main__":
    main()
