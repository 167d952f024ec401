"""The Rust crates pass their own checks, beside our tests: compiling them takes its minute."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from gateways import ENGINES

ROOT = Path(__file__).parents[2]


@pytest.mark.cargo
@pytest.mark.timeout(1800)
@pytest.mark.skipif("native" not in ENGINES, reason="the native engine isn't built")
def test_they_are_formatted_clippy_has_nothing_to_say_and_their_tests_pass() -> None:
    # The existing build is tested: a new one would replace it while other tests use it.
    command = ["make", "--no-print-directory", "--assume-old=dataplane", "dataplane-test"]
    # A make that runs these tests must not pass its options to this one.
    variables = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
