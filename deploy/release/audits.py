"""Known vulnerabilities of our dependencies, as far as the registries reply."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from release.rehearsals import python_of_wheel
from release.steps import Failed, Release, Skipped, need, run


def audit_python(release: Release) -> str:
    """Run pip-audit on all packages that `pip install` of the wheel installs."""
    program = release.tool("pip-audit")
    (packages,) = python_of_wheel(release).parents[1].glob("lib/python*/site-packages")
    command: list[str | Path] = [
        program,
        "--path",
        packages,
        "--format",
        "json",
        "--progress-spinner",
        "off",
    ]
    output = run(command, release.work, good=(0, 1))
    if not output.strip():
        raise Skipped("pip-audit: the registry didn't answer")
    return judge_pip_audit(json.loads(output))


def judge_pip_audit(report: dict[str, Any]) -> str:
    """Raise Failed for vulnerabilities, Skipped if pip-audit "succeeded" but looked up nothing."""
    packages = [one for one in report["dependencies"] if one["name"] != "newsfabric"]
    asked = [one for one in packages if "skip_reason" not in one]
    holes = [
        f"{one['name']} {one['version']}: {hole['id']}, mended in "
        f"{', '.join(hole['fix_versions']) or 'no version'}"
        for one in asked
        for hole in one["vulns"]
    ]
    if holes:
        raise Failed("\n".join(["pip-audit knows of holes:", *holes]))
    if not asked:
        reasons = "; ".join(sorted({one["skip_reason"] for one in packages})[:1])
        raise Skipped(
            f"pip-audit: the registry can't be asked about any of {len(packages)}: {reasons}"
        )
    return f"pip-audit: no known hole in {len(asked)} of {len(packages)} packages"


def check_rust(release: Release) -> str:
    """Run cargo deny on licences, sources and duplicates, by ``deny.toml``; asks no registry."""
    _deny(release, "bans", "licenses", "sources")
    return "cargo deny: bans, licences and sources"


def audit_rust(release: Release) -> str:
    """Run cargo deny on RustSec's advisories, and on withdrawn crates."""
    try:
        _deny(release, "advisories")
    except Failed as exc:
        reason = unreachable(str(exc))
        if reason is None:
            raise
        raise Skipped(f"cargo deny: RustSec's database didn't answer: {reason}") from exc
    return "cargo deny: no known hole, no crate that was withdrawn"


def unreachable(output: str) -> str | None:
    """Return why cargo deny couldn't fetch the advisories; None if it could, whatever they say."""
    if "failed to fetch advisory database" not in output:
        return None
    reasons = [line for line in output.splitlines() if line.startswith("fatal:")]
    return reasons[0].removeprefix("fatal: ") if reasons else "no reason given"


def _deny(release: Release, *checks: str) -> None:
    need("cargo", "`make dataplane` installs Rust")
    installed = release.root / ".tools" / "cargo-deny" / "bin" / "cargo-deny"
    program = str(installed) if installed.is_file() else shutil.which("cargo-deny")
    if program is None:
        raise Skipped("cargo-deny is missing: `scripts/setup cargo_deny` compiles it, for minutes")
    run([program, "--locked", "check", *checks], release.root)


def audit_npm(release: Release) -> str:
    """Run npm audit on clients/js, with its tools for building and testing."""
    npm = need("npm", "install the packages nodejs and npm")
    output = run([npm, "audit", "--json"], release.root / "clients" / "js", good=(0, 1))
    return judge_npm_audit(json.loads(output))


def judge_npm_audit(report: dict[str, Any]) -> str:
    """Raise Failed for vulnerabilities, Skipped if the registry doesn't reply."""
    if "metadata" not in report:
        reason = report.get("message") or report.get("error", {}).get("summary", "no reason given")
        raise Skipped(f"npm audit: the registry didn't answer: {reason}")
    if report["vulnerabilities"]:
        raise Failed(f"npm audit knows of holes in {', '.join(sorted(report['vulnerabilities']))}")
    return f"npm audit: no known hole in {report['metadata']['dependencies']['total']} packages"
