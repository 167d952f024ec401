"""The vectors that the data plane's crate is tested with say what our framing does today."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "gateway/dataplane/tests/vectors"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``make.py`` writes now."""
    folder = tmp_path_factory.mktemp("vectors")
    subprocess.run([sys.executable, FOLDER / "make.py", folder], cwd=ROOT, check=True)
    return folder


@pytest.mark.parametrize("name", ["frames.txt", "payloads.txt", "strings.txt"])
def test_the_vectors_are_what_our_framing_does(made: Path, name: str) -> None:
    now, kept = (made / name).read_text().split("\n"), (FOLDER / name).read_text().split("\n")
    assert now == kept, "run gateway/dataplane/tests/vectors/make.py, and look at the difference"


def test_no_vectors_are_kept_that_nobody_makes(made: Path) -> None:
    # outbox.txt is tests/gateway/test_outbox_vectors.py's.
    kept = {path.name for path in FOLDER.glob("*.txt")} - {"outbox.txt"}
    assert kept == {path.name for path in made.iterdir()}
