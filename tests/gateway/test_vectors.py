"""The vectors for tests of the data plane's crate equal today's output of our framing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "dataplane/tests/vectors"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the present output of ``make.py``."""
    folder = tmp_path_factory.mktemp("vectors")
    subprocess.run([sys.executable, FOLDER / "make.py", folder], cwd=ROOT, check=True)
    return folder


@pytest.mark.parametrize("name", ["frames.txt", "payloads.txt", "strings.txt"])
def test_the_vectors_are_what_our_framing_does(made: Path, name: str) -> None:
    now, kept = (made / name).read_text().split("\n"), (FOLDER / name).read_text().split("\n")
    assert now == kept, "run dataplane/tests/vectors/make.py, and look at the difference"


def test_no_vectors_are_kept_that_nobody_makes(made: Path) -> None:
    # tests/gateway/test_outbox_vectors.py writes outbox.txt.
    kept = {path.name for path in FOLDER.glob("*.txt")} - {"outbox.txt"}
    assert kept == {path.name for path in made.iterdir()}
