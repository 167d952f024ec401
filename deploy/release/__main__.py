"""The command line: ``python -m release`` with ``deploy`` on PYTHONPATH."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.table import Table

from release import artefacts, audits, notices, papers, rehearsals
from release.steps import Outcome, Release, Step, chosen, run_steps

_ROOT: Final = Path(__file__).resolve().parents[2]

STEPS: Final = (
    Step("versions", "every manifest says the same version", artefacts.check_versions),
    Step("notices", "licence texts of the data plane's parts", notices.check_notices),
    Step("wheel", "wheel with the data plane", artefacts.build_wheel, ("notices",)),
    Step("npm", "npm package", artefacts.build_npm),
    Step("composer", "Composer package", artefacts.build_composer),
    Step("maven", "Maven repository", artefacts.build_maven),
    Step("try-wheel", "pip install in an empty venv", rehearsals.rehearse_wheel, ("wheel",)),
    Step("try-npm", "npm install in an empty project", rehearsals.rehearse_npm, ("npm",)),
    Step(
        "try-composer",
        "composer install in an empty project",
        rehearsals.rehearse_composer,
        ("composer",),
    ),
    Step("try-maven", "mvn compile in an empty project", rehearsals.rehearse_maven, ("maven",)),
    Step("sbom-python", "SBOM of pip's packages", papers.write_sbom_python, ("try-wheel",)),
    Step("sbom-inside", "SBOM of the wheel's contents", papers.write_sbom_dataplane),
    Step("sbom-npm", "SBOM of the npm package", papers.write_sbom_npm),
    Step("licences", "licences of the contents", papers.write_licences, ("try-wheel",)),
    Step("pip-audit", "known holes, Python", audits.audit_python, ("try-wheel",)),
    Step("cargo-deny", "licences, sources and doubles, Rust", audits.check_rust),
    Step("cargo-audit", "known holes, Rust", audits.audit_rust),
    Step("npm-audit", "known holes, JavaScript", audits.audit_npm),
    # The last: it covers the files of all other steps.
    Step("checksums", "SHA256SUMS of all files", artefacts.write_checksums),
)

_EXAMPLES = """\b
Examples:
  make release                        all steps, into dist/release/
  make release RELEASE_ARGS=--list    which steps there are
  python -m release --only try-wheel  the wheel and its rehearsal
  python -m release --json            outcomes for a program
"""
_COLOURS: Final = {"ok": "green", "skipped": "yellow", "failed": "bold red"}


@click.command(epilog=_EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--dist",
    type=click.Path(path_type=Path, file_okay=False),
    default=_ROOT / "dist" / "release",
    show_default="dist/release",
    help="Where artefacts are written. What a release has left there is removed first.",
)
@click.option(
    "--only",
    multiple=True,
    type=click.Choice([step.name for step in STEPS]),
    help="This step and those that it needs; may be repeated.",
)
@click.option("--strict", is_flag=True, help="A step that is skipped fails the release.")
@click.option("--list", "listing", is_flag=True, help="List the steps and end.")
@click.option("--json", "as_json", is_flag=True, help="Print the outcomes as JSON.")
def release(dist: Path, only: tuple[str, ...], strict: bool, listing: bool, as_json: bool) -> None:
    """Make a release and try it: artefacts, SBOMs, licences, audits, checksums. Uploads nothing.

    A step whose outside tool is missing is skipped, and says how to get the tool. Ends with 1 if a
    step failed.
    """
    steps = chosen(STEPS, only) if only else list(STEPS)
    if listing:
        _list(steps, as_json)
        return
    console = Console(stderr=True, highlight=False)
    version = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]["version"]
    dist = dist.resolve()
    empty(dist)
    with artefacts.temporary_folder() as work:
        outcomes = run_steps(
            steps,
            Release(_ROOT, dist, Path(work), version),
            lambda step: console.print(f"[dim]==>[/] {step.name}: {step.what}"),
            lambda outcome: _show(console, outcome),
        )
    if as_json:
        rows = [dataclasses.asdict(outcome) for outcome in outcomes]
        click.echo(json.dumps({"version": version, "dist": str(dist), "steps": rows}, indent=2))
    else:
        _summary(outcomes)
    bad = {"failed", "skipped"} if strict else {"failed"}
    sys.exit(1 if any(outcome.status in bad for outcome in outcomes) else 0)


def empty(dist: Path) -> None:
    """Make the folder, and remove the files of an earlier release; no others."""
    dist.mkdir(parents=True, exist_ok=True)
    for pattern in ("newsfabric-*", artefacts.CHECKSUMS, "LICENCES.md"):
        for path in dist.glob(pattern):
            path.unlink()
    shutil.rmtree(dist / "maven", ignore_errors=True)


def _list(steps: list[Step], as_json: bool) -> None:
    if as_json:
        rows = [{"name": one.name, "what": one.what, "needs": one.needs} for one in steps]
        click.echo(json.dumps(rows, indent=2))
        return
    for step in steps:
        needs = f" (needs {', '.join(step.needs)})" if step.needs else ""
        click.echo(f"{step.name:<13} {step.what}{needs}")


def _show(console: Console, outcome: Outcome) -> None:
    console.print(f"    [{_COLOURS[outcome.status]}]{outcome.status}[/]", end=" ")
    console.print(f"{outcome.detail} ({outcome.seconds} s)", markup=False)


def _summary(outcomes: list[Outcome]) -> None:
    table = Table(box=None, pad_edge=False)
    for title in ("step", "result", "seconds", "outcome"):
        table.add_column(title, justify="right" if title == "seconds" else "left")
    for one in outcomes:
        colour = _COLOURS[one.status]
        detail = one.detail.splitlines()[0]
        table.add_row(one.name, f"[{colour}]{one.status}[/]", str(one.seconds), detail)
    console = Console(highlight=False)
    console.print(table)


if __name__ == "__main__":
    release()
