"""The runner of `make release`: the order of steps, the steps that a failure skips, the output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from release.__main__ import STEPS, empty, release
from release.steps import Failed, Outcome, Release, Skipped, Step, chosen, need, run, run_steps


@pytest.fixture
def here(tmp_path: Path) -> Release:
    return Release(tmp_path, tmp_path / "dist", tmp_path / "work", "1.2.3")


def _fails(_: Release) -> str:
    raise Failed("it is broken")


def _skips(_: Release) -> str:
    raise Skipped("no compiler: install one")


def _outcomes(steps: list[Step], release: Release) -> list[tuple[str, str, str]]:
    seen: list[Outcome] = []
    outcomes = run_steps(steps, release, lambda step: None, seen.append)
    assert seen == outcomes
    return [(one.name, one.status, one.detail) for one in outcomes]


def test_a_failed_step_ends_only_those_that_need_it(here: Release) -> None:
    steps = [
        Step("wheel", "", _fails),
        Step("try", "", lambda _: "tried", ("wheel",)),
        Step("sbom", "", lambda _: "written", ("try",)),
        Step("npm", "", lambda release: release.version),
    ]
    assert _outcomes(steps, here) == [
        ("wheel", "failed", "it is broken"),
        ("try", "skipped", "it needs wheel"),
        ("sbom", "skipped", "it needs try"),
        ("npm", "ok", "1.2.3"),
    ]


def test_a_skipped_step_says_why_and_takes_those_along_that_need_it(here: Release) -> None:
    steps = [Step("build", "", _skips), Step("try", "", lambda _: "tried", ("build",))]
    assert _outcomes(steps, here) == [
        ("build", "skipped", "no compiler: install one"),
        ("try", "skipped", "it needs build"),
    ]


def test_a_chosen_step_brings_what_it_needs_in_order() -> None:
    names = [step.name for step in chosen(STEPS, ["licences", "npm"])]
    assert names == ["notices", "wheel", "npm", "try-wheel", "licences"]


def test_steps_need_only_earlier_steps() -> None:
    seen: set[str] = set()
    for step in STEPS:
        assert set(step.needs) <= seen, step.name
        seen.add(step.name)


def test_checksums_come_last() -> None:
    assert STEPS[-1].name == "checksums"


@pytest.mark.sockets
def test_a_program_that_fails_is_named_with_the_end_of_its_output(tmp_path: Path) -> None:
    with pytest.raises(Failed, match=r"(?s)sh -c .* ended with 3\nout\nwhy"):
        run(["sh", "-c", "echo out; echo why >&2; exit 3"], tmp_path)
    assert run(["sh", "-c", "echo out; exit 3"], tmp_path, good=(3,)) == "out\n"


def test_a_missing_program_is_named_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Skipped, match="npm is missing: install it"):
        need("npm", "install it")


def test_a_tool_that_was_not_set_up_is_named_with_how_to_get_it(here: Release) -> None:
    with pytest.raises(Skipped, match=r"auditwheel is missing: run `scripts/setup release`"):
        here.tool("auditwheel")


def test_a_release_removes_what_an_earlier_one_wrote_and_nothing_else(tmp_path: Path) -> None:
    for name in ("newsfabric-0.0.9.tgz", "SHA256SUMS", "LICENCES.md", "mine.txt"):
        (tmp_path / name).touch()
    (tmp_path / "maven" / "io").mkdir(parents=True)
    empty(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_only_the_versions_step_as_json(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        release, ["--json", "--only", "versions", "--dist", str(tmp_path / "dist")]
    )
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    (step,) = document["steps"]
    assert (step["name"], step["status"]) == ("versions", "ok")
    assert step["detail"] == f"{document['version']} in 5 manifests"


def test_a_strict_release_fails_for_a_skipped_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    arguments = ["--only", "cargo-deny", "--dist", str(tmp_path / "dist")]
    assert CliRunner().invoke(release, arguments).exit_code == 0
    assert CliRunner().invoke(release, [*arguments, "--strict"]).exit_code == 1
