"""What tests of playbooks run."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def playbook() -> str:
    """The program."""
    own = ROOT / ".tools" / "ansible" / "bin" / "ansible-playbook"
    program = str(own) if own.exists() else shutil.which("ansible-playbook")
    if program is None:
        if "CI" in os.environ:
            pytest.fail("no ansible-playbook in .tools/ansible or on the PATH")
        pytest.skip("no ansible-playbook in .tools/ansible or on the PATH")
    return program
