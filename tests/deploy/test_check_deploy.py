"""The report of `make check-deploy` on checks that ran and checks that were skipped."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHECKS = {
    "scripts/check-terraform": "echo 'ok       fmt'",
    "scripts/check-containers": "echo 'ok       helm lint'",
    ".venv/bin/pytest": "echo '12 passed in 3.45s'",
    ".tools/ansible/bin/ansible-lint": "exit 0",
}

Checked = Callable[..., tuple[int, list[str]]]


@pytest.fixture
def checked(tmp_path: Path) -> Checked:
    """Return a function: run the script among made-up checks; return its exit code and lines."""

    def run(**changed: str) -> tuple[int, list[str]]:
        checks = CHECKS | {
            path: changed.get(Path(path).name, body) for path, body in CHECKS.items()
        }
        for path, body in checks.items():
            program = tmp_path / path
            program.parent.mkdir(parents=True, exist_ok=True)
            program.write_text(f"#!/bin/sh\n{body}\n")
            program.chmod(0o755)
        (tmp_path / "deploy" / "ansible").mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "scripts" / "check-deploy", tmp_path / "scripts")
        environment = {"PATH": os.environ["PATH"], "TERRAFORM": "terraform"}
        done = subprocess.run(
            [tmp_path / "scripts" / "check-deploy"],
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
        assert done.stderr == ""
        return done.returncode, done.stdout.splitlines()

    return run


def test_what_was_checked_as_a_whole_is_ok(checked: Checked) -> None:
    assert checked() == (
        0,
        ["ok       ansible", "ok       terraform", "ok       containers", "ok       tests"],
    )


def test_a_check_that_skipped_something_is_not_ok_but_its_parts_are(checked: Checked) -> None:
    code, lines = checked(
        **{
            "check-terraform": "echo 'ok       fmt'\necho 'skipped  tflint: it is not there'",
            "check-containers": "echo 'skipped  the chart: helm is not there'",
            "pytest": (
                "echo 'SKIPPED [3] tests/deploy/test_helm.py:31: no helm on the PATH'\n"
                "echo '12 passed, 3 skipped in 3.45s'"
            ),
        }
    )
    assert (code, lines) == (
        0,
        [
            "ok       ansible",
            "ok       terraform: fmt",
            "skipped  terraform: tflint: it is not there",
            "skipped  containers: the chart: helm is not there",
            "skipped  tests: 3 of tests/deploy/test_helm.py: no helm on the PATH",
            "ok       tests: 12 passed",
            "not everything was checked: 3 skipped",
        ],
    )


def test_a_failed_check_prints_its_whole_output(checked: Checked) -> None:
    code, lines = checked(pytest="echo 'FAILED it'\necho '1 failed, 11 passed in 1s'\nexit 1")
    assert code == 1
    assert lines[-3:] == ["FAILED   tests", "FAILED it", "1 failed, 11 passed in 1s"]
