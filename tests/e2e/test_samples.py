"""examples/go, examples/node, examples/ruby: publishers that wait for a receipt, into a world."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import pytest
from worlds import ROOT, World

pytestmark = [pytest.mark.world, pytest.mark.timeout(420)]

BUILT_WITHIN = 300.0
RUN_WITHIN = 60.0


def run(
    words: Sequence[str | Path], folder: Path, seconds: float
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, cwd=folder, capture_output=True, text=True, timeout=seconds, check=False
    )


def built(language: str, needed: str, build: Sequence[str], folder: Path) -> Path:
    """A copy of the example, in which ``build`` has run; skips without ``needed``, fails in CI."""
    if shutil.which(needed) is None:
        missing(f"{needed} is missing: `make setup` installs what it can")
    copy = folder / language
    shutil.copytree(
        ROOT / "examples" / language, copy, ignore=shutil.ignore_patterns("node_modules")
    )
    if build and (done := run(build, copy, BUILT_WITHIN)).returncode:
        missing(f"examples/{language} can't be built: {done.stderr[-500:]}")
    return copy


def missing(why: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)


@pytest.fixture(scope="module", params=["go", "node", "ruby"])
def sample(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command of the sample, without its arguments."""
    folder = tmp_path_factory.mktemp("samples")
    match request.param:
        case "go":
            return [str(built("go", "go", ["go", "build", "-o", "publish"], folder) / "publish")]
        case "node":
            build = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
            return ["node", str(built("node", "npm", build, folder) / "publish.mjs")]
        case _:
            # So it fails here and not in the test if the library is missing.
            build = ["ruby", "-e", "require 'bunny'"]
            return ["ruby", str(built("ruby", "ruby", build, folder) / "publish.rb")]


def test_a_sample_prints_the_receipt_of_its_message(
    sample: list[str], world: World, tmp_path: Path
) -> None:
    told = [world.amqp_url("oregon"), "cms", "news.breaking", '{"headline":"Größe"}']
    done = run([*sample, *told], tmp_path, RUN_WITHIN)
    assert done.returncode == 0, done.stderr + done.stdout
    receipt = json.loads(done.stdout)
    assert (receipt["status"], receipt["topic"]) == ("routed", "news.breaking")


def test_a_sample_prints_why_its_message_was_rejected(
    sample: list[str], world: World, tmp_path: Path
) -> None:
    done = run(
        [*sample, world.amqp_url("oregon"), "cms", "nobody.knows", "{}"], tmp_path, RUN_WITHIN
    )
    assert done.returncode == 1, done.stderr + done.stdout
    assert json.loads(done.stdout)["reason"] == "topic_not_allowed"
